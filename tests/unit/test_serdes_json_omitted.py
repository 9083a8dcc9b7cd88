"""Structs with ``omit_defaults``: one text for one object, by columns and by objects, few rows and many."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from decimal import Decimal
from typing import Any, Generic, TypeVar

import msgspec
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.serdes.json_omitted_text import text_without_defaults

COPIES = pytest.mark.parametrize("copies", [1, 50])
"""Of two rows, or some more: few, and so many that they are written by columns."""

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.timezone.utc)
T = TypeVar("T")


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Point(msgspec.Struct, frozen=True):
    x: int
    y: float = 0.0


class Columnar(msgspec.Struct, omit_defaults=True, rename="camel", frozen=True):
    first_id: int
    region: str = "euro"
    rate: float = 0.0
    minus: float = -0.0
    count: int = 1000
    whole: bool = True
    note: str | None = None
    ratio: float | None = 0.5
    between: str = msgspec.field(default="x}", name="{b,")
    price: Decimal = Decimal("1.5")
    zeros: Decimal = Decimal("1.50")
    day: dt.date = dt.date(2024, 5, 1)
    at: dt.datetime = NOON
    abroad: dt.datetime = NOON.astimezone(dt.timezone(dt.timedelta(hours=2)))
    level: Level = Level.LOW
    raw: bytes = b"\x00"
    tags: list[str] = []
    pair: tuple[int, ...] = ()
    maybe: list[int] | None = None
    point: Point | None = None


class Flat(Columnar, omit_defaults=True, rename="camel", frozen=True):
    """With a default that only objects tell."""

    last: Point = Point(0)


VALUES: dict[str, list[Any]] = {
    "region": ["euro", "", 'as"ia}', "{", ","],
    "rate": [0.0, -0.0, 1.5, 1e17],
    "minus": [0.0, -0.0],
    "count": [1000, 0],
    "whole": [True, False],
    "note": [None, "", "n"],
    "ratio": [None, 0.5, 2.0],
    "between": ["x}", "{}"],
    "price": [Decimal("1.5"), Decimal("0.25")],
    "zeros": [Decimal("1.5"), Decimal("0.25")],
    "day": [dt.date(2024, 5, 1), dt.date(2024, 5, 2)],
    "at": [NOON, NOON + dt.timedelta(microseconds=5)],
    "abroad": [NOON, NOON + dt.timedelta(days=5)],
    "level": list(Level),
    "raw": [b"\x00", b""],
    "tags": [[], ["a"], ["}", "{"]],
    "pair": [(), (1, 2)],
    "maybe": [None, [], [1]],
    "point": [None, Point(0), Point(1, -0.0)],
    "last": [Point(0), Point(0, -0.0), Point(3)],
}


def objects_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Objects whose values are often those of the defaults."""
    values = {name: st.sampled_from(some) for name, some in VALUES.items() if name in kind.__struct_fields__}
    return st.builds(kind, st.integers(-3, 3), **values)


def expected(value: Any) -> bytes | None:
    """The obvious way to the text of a flat struct."""
    if value is None:
        return None
    parts = {
        field.encode_name: item
        for field in msgspec.structs.fields(value)
        if ((item := getattr(value, field.name)) != [] or field.default_factory is not list)
        and (item != field.default or repr(item) != repr(field.default))
    }
    return msgspec.json.encode(parts)


def read_whole(kind: Any, values: list[Any]) -> tuple[list[Any], pl.Series]:
    """The objects and the column of texts in which all the defaults are."""
    rows = [None if one is None else msgspec.json.encode(whole(one)) for one in values]
    data = pa.array(rows, pa.large_binary())
    return serdes.json(kind).decode_objects(data), serdes.json(kind).decode_series(data)


def whole(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: whole(getattr(value, field.name)) for field in fields}
    return list(map(whole, value)) if isinstance(value, list) else value


@COPIES
@pytest.mark.parametrize("kind", [Flat, Columnar])
@settings(max_examples=15)
@given(st.data())
def test_objects_and_columns_have_the_obvious_text(kind: type[Any], copies: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | objects_of(kind), min_size=2, max_size=6)) * copies
    texts = list(map(expected, values))
    objects, column = read_whole(kind, values)
    serde = serdes.json(kind)
    assert serde.encode_objects(values).to_pylist() == texts
    assert serde.encode_objects(objects).to_pylist() == texts
    assert serde.encode_series(column).to_pylist() == texts


def test_flat_columns_are_written_without_objects() -> None:
    for kind, by_columns in ((Columnar, True), (Flat, False)):
        column = read_whole(kind, [kind(1)] * 100)[1]
        assert (text_without_defaults(column, kind, "json") is not None) == by_columns


class Every(msgspec.Struct, omit_defaults=True):
    region: str = "euro"
    rate: float | None = None


