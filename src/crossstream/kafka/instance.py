"""One instance of an application in its consumer group: whether another one runs, and whether state was lost.

Nothing is read through the group, and no instance joins it. Its offsets are for lag tools, and each is committed with a
mark as its metadata: which state folder the instance works on, and since when. The lock of the folder keeps a second
instance away from it; an instance on another folder would process every record once more.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TypeVar

import msgspec
from msgspec import structs

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, SourceError
from crossstream.kafka.log import KafkaLog
from crossstream.topics import TopicPartition

T = TypeVar("T")

logger = logging.getLogger("crossstream.group")

BEAT_SECONDS = 10.0
"""How long an instance without anything to commit leaves its mark unchanged."""
LIVE_SECONDS = 30.0
"""An instance whose mark is older has ended, or a long batch holds it up."""
PAUSE_SECONDS = 30.0
"""How long a group that has refused a commit is not asked again."""
SHOWN = 5


class OwnerMark(msgspec.Struct, frozen=True, rename={"folder": "place"}):
    """What an instance notes beside its offsets, as JSON.

    ``state``: the id of its state folder; ``run``: its own. ``folder``: where that is. ``since``, ``at``: when it
    started, and when it noted this, in seconds. ``has_commits``: a batch of its state was committed.
    """

    state: str
    run: str
    process: str
    folder: str
    since: float
    at: float
    has_commits: bool
    has_ended: bool = False

    @property
    def owner(self) -> str:
        return f"process {self.process}, state in {self.folder}"

    @property
    def is_alive(self) -> bool:
        return not self.has_ended and time() - self.at < LIVE_SECONDS


@dataclass(slots=True)
class Instance:
    """This run of an application. ``folder``: of its state, which it has locked.

    ``restarts``: it may begin again without state.
    """

    log: KafkaLog
    group: str
    folder: str
    restarts: bool
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _since: float = field(default_factory=time)
    _seen: dict[TopicPartition, OwnerMark | None] = field(default_factory=dict)
    _mark: OwnerMark | None = None
    _offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    _marked: float = 0.0
    _paused_until: float = 0.0
    _has_warned: bool = False
    _has_rival: bool = False

    def check(self, partitions: Sequence[TopicPartition], state: str | None, has_commits: bool) -> None:
        """Looks at a start which instance has committed before; ``state``: the id of the folder, if it has one.

        Raises `StateError`: CS-740 if that one still runs, CS-741 if there are offsets and no state that belongs to
        them.
        """
        found = self._unless_refused(lambda: self.log.committed(self.group, partitions))
        if found is None:
            return
        self._seen = {tp: _read(found[tp].note) if tp in found else None for tp in partitions}
        marks = [mark for mark in self._seen.values() if mark is not None]
        last = max(marks, key=lambda mark: mark.at, default=None)
        if last is not None and last.state != state:
            if last.is_alive and last.folder != self.folder:  # on our folder nothing else runs
                raise self._runs_already(last)
            if has_commits:
                logger.warning(
                    "the offsets of the consumer group %r are those of another state folder (%s): "
                    "the application continues from its own, and processes again what that one had",
                    self.group,
                    last.owner,
                )
        if has_commits:
            return
        offsets = {tp: one.offset for tp, one in found.items() if one.offset > 0}
        if offsets and (last is None or last.has_commits):
            lost = self._lost(offsets, last)
            if not self.restarts:
                raise lost
            logger.warning("%s; on_lost_state='restart': the application begins again", lost.what)

    def begin(self, offsets: Mapping[TopicPartition, int], state: str, has_commits: bool) -> None:
        """Takes the group; from now on others can see that this one runs. Raises `StateError` CS-740."""
        process = f"{os.getpid()} on {socket.gethostname()}"
        self._mark = OwnerMark(state, self._run, process, self.folder, self._since, time(), has_commits)
        self._commit(offsets, offsets)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Notes how far the application is, after a batch. Raises `StateError` CS-740 if an earlier instance runs."""
        if self._mark is not None:
            self._mark = structs.replace(self._mark, has_commits=True)
            self._commit(offsets, offsets)

    def beat(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Renews the mark of an instance that had nothing to commit for a while. Raises `StateError` CS-740."""
        if self._mark is not None and monotonic() - self._marked > BEAT_SECONDS:
            self._commit(offsets, _first(offsets))

    def end(self) -> None:
        """Says that this one has stopped, if the mark is its own: another one need not wait until it looks dead."""
        if self._mark is not None and self._offsets and monotonic() >= self._paused_until:
            note = _noted(structs.replace(self._mark, at=time(), has_ended=True))
            self.log.try_to_commit(self.group, _first(self._offsets), note)
        self._mark = None

    def _commit(self, known: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]) -> None:
        if known and monotonic() >= self._paused_until:
            self._offsets = dict(known)
            self._unless_refused(lambda: self._look_and_commit(min(known), offsets))

    def _look_and_commit(self, tp: TopicPartition, offsets: Mapping[TopicPartition, int]) -> None:
        found = self.log.committed(self.group, [tp]).get(tp)
        self._check_alone(tp, None if found is None else _read(found.note))
        assert self._mark is not None
        self._mark = structs.replace(self._mark, at=time())
        self.log.commit_offsets(self.group, offsets, _noted(self._mark))
        self._marked = monotonic()

    def _check_alone(self, tp: TopicPartition, mark: OwnerMark | None) -> None:
        """Refuses the later of two instances: another one has left a mark since this one looked, or left its own."""
        before, self._seen[tp] = self._seen.get(tp, mark), mark
        if mark is None or mark == before or mark.run == self._run or mark.has_ended:
            return
        if (mark.since, mark.run) < (self._since, self._run):
            self._mark = None
            raise self._runs_already(mark)
        if not self._has_rival:
            self._has_rival = True
            logger.warning(
                "another instance of the application %r has started (%s): it stops when it sees this one",
                self.group,
                mark.owner,
            )

    def _unless_refused(self, act: Callable[[], T]) -> T | None:
        """Does what serves tools and the check of instances: where the group refuses, the application continues."""
        try:
            return act()
        except SourceError as error:
            if error.code != "CS-608":
                raise
            self._paused_until = monotonic() + PAUSE_SECONDS
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "%s\nThe application continues. Lag tools see no numbers, or wrong ones, "
                    "and a second instance of the application would not be noticed",
                    error,
                )
            return None

    def _runs_already(self, mark: OwnerMark) -> CrossStreamError:
        what = (
            "another instance of the application runs, on a state folder of its own: "
            "each of them would process every record"
        )
        step = (
            "stop the other one, or give this one an application_id of its own; "
            f"if the other one was killed, start this one {LIVE_SECONDS:.0f} seconds after that"
        )
        return refuse("CS-740", what, step, application=self.group, state=self.folder, other=mark.owner)

    def _lost(self, offsets: Mapping[TopicPartition, int], last: OwnerMark | None) -> CrossStreamError:
        first = [f"{at.topic}/{at.partition}: {offset}" for at, offset in sorted(offsets.items())[:SHOWN]]
        more = [f"{len(offsets) - SHOWN} more"] if len(offsets) > SHOWN else []
        return refuse(
            "CS-741",
            "the consumer group of the application has committed offsets, but its state folder is new: "
            "everything would be processed again",
            application=self.group,
            state=self.folder,
            offsets=", ".join(first + more),
            last=None if last is None else last.owner,
        )


def _first(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The one offset whose mark is looked at."""
    return dict(sorted(offsets.items())[:1])


_DECODER = msgspec.json.Decoder(OwnerMark)


def _noted(mark: OwnerMark) -> str:
    return msgspec.json.encode(mark).decode()


def _read(note: str) -> OwnerMark | None:
    """The mark in the metadata of an offset; None if something else is there, as other programs put it."""
    try:
        return _DECODER.decode(note)
    except msgspec.MsgspecError:
        return None
