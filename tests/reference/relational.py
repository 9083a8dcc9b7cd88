"""The joins as relations: no operators, no order of events, only whole inputs.

``final_table`` is what every table join must end with, whatever the batches, partitions and interleaving.
``pairs_and_unmatched`` is what a stream-stream join must emit when no record is later than its grace.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.reference.chain import SIDES, headers_of, histories, joins_of
from tests.reference.functions import joiner, selector
from tests.reference.partitions import one_partition
from tests.reference.records import Case, Output, PartitionOf, Record


def final_table(case: Case, partition_of: PartitionOf = one_partition) -> dict[Any, Any]:
    """Key → value of the last join of a case whose inputs are all tables."""
    tables = {side: folded(case, side, partition_of) for side in SIDES}
    for join in joins_of(case):
        left, right = tables[join["left"]], tables[join["right"]]
        join_rows = by_foreign_key if join["operator"] == "table-table-fk" else by_key
        rows = join_rows(join, left, right)
        tables[join["id"]] = {key: value for key, value in rows.items() if value is not None}
    return tables[join["id"]]


def folded(case: Case, side: str, partition_of: PartitionOf) -> dict[Any, Any]:
    """The last row of each key: by arrival, or in a versioned table by (timestamp, arrival)."""
    history = histories(case).get(side)
    newest: dict[int, int] = {}
    last: dict[Any, tuple[int, Any]] = {}
    for item in case["inputs"]:
        key, ts, value = item["key"], item["ts"], item["value"]
        if item["side"] != side or key is None:
            continue
        if history is not None:
            partition = partition_of(key)
            if ts < newest.get(partition, 0) - history:
                continue
            newest[partition] = max(ts, newest.get(partition, 0))
            if key in last and ts < last[key][0]:
                continue
        last[key] = (ts, value)
    return {key: value for key, (_, value) in last.items() if value is not None}


def by_key(join: dict[str, Any], left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, Any]:
    keys = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}
    function = joiner(join["joiner"])
    return {key: function(key, left.get(key), right.get(key)) for key in keys[join["type"]]}


def by_foreign_key(join: dict[str, Any], left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, Any]:
    function, extract = joiner(join["joiner"]), selector(join["fk_extractor"])
    named = {key: extract(key, value) for key, value in left.items()}
    either = join["type"] in ("right", "outer")
    rows = {(key, None) if either else key: (left[key], right.get(name)) for key, name in named.items()}
    if join["type"] in ("inner", "right"):
        rows = {key: row for key, row in rows.items() if row[1] is not None}
    if either:
        rows |= {(None, name): (None, right[name]) for name in right.keys() - set(named.values())}
    return {key: function(key, *row) for key, row in rows.items()}


def pairs_and_unmatched(case: Case) -> tuple[Counter[Output], Counter[Output]]:
    """All partner pairs, and the rows of outer-side records that have none and whose window has closed.

    Current mode. Null keys of an outer side count as unmatched; null values are nobody's partner.
    Headers: of a pair those of its later record, of an unmatched row its own.
    """
    (join,) = joins_of(case)
    before, after, grace = (join["window"][name] for name in ("before_ms", "after_ms", "grace_ms"))
    function, kind = joiner(join["joiner"]), join["type"]
    stream_time = max((item["ts"] for item in case["inputs"]), default=-1)
    left, right = (records(case, join[side]) for side in ("left", "right"))

    pairs: list[Output] = []
    matched: set[tuple[str, int]] = set()
    for i, x in left.items():
        for n, y in right.items():
            if x.key is not None and x.key == y.key and x.ts - before <= y.ts <= x.ts + after:
                value = function(x.key, x.value, y.value)
                pairs.append(Output(x.key, value, max(x.ts, y.ts), (x if i > n else y).headers))
                matched |= {("left", i), ("right", n)}

    alone: list[Output] = []
    for side, rows, ahead in (("left", left, after), ("right", right, before)):
        outer = kind == "outer" or kind == side
        for i, x in rows.items():
            closed = x.key is None or x.ts + ahead + grace < stream_time
            if outer and closed and (side, i) not in matched:
                both = (x.value, None) if side == "left" else (None, x.value)
                alone.append(Output(x.key, function(x.key, *both), x.ts, x.headers))
    return Counter(pairs), Counter(alone)


def records(case: Case, side: str) -> dict[int, Record]:
    """The records of an input by their place among all; null values are left out."""
    return {
        place: Record(item["key"], item["value"], item["ts"], headers_of(item))
        for place, item in enumerate(case["inputs"])
        if item["side"] == side and item["value"] is not None
    }
