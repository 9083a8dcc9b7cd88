"""Tables that are read again: at each start, and in a thread of each while batches run.

A reading goes into the log of the table (`filetopics.refreshed`) as a whole; the engine reads that as any topic. So a
reading that is slow, or fails, holds no batch up: the rows before stay, and it is tried again when the next is due.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone

from crossstream.api.refreshed import Refreshed, difference
from crossstream.application.totals import Totals
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, StateError, type_and_text
from crossstream.filetopics.refreshed import RefreshLog
from crossstream.graph.nodes import Graph
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import StateRoot

logger = logging.getLogger("crossstream.sources")

WORN, MANY, SMALL = 4, 64, 1 << 16
"""Readings before every retained batch are folded when they have so many times the bytes of the whole table, or there
are so many. A table with fewer bytes counts as ``SMALL``."""


@dataclass(slots=True)
class Table:
    """One table. ``due``: when it is read next, by the clock that only advances; ``read_at``: ms, of the last reading.

    ``failure``: what the last reading failed with.
    """

    name: str
    given: Refreshed
    log: RefreshLog
    due: float = 0.0
    read_at: int = 0
    nulls: int = 0
    dropped: int = 0
    failure: str | None = None
    is_closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> int:
        """Reads it, and logs what differs from the rows before; how many rows do. Raises as `Refreshed.reading`."""
        try:
            reading, now = self.given.reading(), time.time_ns() // 1_000_000
            with self.lock:
                if self.is_closed:
                    return 0
                changes = difference(self.log.rows(), reading.rows)
                if changes.height:
                    self.log.append(changes, max(now, self.log.newest()))
                self.dropped += max(0, reading.nulls - self.nulls)
                self.nulls, self.read_at = reading.nulls, now
        finally:
            self.due = time.monotonic() + (self.given.every or 0) / 1000
        return changes.height

    def read_again(self) -> None:
        """As `read`; if it fails, the rows before stay."""
        try:
            self.read()
        except Exception as error:
            if self.is_closed:
                return
            said = error.what if isinstance(error, CrossStreamError) else type_and_text(error)
            self.failure = said.partition("\n")[0]
            logger.warning("%s", self.warning)
        else:
            if self.failure is not None:
                logger.info("%s is read again", self.name)
            self.failure = None

    @property
    def warning(self) -> str | None:
        """What an operator should know: that the rows are old."""
        if self.failure is None:
            return None
        moment = datetime.fromtimestamp(self.read_at / 1000, timezone.utc).isoformat(" ", "seconds")
        return f"{self.name} has the rows of {moment}: it could not be read again: {self.failure}"

    def is_due(self) -> bool:
        return self.given.every is not None and time.monotonic() >= self.due

    def follow(self, stop: threading.Event) -> None:
        """Reads it at each refresh, until ``stop``."""
        while not stop.wait(min(max(0.0, self.due - time.monotonic()), threading.TIMEOUT_MAX)):
            self.read_again()

    def fold(self, position: int) -> None:
        """Folds the readings before ``position``, if they are worth it and none is logged at this moment."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            sizes = [size for number, size in sorted(self.log.sizes.items()) if number < position]
            if len(sizes) > MANY or sum(sizes[1:]) > WORN * max(SMALL, sum(sizes[:1])):
                self.log.fold(position - 1)
        finally:
            self.lock.release()


class Refreshing:
    """The tables of an application that are read again."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables
        self._stop = threading.Event()
        self._is_followed = False

    @classmethod
    def of(cls, topology: Graph, root: StateRoot, totals: Totals, *, durable: bool) -> Refreshing:
        """Those of a topology, whose warnings and counts are in ``totals``.

        Raises `ConfigError` CS-201 for state on an object store.
        """
        tables = {
            node.name: Table(node.name, given, RefreshLog(root, node.topics[0], durable))
            for node in topology
            if isinstance(given := topology.frames.get(node.name), Refreshed)
        }
        if tables and root.is_remote:
            what = (
                f"{', '.join(tables)}: a table that is read again needs state in a folder, where its log lies"
            )
            step = (
                "give a state_dir that is a path, or write the table to a topic and read it with global_table"
            )
            raise refuse("CS-201", what, step, folder=str(root))
        made = cls(tables)
        totals.beside = made
        return made

    def read_first(self) -> None:
        """Reads all tables, one after the other. Raises what one fails with: an application does not start without."""
        for table in self._tables.values():
            table.log.clear()
            table.read()

    def read_due(self) -> None:
        """Reads those that are due, in this thread."""
        for table in self._tables.values():
            if table.is_due():
                table.read_again()

    def follow(self) -> None:
        """Begins to read them again, each in a thread of its own."""
        if self._is_followed:
            return
        self._is_followed = True
        for table in self._tables.values():
            if table.given.every is not None:
                name = f"crossstream reads {table.name}"
                threading.Thread(target=table.follow, args=(self._stop,), name=name, daemon=True).start()

    def fold(self, log: BatchLog, read: Collection[str]) -> None:
        """After the commit of a batch that ``read`` from these topics: folds readings before every retained batch."""
        for table in self._tables.values():
            if table.log.topic in read and (position := _oldest(log, table)) is not None:
                table.fold(position)

    def dropped(self) -> Counter[str]:
        """Rows without a key since the last call, by operator and reason; the same ones count once."""
        found: Counter[str] = Counter()
        for table in self._tables.values():
            if table.dropped:
                found[f"{table.name}: null-key"], table.dropped = table.dropped, 0
        return found

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of tables that could not be read again."""
        return tuple(warning for table in self._tables.values() if (warning := table.warning) is not None)

    def close(self) -> None:
        """Ends the readings. One that runs logs nothing more."""
        self._stop.set()
        for table in self._tables.values():
            with table.lock:
                table.is_closed = True


def _oldest(log: BatchLog, table: Table) -> int | None:
    """Where the first retained batch that has read the table ended in it; None: none has, or it is just deleted."""
    with suppress(StateError, FileNotFoundError):
        for number in log.commits():
            topics = log.commit(number).positions.get(table.name, {})
            if table.log.topic in topics:
                return topics[table.log.topic][0]
    return None
