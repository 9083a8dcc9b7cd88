"""A callable may change what it is given: every call gets objects of its own, in any batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.columns.values import Values
from crossstream.serdes import Serde

TEXT, JSON = serdes.string(), serdes.json()
RESULTS = cs.Produced(key=TEXT, value=JSON)


@dataclass
class Row:
    n: int
    customer: str | None = None
    seen: int | None = None


TYPED = serdes.json(Row)


def changing(left: Any, right: Any) -> Any:
    """Writes into both sides, and gives away what it was given."""
    if isinstance(left, dict):
        right["n"], left["n"] = right["n"] * 100 + left["n"], right["n"]
        return [left, right]
    right.n, left.n = right.n * 100 + left.n, right.n
    return [left, right]


Build = Callable[[cs.StreamsBuilder, cs.Consumed], cs.KStream]


def stream_table(builder: cs.StreamsBuilder, rows: cs.Consumed) -> cs.KStream:
    return builder.stream("left", rows).join(builder.table("right", rows), changing)


def stream_global(builder: cs.StreamsBuilder, rows: cs.Consumed) -> cs.KStream:
    return builder.stream("left", rows).join(
        builder.global_table("right", rows), changing, key_selector=lambda row: "a"
    )


def stream_stream(builder: cs.StreamsBuilder, rows: cs.Consumed) -> cs.KStream:
    windows = cs.JoinWindows.of("1 minute")
    return builder.stream("left", rows).join(builder.stream("right", rows), changing, windows)


def table_global(builder: cs.StreamsBuilder, rows: cs.Consumed) -> cs.KStream:
    right = builder.global_table("right", rows)
    return builder.table("left", rows).join(right, changing, foreign_key=lambda row: "a").to_stream()


def foreign_key(builder: cs.StreamsBuilder, rows: cs.Consumed) -> cs.KStream:
    left, right = builder.table("left", rows), builder.table("right", rows)
    return left.join(right, changing, foreign_key=lambda row: "a").to_stream()


def join_many(builder: cs.StreamsBuilder, rows: cs.Consumed) -> cs.KStream:
    left, right = builder.table("left", rows), builder.table("right", rows)
    pairs = {"one": (right, lambda row: "a"), "two": (right, lambda row: "a")}
    return left.join_many(pairs, lambda row, found: changing(row, found["two"])).to_stream()


def two_joins_of_one_stream(builder: cs.StreamsBuilder, rows: cs.Consumed) -> cs.KStream:
    left, right = builder.stream("left", rows), builder.table("right", rows)
    return left.join(right, changing).merge(left.join(right, changing))


@pytest.mark.parametrize(
    "build",
    [
        stream_table,
        stream_global,
        stream_stream,
        table_global,
        foreign_key,
        join_many,
        two_joins_of_one_stream,
    ],
)
@pytest.mark.parametrize("serde", [JSON, TYPED], ids=["untyped", "typed"])
def test_a_joiner_may_write_into_its_arguments(build: Build, serde: Serde) -> None:
    together, one_by_one = (results(build, serde, every) for every in (100, 1))
    assert together == one_by_one
    assert {n for _, (left, right) in together for n in (left["n"], right["n"])} >= {7, 701, 702, 703}


def results(build: Build, serde: Serde, every: int) -> list[tuple[str, Any]]:
    """Three left rows, or records of one key where that is what they are joined by, meet one right row."""
    builder = cs.StreamsBuilder()
    build(builder, cs.Consumed(key=TEXT, value=serde)).to("out", RESULTS)
    keys = "abc" if build in (table_global, foreign_key, join_many) else "aaa"
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        driver.create_input_topic("right", TEXT, JSON).pipe_input("a", {"n": 7}, 0)
        driver.commit()
        left = driver.create_input_topic("left", TEXT, JSON)
        left.pipe_records([cs.TestRecord(key, {"n": n}, n) for n, key in enumerate(keys, 1)])
        driver.commit()
        out = driver.create_output_topic("out", TEXT, JSON).read_records()
    return sorted(((record.key, record.value) for record in out), key=repr)


@pytest.mark.parametrize("looked_at", [False, True], ids=["not seen yet", "looked at before"])
def test_an_object_is_given_away_once(looked_at: bool) -> None:
    values = Values(JSON, wire=JSON.encode_objects([{"a": [1]}, {"a": [2]}, None]))
    known = values.objects() if looked_at else None
    parts = [values.take(np.array(rows)) for rows in ([0, 1, 0, -1, 2], [1, 0], [0, 0, 0, 0])]
    found = [part.own_objects() for part in parts]
    found += [values.own_objects(), parts[1].own_objects()]
    assert found[:3] == [
        [{"a": [1]}, {"a": [2]}, {"a": [1]}, None, None],
        [{"a": [2]}, {"a": [1]}],
        [{"a": [1]}] * 4,
    ]
    assert found[3:] == [[{"a": [1]}, {"a": [2]}, None], [{"a": [2]}, {"a": [1]}]]
    lists = [row["a"] for rows in found for row in rows if row]
    assert len(set(map(id, lists))) == len(lists)
    assert known is None or lists[0] is known[0]["a"], "the first to ask gets what there is"
    assert values.objects() is values.objects()


def test_an_object_that_a_function_made_is_given_to_all_who_ask() -> None:
    """As in Kafka Streams; it need not be of a kind that its bytes are decoded to."""
    made = Values(objects=[{1, 2}])
    made.wire(JSON)
    picked = made.take(np.zeros(2, np.int64)).own_objects()
    assert picked[0] is picked[1] is made.objects()[0]


def test_text_is_decoded_once_however_often_it_is_picked() -> None:
    values = Values(TEXT, wire=TEXT.encode_objects(["a longer text"]))
    found = values.take(np.zeros(3, np.int64)).own_objects()
    assert found[0] is found[1] is found[2]


class Flat(msgspec.Struct):
    n: int
    name: str | None


@pytest.mark.parametrize("serde", [JSON, serdes.json(Flat)], ids=["dict", "struct"])
@pytest.mark.parametrize("looked_at", [False, True], ids=["not seen yet", "looked at before"])
def test_a_flat_object_that_many_ask_for_is_copied(serde: Serde, looked_at: bool) -> None:
    wire = JSON.encode_objects([{"n": 1, "name": "a"}, {"n": 2, "name": None}, None])
    values = Values(serde, wire=wire)
    known = values.objects() if looked_at else []
    picked = values.take(np.array([0, 1, 0, -1, 2, 0, 1]))
    expected = [msgspec.to_builtins(one) for one in picked.objects()]
    for _ in range(3):
        found = picked.own_objects()
        assert [msgspec.to_builtins(one) for one in found] == expected
        assert len({id(one) for one in found if one is not None}) == 5
        for one in found:  # as a joiner may
            if isinstance(one, dict):
                one["n"] = "changed"
            elif one is not None:
                one.n = -1
    assert looked_at is bool(known)


def test_objects_of_empty_dicts_are_copied_too() -> None:
    found = Values(JSON, wire=JSON.encode_objects([{}])).take(np.zeros(3, np.int64)).own_objects()
    assert len(set(map(id, found))) == 3


def test_rows_of_picked_rows_are_those_rows() -> None:
    """Wherever their bytes are: with those they were picked of, or gathered already."""
    values = Values(TEXT, wire=TEXT.encode_objects(list("abcde")))
    for is_gathered in (False, True):
        picked = values.take(np.array([4, -1, 2, 0]))
        if is_gathered:
            picked.wire()
        again = picked.take(np.array([3, 1, 0, -1, 0]))
        assert again.objects() == ["a", None, "e", None, "e"]
        assert again.wire().to_pylist() == [b"a", None, b"e", None, b"e"]
        assert picked.as_wire(TEXT).take(np.array([2])).wire().to_pylist() == [b"c"]
