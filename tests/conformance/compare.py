"""When two outputs are the same: the equalities of section 4.4 of the specification, told readably.

C  same changelog       per key, in order, with timestamps, input by input. Batches of one record.
M  same records         the same multiset of key, value, timestamp. Stream joins, any batches.
T  same table           the same fold, values only. Table joins, any batches.
N  same changelog but for records that change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tests.conformance.case import Input, shown
from tests.reference import Output, fold


def by_key(outputs: Iterable[Output]) -> dict[Any, list[Output]]:
    """Outputs of each key in order; between keys the order is free."""
    keys: dict[Any, list[Output]] = {}
    for output in outputs:
        keys.setdefault(output.key, []).append(output)
    return keys


def assert_same_by_input(
    actual: Sequence[Sequence[Output]], expected: Sequence[Sequence[Output]], inputs: Sequence[Any] = ()
) -> None:
    """C, and M in order per key: after each input the same outputs."""
    wrong = [
        row
        for row in range(max(len(actual), len(expected)))
        if row >= min(len(actual), len(expected)) or by_key(actual[row]) != by_key(expected[row])
    ]
    stories = [story(actual, expected, inputs, row) for row in wrong]
    assert not wrong, "\n".join(["not what each input must give:", *stories])


def story(actual: Sequence[Any], expected: Sequence[Any], inputs: Sequence[Any], row: int) -> str:
    got, want = (shown(rows[row]) if row < len(rows) else "no such input" for rows in (actual, expected))
    given = shown_input(inputs[row]) if row < len(inputs) else ""
    return f"  {row + 1:>3}  {given}\n         expected {want}\n         emitted  {got}"


def shown_input(given: Any) -> str:
    if isinstance(given, dict):
        return str(Input(given["side"], given["key"], given["value"], given["ts"]))
    return str(given)


def assert_same_records(actual: Iterable[Output], expected: Iterable[Output]) -> None:
    """M: the same multiset of records."""
    got, want = Counter(actual), Counter(expected)
    missing, more = list((want - got).elements()), list((got - want).elements())
    assert got == want, f"not emitted: {shown(missing)}\nemitted too: {shown(more)}"


def assert_same_table(actual: Iterable[Output], table: dict[Any, Any]) -> None:
    """T: the outputs fold to ``table`` (key → value)."""
    got = {key: value for key, (value, _) in fold(actual).items()}
    assert got == table, f"folds to  {got}\ninstead of {table}"


def normalised(changelog: Iterable[Output]) -> list[Output]:
    """The changelog without records that do not change its fold: for N."""
    table: dict[Any, Any] = {}
    kept = []
    for output in changelog:
        if table.get(output.key) != output.value:
            table[output.key] = output.value
            kept.append(output)
    return kept
