r"""Half of a surrogate pair in JSON, ``"\ud83d"``, as JavaScript writes an emoji that was cut: refused where read."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes.calls import find_invalid

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()
HALF, WHOLE = rb"\ud83d", rb"\ud83d\ude00"


class Mark(msgspec.Struct):
    by: str = ""
    tags: list[str] = []


@dataclasses.dataclass
class Event:
    n: int
    note: str | None = None
    mark: Mark | None = None
    marks: list[Mark] = dataclasses.field(default_factory=list)


SCHEMA = {
    "n": pl.Int64,
    "note": pl.String,
    "mark": pl.Struct({"by": pl.String, "tags": pl.List(pl.String)}),
    "marks": pl.List(pl.Struct({"by": pl.String, "cost": pl.Decimal(10, 2)})),
}
TYPES = {"dataclass": Event, "schema": SCHEMA}
ROWS = {
    "note": b'{"n":1,"note":"a%s b"}',
    "mark.by": b'{"n":1,"mark":{"by":"%s"}}',
    "mark.tags[]": b'{"n":1,"mark":{"tags":["x","%s"]}}',
    "marks[].by": b'{"n":1,"marks":[{"by":"%s"}]}',
    "undeclared": b'{"n":1,"other":{"%s":["%s"]}}',
}


def row_of(field: str, text: bytes) -> bytes:
    return ROWS[field].replace(b"%s", text)


def column(*rows: bytes) -> pa.LargeBinaryArray:
    return pa.array(rows, pa.large_binary())


@pytest.mark.parametrize(
    "half", [HALF, rb"\uDE00", rb"\ude00\ud83d", rb"\ud83d\ud83d\ude00", rb"\ud83d\\ude00", rb"\ud83dA"]
)
@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("field", [field for field in ROWS if field != "undeclared"])
def test_the_field_is_named_where_it_is_read(name: str, field: str, copies: int, half: bytes) -> None:
    serde: Any = serdes.json(TYPES[name])
    rows = [row_of(field, WHOLE), row_of(field, half)] * copies
    top = field.replace("[]", "").split(".")[0]
    for decode in (
        serde.decode_objects,
        serde.decode_series,
        lambda data: serde.decode_series(data, [top]),
        lambda data: serde.decode_checked(data, [top, "n"]),
        lambda data: serde.deserialize(data[1].as_py()),
    ):
        with pytest.raises(SerdeError) as caught:
            decode(column(*rows))
        assert caught.value.code == "CS-402"
        assert f"(half of a surrogate pair in field {field}, which is not valid Unicode)" in caught.value.what
    for way in ("objects", "series"):
        assert [row for row, _ in find_invalid(serde, column(*rows), way=way)] == [*range(1, 2 * copies, 2)]


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("field", ROWS)
def test_where_it_is_not_read_it_refuses_nothing(name: str, field: str, copies: int) -> None:
    serde: Any = serdes.json(TYPES[name])
    data = column(*[row_of(field, HALF), row_of(field, WHOLE)] * copies)
    for column_ in (serde.decode_series(data, ["n"]), serde.decode_checked(data, ["n"])):
        assert column_.struct.field("n").to_list() == [1] * 2 * copies
    assert serde.nulls(data) == [False] * 2 * copies
    if field == "undeclared":
        assert serde.decode_series(data).struct.field("n").to_list() == [1] * 2 * copies
        objects = serde.decode_objects(data)
        assert objects == objects[:1] * 2 * copies


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (rb'{"a":[{"note":"\ud83d"}]}', " in field a[].note"),
        (rb'"\ud83d"', ""),
        (rb'["x","\\ud83d","\ud83d"]', " in field []"),
        (b'{"a":{"\\ud83d":1}}', " in field a.\ufffd"),
        (b'{"a":{"\\ufffd":1,"\\ud83d":2}}', " in field a"),
    ],
)
def test_of_undeclared_json_everything_is_read(row: bytes, field: str) -> None:
    with pytest.raises(SerdeError) as caught:
        JSON.deserialize(row)
    assert f"(half of a surrogate pair{field}, which is not valid Unicode)" in caught.value.what
    assert [at for at, _ in find_invalid(JSON, column(*[b"{}"] * 30, row), way="objects")] == [30]


def test_in_a_set() -> None:
    serde = serdes.json(set[str])
    for row in (rb'["a","\ud83d"]', rb'["\ufffd","\ud83d"]', rb'["\ud83d","\ud83e"]'):
        with pytest.raises(SerdeError, match=r"half of a surrogate pair in field \[\]"):
            serde.deserialize(row)


def test_what_is_none() -> None:
    assert JSON.deserialize(rb'"\\ud83d \\\\ud83d \ud83d\ude00 \uD83D\uDE00"') == "\\ud83d \\\\ud83d 😀 😀"
    with pytest.raises(SerdeError, match="truncated"):
        JSON.deserialize(rb'{"a":"\ud83')
    with pytest.raises(SerdeError, match="Expected `int`"):
        serdes.json(Event).deserialize(rb'{"n":"\ud83d"}')


RECORDS = [rb'{"n":1,"note":"\ud83d"}', b'{"n":2,"note":"x"}', b'{"n":"3"}']


def passed(function: Any, every: int, serde: Any, policy: Any = "skip") -> tuple[list[bytes], Any]:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=serde))
    (stream if function is None else stream.filter(function)).to("out")
    with cs.TopologyTestDriver(builder.build(), commit_every=every, deserialization_errors=policy) as driver:
        driver.create_input_topic("in", TEXT, BYTES).pipe_records([("k", one) for one in RECORDS])
        driver.commit()
        return driver.create_output_topic("out", TEXT, BYTES).read_values(), driver.metrics()["dropped"]


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(
    ("function", "serde", "kept"),
    [
        (None, JSON, [0, 1, 2]),
        (lambda value: True, JSON, [1, 2]),
        (pl.col("n") > 0, serdes.json(Event), [0, 1]),
        (pl.col("n") > 0, serdes.json(SCHEMA), [0, 1]),
        (pl.col("note").is_not_null(), serdes.json(Event), [1]),
        (lambda event: True, serdes.json(Event), [1]),
    ],
    ids=["nobody", "callable", "expression", "expression of a schema", "expression of it", "typed callable"],
)
def test_a_record_passes_as_it_was_written(function: Any, serde: Any, kept: list[int], every: int) -> None:
    values, dropped = passed(function, every, serde)
    assert values == [RECORDS[at] for at in kept]
    assert dropped == ({"in: undecodable": 3 - len(kept)} if len(kept) < 3 else {})


def test_a_function_that_makes_one() -> None:
    with pytest.raises(SerdeError, match="surrogates not allowed") as caught:
        JSON.serialize({"note": chr(0xD83D)})
    assert caught.value.code == "CS-403"
