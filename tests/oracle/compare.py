"""Whether somebody's results agree with Kafka's, as far as the decisions ask for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.oracle.cases import Agreement, Case, agreement

Row = dict[str, Any]  # {"key", "value", "ts"}
Outputs = Sequence[Sequence[Row]]  # one list per input


def disagreement(case: Case, kafka: Outputs, ours: Outputs) -> str | None:
    """The first input after which `ours` is not what it should be, in words; None if all is well.

    Results of one input for different keys may come in any order; those for the same key may not.
    """
    expected = agreement(case)
    if expected is Agreement.NONE:
        return None
    if len(kafka) != len(ours):
        return f"{len(ours)} lists of outputs for {len(kafka)} inputs"
    check = same if expected is Agreement.EXACT else Delayed(case["params"]["joiner"]).check
    for number, (input_, theirs, own) in enumerate(zip(case["inputs"], kafka, ours, strict=True), 1):
        if not check(theirs, own):
            return f"input {number} {input_}: Kafka gives {list(theirs)}, we {list(own)}"
    return None


def same(theirs: Sequence[Row], own: Sequence[Row]) -> bool:
    return by_key(theirs) == by_key(own)


def by_key(rows: Sequence[Row]) -> dict[Any, list[tuple[Any, int]]]:
    keys: dict[Any, list[tuple[Any, int]]] = {}
    for row in rows:
        keys.setdefault(row["key"], []).append((row["value"], row["ts"]))
    return keys


class Delayed:
    """Pairs at the same input; unmatched rows not later than Kafka's, which keeps some back."""

    def __init__(self, joiner: dict[str, Any]) -> None:
        missing = joiner.get("missing", "null")
        between = joiner["template"].removeprefix("{left}").removesuffix("{right}")
        assert "{" not in between, f"a template of other form: {joiner}"
        self.marks = (f"{missing}{between}", f"{between}{missing}")
        self.theirs: Counter[tuple[Any, ...]] = Counter()
        self.own: Counter[tuple[Any, ...]] = Counter()

    def check(self, theirs: Sequence[Row], own: Sequence[Row]) -> bool:
        self.theirs.update(row_of(row) for row in theirs if self.unmatched(row))
        self.own.update(row_of(row) for row in own if self.unmatched(row))
        pairs = same([r for r in theirs if not self.unmatched(r)], [r for r in own if not self.unmatched(r)])
        return pairs and self.theirs <= self.own

    def unmatched(self, row: Row) -> bool:
        value = row["value"]
        return isinstance(value, str) and (value.startswith(self.marks[0]) or value.endswith(self.marks[1]))


def row_of(row: Row) -> tuple[Any, ...]:
    return row["key"], row["value"], row["ts"]