@COPIES
def test_a_row_of_nothing_but_defaults(copies: int) -> None:
    column = read_whole(Every, [Every(), None] * copies)[1]
    assert serdes.json(Every).encode_series(column).to_pylist() == [b"{}", None] * copies
    mixed = read_whole(Every, [Every(), Every("asia", 2.0)] * copies)[1]
    texts = [b"{}", b'{"region":"asia","rate":2.0}']
    assert serdes.json(Every).encode_series(mixed).to_pylist() == texts * copies


class OnlyMade(msgspec.Struct, omit_defaults=True):
    id: int
    tags: list[str] = []


class Inside(msgspec.Struct):
    flat: Flat
    flats: list[Columnar]
    made: OnlyMade | None


SEVEN = Flat(7, zeros=Decimal("1.5"), abroad=NOON)


class Outside(msgspec.Struct, omit_defaults=True):
    inside: Inside
    flat: Flat = SEVEN
    made: OnlyMade | None = None


class Tagged(msgspec.Struct, omit_defaults=True, tag=True):
    id: int
    region: str = "euro"


class Box(msgspec.Struct, Generic[T], omit_defaults=True):
    item: T
    region: str = "euro"


def nested() -> st.SearchStrategy[Any]:
    made = st.none() | st.builds(OnlyMade, st.integers(0, 1), st.sampled_from([[], ["a"]]))
    inside = st.builds(Inside, objects_of(Flat), st.lists(objects_of(Columnar), max_size=2), made)
    return st.builds(Outside, inside, st.just(SEVEN) | objects_of(Flat), made)


def regional(kind: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, st.integers(0, 1), st.sampled_from(["euro", "asia"]))


@COPIES
@pytest.mark.parametrize(
    ("kind", "objects"),
    [
        (Outside, nested()),
        (Outside | None, nested()),
        (OnlyMade, st.builds(OnlyMade, st.integers(0, 1), st.sampled_from([[], ["a"]]))),
        (Box[int], regional(Box)),
        (Box[Flat], st.builds(Box, objects_of(Flat), st.sampled_from(["euro", "asia"]))),
    ],
)
@settings(max_examples=15)
@given(st.data())
def test_nested_structs_have_one_text(
    kind: Any, objects: st.SearchStrategy[Any], copies: int, data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.none() | objects, min_size=2, max_size=4)) * copies
    serde = serdes.json(kind)
    texts = [
        None if value is None else msgspec.json.encode(value) for value in values[: len(values) // copies]
    ]
    read, column = read_whole(kind, values)
    made = serde.encode_objects(read)
    assert serde.encode_series(column).equals(made)
    assert serde.encode_objects(serde.decode_objects(made)).equals(made)
    assert serde.encode_objects(values).equals(made)
    assert serde.decode_objects(made) == read
    assert all(
        len(mine or b"") <= len(text or b"") for mine, text in zip(made.to_pylist(), texts, strict=False)
    )


@COPIES
def test_a_tag_is_in_the_text_without_defaults(copies: int) -> None:
    texts = [b'{"type":"Tagged","id":1}', b'{"type":"Tagged","id":1,"region":"asia"}'] * copies
    serde = serdes.json(Tagged)
    assert (
        serde.encode_objects([Tagged(1, "".join(["eu", "ro"])), Tagged(1, "asia")] * copies).to_pylist()
        == texts
    )
    column = serde.decode_series(pa.array(texts, pa.large_binary()))
    assert serde.encode_series(column).to_pylist() == texts


@dataclasses.dataclass
class Limits:
    most: int = 9


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    region: str = "euro"


@dataclasses.dataclass(frozen=True)
class Parts:
    first: Part
    more: tuple[Part, ...]


class Owned(msgspec.Struct, frozen=True, omit_defaults=True):
    id: int
    limits: Limits = Limits()
    part: Part = Part()
    parts: list[Part] = []
    by_name: dict[str, Part] = {}
    both: Parts | None = None


@COPIES
def test_objects_that_are_written_stay_as_they_are(copies: int) -> None:
    """A default in them would be shared from then on: a change of it would be one of every object."""
    region = "".join(["eu", "ro"])
    limits, part, parts, by_name = Limits(), Part(region), [Part(region), Part("asia")], {"a": Part(region)}
    owned = Owned(1, limits, part, parts, by_name, Parts(part, (part,)))
    text = b'{"id":1,"parts":[{},{"region":"asia"}],"by_name":{"a":{}},"both":{"first":{},"more":[{}]}}'
    assert serdes.json(Owned).encode_objects([owned] * copies).to_pylist() == [text] * copies
    assert owned == Owned(1, Limits(), Part(), parts, by_name, Parts(part, (part,)))
    assert owned.limits is limits
    assert owned.part is part
    assert owned.parts is parts
    assert owned.by_name is by_name
    assert all(one.region is region for one in (part, parts[0], by_name["a"]))
