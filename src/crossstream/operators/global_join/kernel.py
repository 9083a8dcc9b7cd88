"""KStream–GlobalKTable join: each record looks up one row of a whole table, by any key.

    law    a record (k, v) gives k = joiner(v, row) with its own timestamp, where row is what the global table held
           under key_selector(k, v) when the record arrived: for records that find a row (inner), or for all (left)

Rows of the table trigger nothing. A null value is dropped and counted in both kinds, a null selected key in an
inner join; the stream's own key may be null. Source: KIP-99, semantics 2.4, 8.10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Asked, Changes
from crossstream.columns.evaluate import Failure, evaluate, serialized
from crossstream.columns.functions import Function
from crossstream.columns.hashing import hash_keys
from crossstream.columns.values import Values
from crossstream.operators.global_join.global_table import WholeTable
from crossstream.storage.sorted_run import stable_order

Kind = Literal["inner", "left"]


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Results, in the order of their records; the records that a function failed on; drops by reason.

    ``keys``: what a record that asked has selected, if there is one.
    """

    changes: Changes
    failures: list[Failure]
    dropped: dict[str, int]
    asked: Asked
    keys: Values


def look_up(
    kind: Kind, key_selector: Function, joiner: Function, records: Changes, table: WholeTable, *, bits: int
) -> LookedUp:
    """The results of ``records``, which may be in any order."""
    selected = evaluate(key_selector, records.key, value=records.value)
    keys, wrong = serialized(selected.values, table.key, "the selected key")
    failures = [*selected.failures, *wrong]
    failed = np.zeros(records.rows, bool)
    failed[[failure.row for failure in failures]] = True

    no_value = records.value.missing() & ~failed
    no_key = Values(table.key, wire=keys).missing() & ~failed & ~no_value
    dropped = {"null-value": int(no_value.sum())}
    if kind == "inner":
        dropped["null-selected-key"] = int(no_key.sum())

    asks = ~(failed | no_value | no_key)
    asking = np.flatnonzero(asks)
    rows = _rows(records, asking, Values(table.key, wire=keys), table, bits)
    found, asked = ~rows.missing(), Asked()
    asked.count(asks, found)
    keep = found if kind == "inner" else ~(failed | no_value)
    kept = np.flatnonzero(keep)
    left = records.take(kept)
    joined = evaluate(joiner, left.key, left=left.value, right=rows.take(kept))
    failures += [failure.at(kept[failure.row]) for failure in joined.failures]
    results = replace(left, value=joined.values, old=None, extra={})
    if joined.failures:
        results = results.without([failure.row for failure in joined.failures])
    return LookedUp(results, failures, dropped, asked, Values(table.key, wire=keys).take(asking[:1]))


def _rows(records: Changes, asking: np.ndarray, keys: Values, table: WholeTable, bits: int) -> Values:
    """The row that each record finds, null where it finds none."""
    if not len(asking):
        return Values(table.value, wire=pa.nulls(records.rows, pa.large_binary()))
    wire = keys.take(asking).wire()
    hashes = hash_keys(wire, bits)
    order = stable_order(hashes)
    asked = asking[order]
    found = table.values(hashes[order], wire.take(order), records.major[asked], records.minor[asked])
    place = np.full(records.rows, -1, np.int64)
    place[asked] = np.arange(len(asked))
    return found.take(place)
