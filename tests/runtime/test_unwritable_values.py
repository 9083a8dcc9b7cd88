"""A record that cannot be written on its way to another key is reported as any other: once, under its own key.

Where such records are skipped, the others have the results that they would have without them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.partitioning import murmur2_partitions

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()
USE = cs.Consumed(key=TEXT, value=JSON)
OUT = cs.Produced(key=JSON, value=JSON)
Topology = Callable[[Any], Any]
Rows = Sequence[tuple[str, str, Any]]
"""Topic, key and value of records."""
WRONG: dict[str, tuple[Any, str]] = {
    "a date, without a serde": (datetime.date(2026, 1, 1), "CS-410"),
    "a set, without a serde": ({1}, "CS-410"),
    "not JSON": (float("nan"), "CS-403"),
}


def orders(builder: cs.StreamsBuilder, wrong: Any) -> cs.KTable:
    """Rows that are made of the records; bad ones have something wrong in them."""
    rows = builder.table("orders", USE)
    return rows.map_values(lambda order: {**order, "at": wrong} if "bad" in order else order)


def pair(left: Any, right: Any) -> Any:
    return [left and left["n"], right and right["n"]]


def as_json(left_or_right: Any) -> Any:
    """A key as JSON."""
    return (
        [left_or_right.left, left_or_right.right]
        if isinstance(left_or_right, cs.LeftOrRight)
        else left_or_right
    )


def by_reference(method: str, kind: str = "table", **named: Any) -> Callable[[Any], Topology]:
    def make(wrong: Any) -> Topology:
        def build(builder: cs.StreamsBuilder) -> cs.KTable:
            items = getattr(builder, kind)("items", USE)
            return getattr(orders(builder, wrong), method)(items, pair, foreign_key="ref", **named)

        return build

    return make


def many(method: str) -> Callable[[Any], Topology]:
    def make(wrong: Any) -> Topology:
        def build(builder: cs.StreamsBuilder) -> cs.KTable:
            items = builder.table("items", USE)
            partners = {"item": (items, "ref"), "gift": (items, "gift")}
            return getattr(orders(builder, wrong), method)(
                partners, lambda left, rows: [left, *rows.values()]
            )

        return build

    return make


JOINS: dict[str, Callable[[Any], Topology]] = {
    **{name: by_reference(name) for name in ("join", "left_join")},
    **{name: by_reference(name, keyed_by=cs.LeftOrRight) for name in ("right_join", "outer_join")},
    **{f"{name}, global": by_reference(name, "global_table") for name in ("join", "left_join")},
    **{name: many(name) for name in ("join_many", "left_join_many")},
}
BAD = {"n": 9, "ref": "b", "gift": "b", "bad": 1}
ITEMS: Rows = [("items", "a", {"n": 1}), ("items", "b", {"n": 2})]
ROWS: Rows = [
    *ITEMS,
    ("orders", "other", {"n": 10, "ref": "a", "gift": "a"}),
    ("orders", "new", BAD),
    ("orders", "moved", {"n": 20, "ref": "a", "gift": "a"}),
    ("orders", "moved", BAD),
    ("items", "a", {"n": 3}),
    ("items", "b", {"n": 4}),
    ("orders", "moved", {"n": 21, "ref": "b", "gift": "a"}),
    ("items", "a", {"n": 5}),
    ("items", "b", {"n": 6}),
    ("orders", "moved", {**BAD, "ref": None, "gift": None}),
    ("items", "b", {"n": 7}),
    ("orders", "moved", None),
    ("items", "a", {"n": 8}),
]  # fmt: skip


def run(make: Topology, rows: Rows, partitions: int, policy: Any = "fail") -> tuple[list[Any], list[Any]]:
    """The results, in order for each key, and the dead letters in order of the records."""
    builder = cs.StreamsBuilder()
    joined = make(builder).to_stream().map(lambda key, value: (as_json(key), value))
    joined.to("out", OUT)
    with cs.TopologyTestDriver(builder.build(), partitions, processing_errors=policy) as driver:
        topics = {topic: driver.create_input_topic(topic, TEXT, JSON) for topic in ("items", "orders")}
        for number, (topic, key, value) in enumerate(rows):
            topics[topic].pipe_input(key, value, timestamp=number)
        found = driver.create_output_topic("out", JSON, JSON).read_records()
        dead = driver.create_output_topic("dead", BYTES, BYTES).read_records()
        results = [(one.key, one.value) for one in found]
        return sorted(results, key=lambda one: repr(one[0])), dead


def position(rows: Rows, number: int, partitions: int) -> list[int]:
    """Partition and offset of a record of ``orders``."""
    places = murmur2_partitions([key.encode() for _, key, _ in rows], partitions)
    before = [row for row in range(number) if rows[row][0] == "orders" and places[row] == places[number]]
    return [places[number], len(before)]


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("join", JOINS)
def test_a_left_row_that_cannot_be_written_is_a_dead_letter_under_its_own_key(
    join: str, partitions: int, kind: str
) -> None:
    wrong, code = WRONG[kind]
    _, dead = run(JOINS[join](wrong), ROWS, partitions, cs.DeadLetter("dead"))
    assert [letter.key for letter in dead] == [b"new", b"moved", b"moved"]
    for letter in dead:
        headers = dict(letter.headers)
        assert code.encode() in headers["crossstream.reason"]
        assert headers["crossstream.topic"] == b"orders"
        place = [int(headers[f"crossstream.{name}"]) for name in ("partition", "offset")]
        assert place == position(ROWS, letter.timestamp, partitions)


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("join", JOINS)
def test_a_left_row_that_cannot_be_written_stops_with_its_own_key(join: str, kind: str) -> None:
    wrong, code = WRONG[kind]
    with pytest.raises(cs.CrossStreamError) as caught:
        run(JOINS[join](wrong), ROWS, 1)
    assert caught.value.code == code
    assert {name: caught.value.where[name] for name in ("topic", "offset", "key")} == {
        "topic": "orders", "offset": 1, "key": "new"
    }  # fmt: skip


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("join", JOINS)
def test_skipped_left_rows_leave_the_results_of_the_others(join: str, partitions: int) -> None:
    make = JOINS[join](datetime.date(2026, 1, 1))
    good = [row for row in ROWS if row[2] is None or "bad" not in row[2]]
    assert run(make, ROWS, partitions, "skip")[0] == run(make, good, partitions)[0]


DATE = datetime.date(2026, 1, 1)
HOUR = cs.TimeWindows(size="1 hour", grace="0 ms")
ELSEWHERE: dict[str, Topology] = {
    "a value, by identity": lambda records: made(records).deduplicate("1 hour", key="n"),
    "an identity": lambda records: records.deduplicate("1 hour", key=lambda row: DATE if "bad" in row else row["n"]),
    "a value, in windows": lambda records: windowed(made(records)).reduce(lambda one, other: other),
    "a result, in windows": lambda records: windowed(records).aggregate(
        dict, lambda whole, row: {**row, "at": DATE} if "bad" in row else row
    ),
}  # fmt: skip
"""What goes to another state partition, or is kept, under another key than that of the record."""


def made(records: cs.KStream) -> cs.KStream:
    return records.map_values(lambda row: {**row, "at": DATE} if "bad" in row else row)


def windowed(records: cs.KStream) -> Any:
    return records.group_by_key(cs.Grouped(key=TEXT)).windowed_by(HOUR)


@pytest.mark.parametrize("what", ELSEWHERE)
def test_what_cannot_be_written_beside_another_key_is_a_dead_letter_under_that_of_the_record(
    what: str,
) -> None:
    def topology() -> cs.Topology:
        builder = cs.StreamsBuilder()
        results = ELSEWHERE[what](builder.stream("in", USE))
        stream = results.to_stream() if isinstance(results, cs.KTable) else results
        stream.map(lambda key, value: (None, value["n"])).to("out", OUT)
        return builder.build()

    records = [("first", {"n": 1}), ("second", {"n": 2, "bad": 1}), ("third", {"n": 3})]
    with pytest.raises(cs.CrossStreamError, match="CS-410") as caught:
        taken(topology(), records, "fail")
    assert [caught.value.where[name] for name in ("topic", "offset", "key")] == ["in", 1, "second"]
    values, dead = taken(topology(), records, cs.DeadLetter("dead"))
    assert values == [1, 3]
    (letter,) = dead
    headers = dict(letter.headers)
    assert (letter.key, headers["crossstream.topic"], headers["crossstream.offset"]) == (
        b"second",
        b"in",
        b"1",
    )


def taken(
    topology: cs.Topology, records: Sequence[tuple[str, Any]], policy: Any
) -> tuple[list[Any], list[Any]]:
    """The values that come out, and the dead letters."""
    with cs.TopologyTestDriver(topology, processing_errors=policy) as driver:
        driver.create_input_topic("in", TEXT, JSON).pipe_records(records)
        dead = driver.create_output_topic("dead", BYTES, BYTES).read_records()
        return driver.create_output_topic("out", JSON, JSON).read_values(), dead
