"""Columns that the C part makes of JSON are those that msgspec's objects make; or it gives up."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.serdes import native_part
from crossstream.serdes.contract import Readers
from crossstream.serdes.json import native
from crossstream.serdes.json.columns import Columns
from crossstream.serdes.json.reading import checked_columns, columns_of

pytestmark = pytest.mark.skipif(native._function() is None, reason="crossstream-native is not installed")


@dataclass
class Row:
    name: str
    count: int
    amount: float
    good: bool
    note: str | None = None


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    count: int = 7


NUMBERS = ("0", "-0", "-0.0", "1.0", "1e2", "1E400", "0.1", "-7", "123456789012345678", "1234567890123456789")
MORE_NUMBERS = (
    "0.30000000000000004",
    "9007199254740993",
    "1.7976931348623157",
    "5e-324",
    "00",
    "01",
    "1.",
    ".5",
    "+1",
    "NaN",
)
ODD = ('"\\u0041"', '"\\ud83d"', '"a\tb"', "[1, [2, {}]]", '{"a": {"b": null}}', "nul", "[1,]", '{"a" 1}', "")
texts = st.text(st.characters(codec="utf-8"), max_size=8).map(
    lambda text: json.dumps(text, ensure_ascii=False)
)
numbers = st.one_of(
    st.sampled_from((*NUMBERS, *MORE_NUMBERS)),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
)
cells = st.one_of(texts, numbers, st.sampled_from(("true", "false", "null", *ODD)))
LIKELY = {
    "name": texts,
    "count": st.integers(-99, 99).map(str),
    "amount": numbers,
    "good": st.sampled_from(("true", "false")),
}
SPACE = st.sampled_from(("", "", "", " ", "\n\t"))


@st.composite
def objects(draw: Any) -> bytes:
    names = list(LIKELY) if draw(st.booleans()) else draw(st.permutations(list(LIKELY)))
    members = [(f'"{name}"', draw(LIKELY[name])) for name in names]
    for _ in range(draw(st.integers(0, 2))):
        member = draw(st.sampled_from(('"note"', '"name"', '"other"', '"c\\u006funt"', '"ü"'))), draw(cells)
        members.insert(draw(st.integers(0, len(members))), member)
    if draw(st.integers(0, 9)) == 0 and members:
        members.pop(draw(st.integers(0, len(members) - 1)))
    parts = [f"{draw(SPACE)}{name}{draw(SPACE)}:{draw(SPACE)}{value}{draw(SPACE)}" for name, value in members]
    row = (draw(SPACE) + "{" + ",".join(parts) + "}" + draw(SPACE)).encode()
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(row)))
        row = row[:place] + draw(st.binary(max_size=2)) + row[place + draw(st.integers(0, 2)) :]
    return row


def ways(kind: Any) -> Iterator[Columns]:
    yield columns_of(kind, None)
    yield columns_of(kind, frozenset({"name"}))
    yield checked_columns(kind, frozenset({"count"}), Readers(callables=False, fields=frozenset({"name"})))
    yield checked_columns(kind, frozenset({"name"}), Readers(callables=True, fields=None))


WAYS = [*ways(Row), *ways(Closed)]


@given(rows=st.lists(st.none() | objects(), min_size=1, max_size=4))
@example(rows=[b"{}"])
@example(rows=[b'{"name":"\xed\xa0\x80","count":1,"amount":1,"good":true}'])
@example(rows=[b'{"name":"a","count":1,"amount":1,"good":true} {}'])
@settings(max_examples=300)
def test_it_reads_what_msgspec_reads_or_gives_up(rows: list[bytes | None]) -> None:
    data = pa.array([b"before", *rows, b"{}"], pa.large_binary())[1:-1]
    for way in WAYS:
        assert way.native is not None
        found = way.native.decoded(data)
        if found is not None:
            expected = way._replace(native=None).decoded(data, "json")
            assert found.dtype == expected.dtype
            assert found.equals(expected, null_equal=True)


@pytest.mark.parametrize(
    "text", [*NUMBERS, *MORE_NUMBERS, *(repr(math.pi * 10**power) for power in range(-9, 9))]
)
def test_a_number_is_the_same_to_its_last_bit(text: str) -> None:
    data = pa.array([f'{{"amount":{text}}}'.encode()] * 2, pa.large_binary())
    columns = serdes_columns({"amount": pl.Float64})
    found = columns.native.decoded(data)
    if found is not None:
        expected = columns._replace(native=None).decoded(data, "json")
        assert [one["amount"].hex() for one in found] == [one["amount"].hex() for one in expected]


def serdes_columns(schema: dict[str, Any]) -> Any:
    from crossstream.serdes.json.plain import _schema_columns

    return _schema_columns(pl.Struct(schema), None)


def test_ordinary_rows_are_not_given_up() -> None:
    rows = [b'{"name":"\xc3\xbc","count":-7,"amount":12.50,"good":true,"more":[1,{"a":"b"}]}', None]
    found = columns_of(Row, None).native.decoded(pa.array(rows, pa.large_binary()))  # type: ignore[union-attr]
    assert found is not None
    assert found.to_list() == [{"name": "ü", "count": -7, "amount": 12.5, "good": True, "note": None}, None]


@pytest.mark.parametrize(
    "kind",
    [
        list[str],
        Annotated[int, msgspec.Meta(ge=0)],
        msgspec.defstruct("Limited", [("n", Annotated[int, msgspec.Meta(ge=0)])]),
        msgspec.defstruct("Tagged", [("n", int)], tag="a"),
        msgspec.defstruct("Nested", [("rows", list[int])]),
    ],
)
def test_other_types_are_left_to_msgspec(kind: Any) -> None:
    assert columns_of(kind, None).native is None


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pa.array([b'{"name":"a","count":1}'], pa.large_binary())
    columns = columns_of(Closed, None).native
    assert columns is not None
    assert columns.decoded(data) is not None
    monkeypatch.setenv("CROSSSTREAM_NATIVE", "off")
    assert columns.decoded(data) is None
    assert serdes.json(Closed).decode_series(data).to_list() == [{"name": "a", "count": 1}]


def test_a_version_that_does_not_fit_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory may be laid out in another way."""
    monkeypatch.setattr(native_part, "INTERFACE", native_part.INTERFACE + 1)
    native_part.load.cache_clear()
    try:
        assert native._function() is None
    finally:
        monkeypatch.undo()
        native_part.load.cache_clear()
    assert native._function() is not None
