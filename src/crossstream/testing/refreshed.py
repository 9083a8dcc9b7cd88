"""Tables that are read again, in the test driver: a test says when."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from crossstream.api.refreshed import Refreshed, difference
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.filetopics.refreshed import EMPTY
from crossstream.graph.nodes import Graph
from crossstream.records import PRODUCER_RECORDS


@dataclass(slots=True)
class RefreshedTables:
    """``topics``: their topics, by name. ``rows``: what was read last, by name."""

    given: dict[str, Refreshed]
    topics: dict[str, str]
    rows: dict[str, pl.DataFrame] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Graph) -> RefreshedTables:
        given = {name: one for name, one in topology.frames.items() if isinstance(one, Refreshed)}
        return cls(given, {name: topology[name].topics[0] for name in given})

    def read(self, name: str, timestamp: int) -> pa.RecordBatch:
        """What differs from the rows before, as records. Raises `ConfigError` CS-241 for an unknown name."""
        if name not in self.given:
            names = ", ".join(self.given) or "none"
            step = f"its tables of global_table_from(…) are: {names}"
            raise refuse(
                "CS-241", f"the topology has no table {name!r} to read again", step, **caller_location()
            )
        now = self.given[name].reading().rows
        changes = difference(self.rows.get(name, EMPTY), now)
        self.rows[name] = now
        count = changes.height
        columns = [changes[part].to_arrow().cast(pa.large_binary()) for part in ("key", "value")]
        times = pa.repeat(pa.scalar(timestamp, pa.int64()), count)
        return pa.RecordBatch.from_arrays(
            [*columns, times, pa.nulls(count, pa.large_binary())], schema=PRODUCER_RECORDS
        )
