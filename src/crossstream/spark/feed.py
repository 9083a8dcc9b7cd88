"""DataFrame sources: the query that delivers their rows, and whether its checkpoint fits the batch log."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from crossstream.application.lifecycle import raisable
from crossstream.application.rounds import check_none_begun
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.spark.errors import calling_socket, hang_up
from crossstream.spark.frames import LONGEST_PAUSE
from crossstream.storage.log_entries import BatchEntry, Commit
from crossstream.storage.manifest import lost


@dataclass(slots=True)
class FrameFeed:
    """Runs the query. ``take``: gets the rows of each micro-batch and its number; what it raises ends the query.

    ``_is_through``: since the last micro-batch the query has looked for rows, and found none. ``_begun``: there is
    a query that runs until it is stopped, or there will be none. ``_caller``: by which the query's thread has called
    `take`, when that is done.
    """

    take: Callable[[Any, int], None]
    _query: Any = field(default=None, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _is_through: bool = field(default=False, init=False)
    _begun: threading.Event = field(default_factory=threading.Event, init=False)
    _caller: socket.socket | None = field(default=None, init=False)

    def start(self, frame: Any, checkpoint: str, pause: int | None) -> None:
        """Begins to read, if that has not begun: a batch every ``pause`` ms; None: what there is now, and returns.

        ``checkpoint``: a folder, absolute.
        """
        if self._query is not None:
            return
        self._is_through = False
        # As Hadoop reads the location, nothing in it is escaped; a path alone is one of the session's file system.
        writer = frame.writeStream.foreachBatch(self._run).option(
            "checkpointLocation", f"file://{checkpoint}"
        )
        if pause is None:
            self._query = writer.trigger(availableNow=True).start()
            self._await()
        else:
            every = f"{min(pause, LONGEST_PAUSE)} milliseconds"
            self._query = writer.trigger(processingTime=every).start()
            self._begun.set()

    def check(self) -> None:
        """Raises what ended the query, if it has ended; `SourceError` CS-619 if that was not `take`."""
        if self._query is not None and not self._query.isActive:
            self._raise_failure()
            raise _ended(self._query.exception())

    def is_behind(self) -> bool:
        """Whether there may be rows to read. While the query looks for some, the answer stays."""
        if self._query is None:
            return False
        status = self._query.status
        if status["isDataAvailable"]:
            self._is_through = False
        elif not status["isTriggerActive"] and status["message"].startswith("Waiting"):
            self._is_through = True
        return not self._is_through

    def call_when_through(self, call: Callable[[], None]) -> None:
        """Calls ``call`` in another thread when the rows that are there are through; not if the query ends before.

        The caller waits for that, and for other things, in a way that Ctrl-C ends.
        """
        threading.Thread(target=self._await_through, args=(call,), daemon=True).start()

    def stop(self) -> None:
        """Ends the query; a micro-batch that runs is interrupted."""
        if self._query is not None:
            self._query.stop()
            self._has_ended()
        self._begun.set()

    def _await_through(self, call: Callable[[], None]) -> None:
        self._begun.wait()
        query = self._query
        if query is None:
            return
        try:
            query.processAllAvailable()
            is_through = query.isActive
        except Exception:  # `check` raises why the query has ended
            return
        if is_through:
            call()

    def _await(self) -> None:
        """Returns when the query has ended; where the wait is interrupted it has not, and `stop` ends it."""
        try:
            self._query.awaitTermination()
        except Exception as error:
            self._has_ended()
            self._raise_failure()
            if _step_after(error) is not None:
                raise _ended(error) from error
            raise
        self._has_ended()
        self._raise_failure()

    def _has_ended(self) -> None:
        """Notes it. Where the query was stopped in `take`, which still runs, its thread stays."""
        self._query = None
        if self._caller is not None:
            hang_up(self._caller)
            self._caller = None

    def _run(self, frame: Any, epoch: int) -> None:
        self._is_through = False
        self._caller = None
        try:
            self.take(frame, epoch)
        except Exception as error:
            self._failure = error
            raise
        except BaseException as error:
            self._failure = raisable(error)
            raise self._failure from error
        finally:
            self._caller = calling_socket()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error


_STEPS = {
    "skipChangeCommits": "read the changes of the table, with a new state_dir: .option('readChangeFeed', 'true') on "
    "readStream, or builder.table_from_delta(…), which needs no jar",
    "enableChangeDataFeed": "turn the feed on (delta.enableChangeDataFeed) and begin after that version; or read the "
    "table without one: builder.table_from_delta(…)",
}
"""What to do where the message of Delta names one of its settings."""


def _step_after(error: object) -> str | None:
    return next((step for setting, step in _STEPS.items() if setting in str(error)), None)


def _ended(error: object) -> CrossStreamError:
    """CS-619: the query has ended with this error, or None."""
    step = _step_after(error) or "see the message of Spark; start the application again"
    what = f"the query of the DataFrame sources ended: {error or 'it was stopped'}"
    return refuse("CS-619", what, step)


Reads = Mapping[str, Sequence[Hashable]]
"""By source what Spark reads for it, in the order of its plan; equal are those that are one to Spark."""


class _FileOffset(msgspec.Struct, rename={"list": "logOffset"}):
    """Up to which of its lists of files a source has been read."""

    list: int


_DECODER = msgspec.json.Decoder(_FileOffset)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a start finds: Spark's ``folder``, the last commit, and the batch that was begun after it."""

    folder: Path
    commit: Commit
    begun: BatchEntry | None

    def order(self, sources: Reads, noted: Sequence[str]) -> tuple[str, ...]:
        """The sources in the order in which Spark knows them; ``noted``: that of the last run, if there was one.

        Raises `StateError`: CS-701 if files of the checkpoint are missing, or of the log that belong to it;
        `IncompatibleStateError` CS-750 if the sources are others than its own.
        """
        if not sources:
            check_none_begun(self.folder, self.begun, noted)
            return tuple(noted)
        is_same = not noted or set(sources) == set(noted)
        self._check_commits()
        if self._reached < 0 and not is_same:
            shutil.rmtree(self.folder, ignore_errors=True)  # nothing of it was ever taken
            return tuple(sources)
        if not is_same:
            raise self._changed(sources, noted)
        order = tuple(noted or sources)
        # Without offsets Spark would count epochs from 0 again, and give other rows for those that are done.
        if self._newest("offsets") < self._reached:
            raise self._lacks(f"offsets/{self._reached}")
        for part in self._parts([read for name in order for read in sources[name]]):
            if not (self.folder / part).exists():
                raise self._lacks(part)
        return order

    @property
    def _reached(self) -> int:
        """The newest epoch that a batch has taken."""
        return max(self.commit.epoch, -1 if self.begun is None else self.begun.epoch)

    def _check_commits(self) -> None:
        """An epoch that is done for Spark is not given again: its rows would be passed over."""
        done = self._newest("commits")
        if done > self.commit.epoch:
            last = "none" if self.commit.epoch < 0 else f"epoch {self.commit.epoch}"
            raise lost(
                f"Spark's checkpoint of the DataFrame sources is done with epoch {done}, and the batch log with "
                f"{last}: commits of the batch log are missing",
                folder=str(self.folder.parent / "commits"),
                checkpoint=str(self.folder),
            )

    def _parts(self, reads: Sequence[Hashable]) -> Iterator[str]:
        """What Spark needs to continue: it would end with an error of its own that names no file, or another one."""
        newest = self._newest("offsets")
        if newest >= 0:
            yield "metadata"
            yield from (f"offsets/{epoch}" for epoch in range(max(0, newest - 1), newest))
            lists = dict(zip(reads, self._offsets(newest), strict=False))
            for source, last in enumerate(lists.values()):
                yield from self._lists(source, last)

    def _offsets(self, epoch: int) -> list[int]:
        """The newest list of files for every place where something is read; -1 where that is no folder."""
        lines = (self.folder / "offsets" / str(epoch)).read_text().splitlines()
        return [_list_of(line) for line in lines[2:]]  # the version and the settings come first

    def _lists(self, source: int, last: int) -> Iterator[str]:
        """Of a folder that is read: the lists of its files, from the one on that holds all before."""
        names = self._names(f"sources/{source}")
        whole = max((int(name[:-8]) for name in names if name.endswith(".compact")), default=-1)
        yield from (f"sources/{source}/{number}" for number in range(whole + 1, last + 1))

    def _lacks(self, name: str) -> CrossStreamError:
        what = f"the checkpoint of the DataFrame sources, which Spark keeps, lacks {name}"
        return lost(what, file=str(self.folder / name))

    def _changed(self, sources: Reads, noted: Sequence[str]) -> CrossStreamError:
        changes = [f"{name} is new" for name in sources if name not in noted]
        changes += [f"{name} is gone" for name in noted if name not in sources]
        has_rows = self.begun is not None and self.begun.epoch >= 0
        instead = (
            f": batch {self.commit.id + 1} was begun with their rows"
            if has_rows
            else ", or leave all of them out"
        )
        what = "the DataFrame sources changed since the last run: " + "; ".join(changes)
        step = (
            f"go back to the DataFrame sources of the last run, under their names{instead}; or start with a new "
            "application_id or an empty state_dir"
        )
        return refuse("CS-750", what, step, folder=str(self.folder))

    def _newest(self, folder: str) -> int:
        """The last epoch with a file in a folder of the checkpoint; -1 if there is none."""
        return max((int(name) for name in self._names(folder) if name.isdecimal()), default=-1)

    def _names(self, folder: str) -> list[str]:
        place = self.folder / folder
        return [name for name in os.listdir(place) if not name.startswith(".")] if place.is_dir() else []


def _list_of(offset: str) -> int:
    """The list of files that the offset of a source stands for; -1 of sources that have none."""
    try:
        return _DECODER.decode(offset).list
    except msgspec.MsgspecError:
        return -1
