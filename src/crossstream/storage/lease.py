"""Who may write, where no file can be locked: a small object that its owner renews, and others watch.

    lease.json     owner, for people; token, of this run; beat, one more with every renewal

An owner renews its lease every `BEAT_SECONDS`. Who finds the lease of another watches it: if it changes, the owner
lives; if it stays the same for `LEASE_SECONDS` of the watcher's own clock, the owner is gone. So no clocks are
compared. Who has written a lease looks at it again after `SETTLE_SECONDS`: of two who wrote, the last one has it.

An owner begins a commit only if the lease was its own at that moment, and renewed within the last `SAFE_SECONDS`.
What this leaves open, and why, is in decision 0024.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Protocol

import msgspec

from crossstream.errors import StateError

BEAT_SECONDS = 2.0
LEASE_SECONDS = 20.0
SAFE_SECONDS = 8.0
SETTLE_SECONDS = 1.0

NAME = "lease.json"

_log = logging.getLogger("crossstream.state")


class Files(Protocol):
    """Where the lease lies; small files that are read as they are now."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None: ...

    def delete(self, name: str) -> None: ...


class Note(msgspec.Struct, frozen=True):
    """What the object holds."""

    owner: str
    token: str
    beat: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment to measure from. A machine that slept has aged by its wall clock only."""

    steady: float
    wall: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic(), time.time())

    @property
    def age(self) -> float:
        return max(time.monotonic() - self.steady, time.time() - self.wall)


class Lease:
    """The right to write, from `acquired` to `release`; renewed by a thread of its own.

    ``files``: where the lease lies; as text, the place for messages.
    """

    def __init__(self, files: Files, owner: str) -> None:
        self._files = files
        self._note = Note(owner, uuid.uuid4().hex, 0)
        self._lost: str | None = None
        self._renewed = self._confirmed = Moment(0.0, 0.0)
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def acquired(cls, files: Files, owner: str) -> Lease:
        """A lease that is ours. Raises `StateError` CS-720 if another application has it."""
        lease = cls(files, owner)
        found = lease._seen()
        if found is not None:
            lease._await_end(found)
        lease._write()
        time.sleep(SETTLE_SECONDS)
        lease._confirmed = Moment.now()
        found = lease._read()
        if found is None or found.token != lease._note.token:
            raise lease._taken(found)
        lease._thread = threading.Thread(target=lease._beat, name="crossstream lease", daemon=True)
        lease._thread.start()
        return lease

    def assure(self, within: float = 0.0) -> None:
        """Returns if the lease is ours, as was seen in the last ``within`` seconds or is asked now.

        Raises `StateError` CS-720 if it is another's, or cannot be renewed in time.
        """
        with self._turn:
            if self._lost is None and (self._confirmed.age > within or self._renewed.age > SAFE_SECONDS):
                self._confirm(renew=self._renewed.age > SAFE_SECONDS / 2)
            if self._lost is None and self._renewed.age > SAFE_SECONDS:
                self._lost = "nobody we know of: it could not be renewed in time"
            if self._lost is not None:
                raise StateError(
                    "this application no longer holds the lease on its state",
                    code="CS-720",
                    where={"folder": str(self._files), "owner": self._lost},
                    next="nothing of the batch was committed; if no other application has taken over, start this "
                    "one again",
                )

    def release(self) -> None:
        """Gives the lease back, so that the next application need not wait."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._turn:
            if self._lost is not None:
                return
            self._lost = "nobody: it was given back"
            if self._renewed.age > SAFE_SECONDS:
                return  # the store has not answered for a while: it runs out by itself
            try:
                found = self._read()
                if found is not None and found.token == self._note.token:
                    self._files.delete(NAME)
            except StateError as error:
                _log.warning(
                    "the lease runs out in %.0f seconds, for it cannot be deleted: %s", LEASE_SECONDS, error
                )

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            with self._turn:
                if self._lost is not None:
                    return
                try:
                    self._confirm(renew=True)
                except StateError as error:
                    _log.warning("the lease on %s cannot be renewed: %s", self._files, error.what)

    def _confirm(self, *, renew: bool) -> None:
        began = Moment.now()
        found = self._read()
        if found is None or found.token != self._note.token:
            self._lost = "nobody: its object is gone" if found is None else found.owner
            return
        self._confirmed = began
        if renew:
            self._write()

    def _await_end(self, found: Note) -> None:
        """Returns when a lease has been given back or has run out; raises if its owner lives."""
        _log.warning(
            "%s is held by %s: waiting up to %.0f seconds for a sign of life",
            self._files,
            found.owner,
            LEASE_SECONDS,
        )
        seen = Moment.now()
        while time.monotonic() - seen.steady < LEASE_SECONDS:
            time.sleep(BEAT_SECONDS / 2)
            now = self._seen()
            if now is None:
                return
            if now != found:
                raise self._taken(now)

    def _taken(self, found: Note | None) -> StateError:
        return StateError(
            "another application runs on this state folder",
            code="CS-720",
            where={"folder": str(self._files), "owner": "another process" if found is None else found.owner},
            next="stop it first, or give this application a state_dir of its own",
        )

    def _seen(self) -> Note | None:
        """The lease of another. A store may show none for a moment, while that other writes it."""
        found = self._read()
        if found is None:
            time.sleep(SETTLE_SECONDS / 4)
            found = self._read()
        return found

    def _read(self) -> Note | None:
        try:
            data = self._files.read(NAME)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=Note)
        except msgspec.MsgspecError:
            return Note("an owner that cannot be read", data.hex(), -1)

    def _write(self) -> None:
        began = Moment.now()
        self._note = msgspec.structs.replace(self._note, beat=self._note.beat + 1)
        self._files.write(NAME, msgspec.json.encode(self._note))
        self._renewed = began
