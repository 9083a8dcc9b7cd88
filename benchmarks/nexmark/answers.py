"""Waits until the topic of the results holds what DuckDB gives, and reads it only while no more come."""

from __future__ import annotations

import time
from collections.abc import Callable

import polars as pl

from benchmarks.nexmark.results import RECORDS, differs, rows_of
from benchmarks.nexmark.sending import ends_in_time
from benchmarks.waiting import Waiting

AS_LISTS = frozenset({"q5", "q7", "q19"})
"""Queries of which one record may stand for several rows."""


class Answers(Waiting):
    """The results of one query of one side. Made before the first of them."""

    def __init__(self, servers: str, topic: str, query: str, expected: pl.DataFrame) -> None:
        super().__init__(servers, topic)
        self.query, self.expected = query, expected
        self.found = [RECORDS.to_frame()]
        self.newest = 0

    def until_right(
        self, check: Callable[[], None], at_rest: Callable[[], None] = lambda: None, patience: float = 600
    ) -> float:
        """When the newest result was stamped, in seconds; ``at_rest`` is called before each look at them.

        Raises `RuntimeError` with the difference if the results are not right in time.
        """
        stop, fault = time.monotonic() + patience, "no results"
        least = 0 if self.query in AS_LISTS else len(self.expected)
        while time.monotonic() < stop:
            ends = self.rest(self.seen, check, stop)
            at_rest()
            self.read(ends - self.seen)
            self.seen = ends
            found = pl.concat(self.found)
            fault = f"{len(found)} results, and at least {least} expected"
            if len(found) >= least:
                fault = (
                    differs(self.query, rows_of(self.query, found, self.expected.schema), self.expected) or ""
                )
            if not fault:
                self.consumer.close()
                self.asking.close()
                return self.newest / 1000
        raise RuntimeError(f"{self.query} is not right within {patience} s: {fault}")

    def ends(self) -> int:
        """Results there are."""
        return sum(ends_in_time(self.asking, self.places))

    def read(self, expected: int) -> None:
        """Reads so many results; ends of transactions count, and do not come."""
        self.consumer.resume(self.places)
        quiet = 0
        while expected > 0 and quiet < 5:
            messages = [m for m in self.consumer.consume(10_000, 0.2) if m.error() is None]
            quiet = 0 if messages else quiet + 1
            expected -= len(messages)
            columns = {"key": [m.key() for m in messages], "value": [m.value() for m in messages]}
            self.found.append(pl.DataFrame(columns, schema=RECORDS))
            self.newest = max([self.newest, *(m.timestamp()[1] for m in messages)])
        self.consumer.pause(self.places)
