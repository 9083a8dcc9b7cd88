"""A row whose new value a function refuses, in tables without a store of their own: it is gone until its next good one.

    law    after each batch, in any cut: a table is what its functions give for the rows that its inputs have now, less
           those that they refuse; a group below has the rows that are there now

Story: r is 1, then 0, which the function refuses, then 2. A count of the rows is 1, 0, 1. If the row of 1 stayed in the
group, nothing would ever take it away: the change from 0 to 2 cannot say which row to take away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases
from tests.laws.engine import Way, ways

TEXT, INT = serdes.string(), serdes.int64()
SIDES = ("left", "right")
Rows = Mapping[str, int]
Item = tuple[str, str, int | None]


class Refused(Exception):
    """What functions of this module raise."""


def checked(value: int) -> int:
    if value == 0:
        raise Refused
    return value


def not_zero(number: pl.Expr) -> pl.Expr:
    """As `checked`, as an expression."""
    return (number - 1).cast(pl.UInt8).cast(pl.Int64) + 1


def total(left: int | None, right: int | None) -> int:
    return (left or 0) + (right or 0)


VALUE = pl.col("value")
SUM = pl.col("left").fill_null(0) + pl.col("right").fill_null(0)
CALLS: dict[str, Any] = {
    "map_values": checked,
    "filter": lambda value: checked(value) > 1,
    "filter_not": lambda value: checked(value) > 1,
    **dict.fromkeys(["join", "left_join", "outer_join"], lambda left, right: checked(total(left, right))),
}
EXPRESSIONS: dict[str, pl.Expr] = {
    "map_values": not_zero(VALUE),
    "filter": not_zero(VALUE) > 1,
    "filter_not": not_zero(VALUE) > 1,
    **dict.fromkeys(["join", "left_join", "outer_join"], not_zero(SUM)),
}
KEPT: dict[str, Callable[[int], bool]] = {"filter": lambda n: n > 1, "filter_not": lambda n: n <= 1}


def applied(table: Any, name: str, right: Any, function: Any, store: str | None = None) -> Any:
    """An operator on a table, which gives whole numbers."""
    others = [right] if name.endswith("join") else []
    serde = {} if name in KEPT else {"value": INT}
    return getattr(table, name)(*others, function, store=store, **serde)


@dataclass(frozen=True)
class Steps:
    """Operators on the left table, one on the result of the other, and whether their functions are expressions."""

    names: tuple[str, ...]
    expressed: bool = False

    def of(self, left: Any, right: Any) -> Any:
        functions = EXPRESSIONS if self.expressed else CALLS
        for name in self.names:
            left = applied(left, name, right, functions[name])
        return left

    def rows(self, left: Rows, right: Rows) -> Rows:
        """What the table is."""
        for name in self.names:
            if name.endswith("join"):
                keys = {"join": left.keys() & right.keys(), "left_join": left.keys()}
                sums = {
                    key: total(left.get(key), right.get(key))
                    for key in keys.get(name, left.keys() | right.keys())
                }
                left = {key: value for key, value in sums.items() if value}
            else:
                kept = KEPT.get(name, bool)
                left = {key: value for key, value in left.items() if value and kept(value)}
        return left


def topology(steps: Steps) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left, right = (builder.table(side, cs.Consumed(key=TEXT, value=INT)) for side in SIDES)
    table = steps.of(left, right)
    table.to_stream().to("out", cs.Produced(key=TEXT, value=INT))
    parity = table.group_by(lambda key, value: ("odd" if value % 2 else "even", value), key=TEXT, value=INT)
    parity.count(store="counts")
    parity.aggregate(
        lambda: 0, lambda sum_, value: sum_ + value, lambda sum_, value: sum_ - value, store="sums", value=INT
    )
    table.left_join(right, total, store="joined", value=INT)
    return builder.build()


def check(steps: Steps, items: Sequence[Item], way: Way) -> None:
    inputs = [
        {"side": side, "key": key, "value": value, "ts": ts} for ts, (side, key, value) in enumerate(items)
    ]
    rows: dict[str, dict[str, int]] = {side: {} for side in SIDES}
    written: dict[str, int | None] = {}
    with way.driver(topology(steps), processing_errors="skip") as driver:
        topics = {side: driver.create_input_topic(side, TEXT, INT) for side in SIDES}
        out = driver.create_output_topic("out", TEXT, INT)
        for (side, key, value), (_, ended) in zip(items, way.pipe(driver, topics, inputs), strict=True):
            rows[side].pop(key, None)
            rows[side] |= {} if value is None else {key: value}
            if not ended:
                continue
            right = steps.rows(rows["left"], rows["right"])
            written |= {record.key: record.value for record in out.read_records()}
            assert {key: value for key, value in written.items() if value is not None} == right
            stores = {
                name: dict(driver.get_key_value_store(name).all()) for name in ("counts", "sums", "joined")
            }
            sums: Counter[str] = Counter()
            for one in right.values():
                sums["odd" if one % 2 else "even"] += one
            counts = Counter("odd" if one % 2 else "even" for one in right.values())
            assert {name: n for name, n in stores["counts"].items() if n} == counts
            assert {name: n for name, n in stores["sums"].items() if n} == sums
            assert stores["joined"] == {key: total(one, rows["right"].get(key)) for key, one in right.items()}


records = st.lists(
    st.tuples(
        st.sampled_from(["left", "left", "right"]),
        st.sampled_from("ab"),
        st.sampled_from([0, 0, 1, 2, 3, None]),
    ),
    max_size=12,
)
chains = st.builds(
    Steps,
    st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=2).map(tuple),
    st.booleans(),
)
STORY: list[Item] = [("left", "a", 1), ("left", "a", 0), ("left", "a", 2)]
SUMS: list[Item] = [("right", "a", 0), ("left", "a", 1), ("left", "a", 0), ("left", "a", 2)]


@cases(2)
@given(chains, records, ways())
@example(Steps(("map_values",)), STORY, Way())
@example(Steps(("map_values",), True), STORY, Way())
@example(Steps(("filter_not",)), STORY, Way())
@example(
    Steps(("filter",)), [("left", "a", 2), ("left", "a", 0), ("left", "a", 2)], Way(partitions=3, every=2)
)
@example(Steps(("join",)), SUMS, Way(packed=True))
@example(Steps(("outer_join", "filter"), True), SUMS, Way(partitions=2))
def test_a_table_has_the_rows_that_its_functions_take_now(steps: Steps, items: list[Item], way: Way) -> None:
    check(steps, items, way)


@pytest.mark.parametrize("expressed", [False, True])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_refused_value_is_counted_once(name: str, expressed: bool) -> None:
    """Not again when it is the old value of the next change; and there is one dead letter for it."""
    with cs.TopologyTestDriver(
        topology(Steps((name,), expressed)), processing_errors=cs.DeadLetter("dead")
    ) as driver:
        left, right = (driver.create_input_topic(side, TEXT, INT) for side in SIDES)
        right.pipe_input("a", 0)
        for value in (1, 0, 2, 0, None, 0, 0, 1):
            left.pipe_input("a", value)
        letters = driver.create_output_topic("dead", TEXT, INT).read_records()
        # Without a left row the outer join has the right one, which is 0.
        refused = 6 if name == "outer_join" else 4
        assert sum(n for why, n in driver.metrics()["dropped"].items() if why.endswith("failed")) == refused
    assert [letter.value for letter in letters] == [0] * refused


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_row_in_a_store_of_its_own_stays(name: str) -> None:
    good = 1 if name == "filter_not" else 2
    builder = cs.StreamsBuilder()
    left, right = (builder.table(side, cs.Consumed(key=TEXT, value=INT)) for side in SIDES)
    table = applied(left, name, right, CALLS[name], "own")
    table.group_by(lambda key, value: ("all", value), key=TEXT, value=INT).count(store="counts")
    with cs.TopologyTestDriver(builder.build(), processing_errors="skip") as driver:
        topics = {side: driver.create_input_topic(side, TEXT, INT) for side in SIDES}
        topics["right"].pipe_input("a", 0)
        for value, count in ((good, 1), (0, 1), (good, 1), (None, 0)):
            if value is None and name == "outer_join":
                topics["right"].pipe_input("a", None)
            topics["left"].pipe_input("a", value)
            own, counts = (driver.get_key_value_store(store) for store in ("own", "counts"))
            assert (own.get("a"), counts.get("all")) == (good if count else None, count)
