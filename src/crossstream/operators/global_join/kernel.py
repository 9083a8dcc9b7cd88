"""KStream–GlobalKTable join: each record looks up one row of a whole table, by any key.

Rows of the table trigger nothing. A null value is dropped and counted in both kinds, a null selected key in an
inner join; the stream's own key may be null. Source: KIP-99, semantics 2.4, 8.10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import (
    Changes,
    LookupCounts,
    headers_of,
)
from crossstream.columns.evaluate import Failure, evaluate, serialized
from crossstream.columns.functions import Function
from crossstream.columns.hashing import hash_keys
from crossstream.columns.values import Values
from crossstream.storage.columns import Column, take, take_or_null
from crossstream.storage.sorted_run import places_of, stable_order
from crossstream.tables.global_tables import GlobalTable
from crossstream.tables.join_spec import JoinSpec


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Results, in the order of their records; the records that a function failed on; drops by reason.

    ``keys``: what a record that asked has selected, if there is one.
    """

    changes: Changes
    failures: list[Failure]
    dropped: dict[str, int]
    counts: LookupCounts
    keys: Values


def look_up(
    spec: JoinSpec, key_selector: Function, records: Changes, table: GlobalTable, *, both_keys: bool = False
) -> LookedUp:
    """The results of ``records``, which may be in any order. ``both_keys``: the joiner gets the selected key, too."""
    selected = evaluate(key_selector, records.key, value=records.value)
    keys, wrong = serialized(selected.values, table.key, "the selected key")
    failures = [*selected.failures, *wrong]
    failed = np.zeros(records.rows, bool)
    failed[[failure.row for failure in failures]] = True

    no_value = records.value.missing() & ~failed
    no_key = Values(table.key, wire=keys).missing() & ~failed & ~no_value
    dropped = {"null-value": int(no_value.sum())}
    if spec.kind == "inner":
        dropped["null-selected-key"] = int(no_key.sum())

    asks = ~(failed | no_value | no_key)
    asking = np.flatnonzero(asks)
    rows, of_rows, unresolved = _rows(
        records, asking, Values(table.key, wire=keys), table, spec.bits, spec.headers in ("right", "both")
    )
    failures += unresolved
    failed[[failure.row for failure in unresolved]] = True
    found, counts = ~rows.missing(), LookupCounts()
    counts.count(asks, found)
    keep = found if spec.kind == "inner" else ~(failed | no_value)
    kept = np.flatnonzero(keep)
    left = records.take(kept)
    sides = {"left": left.value, "right": rows.take(kept)}
    if both_keys:
        sides = {"other_key": Values(table.key, wire=keys).take(kept), **sides}
    joined = evaluate(spec.joiner, left.key, **sides)
    failures += [failure.at(kept[failure.row]) for failure in joined.failures]
    results = replace(left, value=joined.values, old=None, extra={})
    if spec.headers is not None:
        of_rows = None if of_rows is None else take(of_rows, kept)
        results = replace(results, headers=headers_of(spec.headers, left.headers, of_rows))
    if joined.failures:
        results = results.without([failure.row for failure in joined.failures])
    return LookedUp(results, failures, dropped, counts, Values(table.key, wire=keys).take(asking[:1]))


def _rows(
    records: Changes, asking: np.ndarray, keys: Values, table: GlobalTable, bits: int, with_headers: bool
) -> tuple[Values, Column | None, list[Failure]]:
    """The row that each record finds, null where it finds none; its headers; the records that a view failed on."""
    if not len(asking):
        return Values(table.value, wire=pa.nulls(records.rows, pa.large_binary())), None, []
    wire = keys.take(asking).wire()
    hashes = hash_keys(wire, bits)
    order = stable_order(hashes)
    asked = asking[order]
    at = hashes[order], wire.take(order), records.major[asked], records.minor[asked]
    of_rows = None
    if with_headers:
        looked = table.rows(*at)
        found, of_rows, failures = looked.rows.values, looked.rows.headers, looked.failures
    else:
        found, failures = table.values(*at)
    index = places_of(asked, records.rows)
    failures = [failure.at(asked[failure.row]) for failure in failures]
    return found.take(index), None if of_rows is None else take_or_null(of_rows, index), failures
