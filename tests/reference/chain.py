"""Runs a case: its sources and joins as a small graph, one input record at a time.

Joins are visited in the order they were built, each after all that it reads, so each sees everything that one
input record changed above it at once. Results of earlier joins reach a join before the record itself does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.reference.foreign_key import ForeignKeyJoin
from tests.reference.functions import joiner, selector
from tests.reference.partitions import one_partition
from tests.reference.records import Case, Event, Join, Output, PartitionOf, Record, Result, Side, fold
from tests.reference.stream_global import StreamGlobalJoin
from tests.reference.stream_stream import StreamSelfJoin, StreamStreamJoin
from tests.reference.stream_table import StreamTableJoin
from tests.reference.table_table import TableTableJoin
from tests.reference.tables import StreamSource, TableSource, make_table

SIDES = ("left", "right", "third")

# which sides of an operator are tables, with the setting for their history
TABLES: dict[str, dict[Side, str]] = {
    "table-table": {"left": "left_versioned_ms", "right": "right_versioned_ms"},
    "table-table-fk": {"left": "left_versioned_ms", "right": "right_versioned_ms"},
    "stream-table": {"right": "table_versioned_ms"},
    "stream-globaltable": {"right": "table_versioned_ms"},
    "stream-stream": {},
}


def run(case: Case, partition_of: PartitionOf = one_partition) -> Result:
    """Outputs for each input record, the final table, and the number of drops by reason.

    ``partition_of`` gives the state partition of a key: stream times are kept for each.
    """
    graph = Graph(case, partition_of)
    outputs = [graph.feed(item) for item in case["inputs"]]
    changelog = (output for one in outputs for output in one)
    return Result(outputs, fold(changelog), +graph.dropped)


def joins_of(case: Case) -> list[dict[str, Any]]:
    """The joins of a case, with all their settings; one for a case that is no chain."""
    params = case["params"]
    if "joins" in case:
        return [{**params, **join} for join in case["joins"]]
    ends = {"left": "left", "right": "left" if params.get("self_join") else "right"}
    return [{**params, **ends, "id": "join", "operator": case["operator"], "type": case["type"]}]


def histories(case: Case) -> dict[str, int | None]:
    """The input sides that are tables, with the history retention of a versioned one."""
    tables: dict[str, int | None] = {}
    for join in joins_of(case):
        for side, setting in TABLES[join["operator"]].items():
            if join[side] in SIDES:
                named = {"third": "third_versioned_ms"}.get(join[side], setting)
                tables.setdefault(join[side], join.get(named))
    return tables


def sides_in_turn(case: Case) -> list[str]:
    """The input sides in the order in which records of one time are taken: tables before streams."""
    tables = histories(case) if "params" in case else {}
    return sorted(SIDES, key=lambda side: side not in tables)


def is_timed(case: Case) -> bool:
    """Whether stream time decides. Then all records are in one partition of their topics (decision 0038)."""
    kept = histories(case).values()
    return case["operator"] == "stream-stream" or any(history is not None for history in kept)


class Graph:
    def __init__(self, case: Case, partition_of: PartitionOf) -> None:
        self.dropped: Counter[str] = Counter()
        self.joins = joins_of(case)
        self.histories = histories(case)
        self.partition_of = partition_of
        self.sources = {side: self.source(side) for side in SIDES}
        self.nodes = [self.node(join) for join in self.joins]

    def source(self, side: str) -> TableSource | StreamSource:
        if side not in self.histories:
            return StreamSource()
        return TableSource(make_table(self.histories[side], self.partition_of), self.dropped)

    def node(self, join: Mapping[str, Any]) -> Join:
        if join["operator"] in ("stream-stream", "stream-table"):
            return Partitioned(self, join)
        return make_join(join, self.dropped)

    def feed(self, item: Mapping[str, Any]) -> list[Output]:
        """The outputs of the last join for one input record."""
        record = Record(item["key"], item["value"], item["ts"], headers_of(item))
        found: dict[str, list[Any]] = {}
        for join, node in zip(self.joins, self.nodes, strict=True):
            found[join["id"]] = node.receive(self.reaching(join, found, item["side"], record))
        return [Output.of(event) for event in found[self.joins[-1]["id"]]]

    def reaching(
        self, join: Mapping[str, Any], found: dict[str, list[Any]], side: str, record: Record
    ) -> list[tuple[Side, Event]]:
        if side in (join["left"], join["right"]) and side not in found:
            found[side] = list(self.sources[side].receive(record))
        events: list[tuple[Side, Event]] = []
        ordered = sorted(("left", "right"), key=lambda end: join[end] in SIDES)
        for end in ordered:
            events += [(end, event) for event in found.get(join[end], [])]  # type: ignore[misc]
        return events


class Partitioned:
    """A join with a stream time of its own in every state partition."""

    def __init__(self, graph: Graph, join: Mapping[str, Any]) -> None:
        self.graph = graph
        self.join = join
        self.parts: dict[int, Join] = {}

    def receive(self, events: list[tuple[Side, Event]]) -> list[Event]:
        out: list[Event] = []
        for partition in sorted({self.graph.partition_of(event.key) for _, event in events}):
            if partition not in self.parts:
                history = self.graph.histories.get(self.join["right"])
                self.parts[partition] = make_join(self.join, self.graph.dropped, history)
            here = [(end, event) for end, event in events if self.graph.partition_of(event.key) == partition]
            out += self.parts[partition].receive(here)
        return out


def make_join(join: Mapping[str, Any], dropped: Counter[str], history: int | None = None) -> Join:
    operator, kind, function = join["operator"], join["type"], joiner(join["joiner"])
    if operator == "table-table":
        return TableTableJoin(kind, function, dropped)
    if operator == "table-table-fk":
        return ForeignKeyJoin(kind, function, selector(join["fk_extractor"]), dropped)
    if operator == "stream-table":
        return StreamTableJoin(kind, function, make_table(history), join.get("stream_grace_ms"), dropped)
    if operator == "stream-globaltable":
        return StreamGlobalJoin(kind, function, selector(join["key_mapper"]), dropped)
    make = StreamSelfJoin if join["left"] == join["right"] else StreamStreamJoin
    return make(kind, function, join["window"], join.get("eager", False), dropped)


def headers_of(item: Mapping[str, Any]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, bytes.fromhex(value)) for name, value in item.get("headers", {}).items())
