"""Who may write to an object store: one application, until another one takes its place.

    lease.json     owner, for people; token, of this run; beat, one more with every renewal

Each put of the lease has a condition: that there is none, or that it is the version last seen. So two applications
never hold it both, and no clocks are compared. The owner renews it every `BEAT_SECONDS`, and before each commit. An
application that finds a lease watches it. If it changes, the owner lives, and the start is refused. If it stays the
same for `LEASE_SECONDS`, the owner is gone, and the application takes its place; an owner that comes back finds that
out before it commits. A commit has a condition, too: that there is none with its number. Decision 0024.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from contextlib import suppress

import msgspec

from crossstream.error_codes import refuse
from crossstream.errors import StateError
from crossstream.storage.bucket import Bucket

BEAT_SECONDS = 2.0
LEASE_SECONDS = 20.0
SAFE_SECONDS = 8.0
"""How old a renewal may be where no commit rests on it."""

NAME = "lease.json"

_log = logging.getLogger("crossstream.state")


class Note(msgspec.Struct, frozen=True):
    """The content of the lease."""

    owner: str
    token: str
    beat: int


_DECODER = msgspec.json.Decoder(Note)


class Lease:
    """The right to write, from `acquired` to `release`; a thread renews it."""

    def __init__(self, objects: Bucket, owner: str) -> None:
        self._objects = objects
        self._note = Note(owner, uuid.uuid4().hex, 0)
        self._tag = ""
        self._renewed = 0.0
        self._lost: str | None = None
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def acquired(cls, objects: Bucket, owner: str) -> Lease:
        """A new lease. Raises `StateError` CS-720 if another application holds it."""
        lease = cls(objects, owner)
        while not lease._take():
            lease._lost = None
        lease._check_conditions()
        lease._thread = threading.Thread(target=lease._beat, name="crossstream lease", daemon=True)
        lease._thread.start()
        return lease

    @property
    def token(self) -> str:
        """Of this run."""
        return self._note.token

    def assure(self, within: float = 0.0) -> None:
        """Returns if the lease was renewed in the last ``within`` seconds, or can be renewed now.

        Raises `StateError` CS-720 if another application has taken it.
        """
        with self._turn:
            if self._lost is None and time.monotonic() - self._renewed >= within:
                self._renew()
            if self._lost is not None:
                what = "this application no longer holds the lease on its state"
                step = (
                    "nothing of the batch was committed; if no other application has taken over, start this "
                    "one again"
                )
                raise refuse("CS-720", what, step, folder=str(self._objects), owner=self._lost)

    def release(self) -> None:
        """Gives the lease back, so that the next application does not wait."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._turn:
            if self._lost is not None:
                return
            try:
                self._renew()
                if self._lost is None:
                    self._lost = "nothing: it was given back"
                    self._objects.delete([NAME])
            except StateError as error:
                _log.warning("the lease runs out by itself, because it cannot be deleted: %s", error)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            with self._turn:
                if self._lost is not None:
                    return
                try:
                    self._renew()
                except StateError as error:
                    _log.warning("the lease on %s cannot be renewed: %s", self._objects, error.what)

    def _take(self) -> bool:
        """Puts the lease, if there is none or its owner shows no sign of life. False: it changed; look again."""
        try:
            self._tag = self._objects.create(NAME, msgspec.json.encode(self._note))
        except FileExistsError:
            found, tag = self._seen()
            if found is not None:
                self._await_end(found, tag)
                self._tag = tag
                self._renew()
            return found is not None and self._lost is None
        self._renewed = time.monotonic()
        return True

    def _check_conditions(self) -> None:
        """Raises `StateError` CS-723 if the store puts objects whatever the condition."""
        with suppress(FileExistsError):
            self._objects.create(NAME, msgspec.json.encode(self._note))
            what = "the store of the state ignores the condition of a put (If-None-Match)"
            step = "use a store with conditional puts, such as Amazon S3, or a newer version of yours"
            raise refuse("CS-723", what, step, folder=str(self._objects))

    def _await_end(self, found: Note, tag: str) -> None:
        """Returns when a lease has run out or is gone; raises if its owner lives."""
        _log.warning(
            "%s is held by %s: waiting up to %.0f seconds for a sign of life",
            self._objects,
            found.owner,
            LEASE_SECONDS,
        )
        end = time.monotonic() + LEASE_SECONDS
        while time.monotonic() < end:
            time.sleep(BEAT_SECONDS / 2)
            note, now = self._seen()
            if note is None:
                return
            if now != tag:
                what = "another application runs on this state folder"
                raise refuse("CS-720", what, folder=str(self._objects), owner=note.owner)

    def _renew(self) -> None:
        began = time.monotonic()
        self._note = msgspec.structs.replace(self._note, beat=self._note.beat + 1)
        try:
            self._tag = self._objects.replace(NAME, msgspec.json.encode(self._note), self._tag)
        except (FileExistsError, FileNotFoundError):
            found, self._tag = self._seen()
            if found != self._note:  # else it was put, and the answer was lost
                self._lost = "no application: the object is gone" if found is None else found.owner
                return
        self._renewed = began

    def _seen(self) -> tuple[Note | None, str]:
        try:
            data, tag = self._objects.tagged(NAME)
        except FileNotFoundError:
            return None, ""
        try:
            return _DECODER.decode(data), tag
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return Note("an owner that cannot be read", bytes(data).hex(), -1), tag
