"""The JSON of columns: the same bytes for few rows and for many, and none for times that Python does not have."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes.json.columns import beyond_the_calendar
from tests.serdes.rows import unhurried

JSON = serdes.json()
NOON = dt.datetime(2024, 5, 1, 12)

whens = st.none() | st.datetimes() | st.datetimes().map(lambda when: when.replace(microsecond=500_000))
finite = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = {
    pl.Float64: st.none() | finite | st.sampled_from([1e16, -1e16, 1e15, 1e-7]),
    pl.Float32: st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
    pl.Datetime("us"): whens,
    pl.Datetime("ms"): whens,
    pl.Datetime("us", "UTC"): whens,
    pl.Date: st.none() | st.dates(),
    pl.Time: st.none() | st.times(),
    pl.Duration("us"): st.none() | st.timedeltas(dt.timedelta(-(10**5)), dt.timedelta(10**5)),
    pl.Decimal(38, 18): st.none() | st.decimals(-10, 10, places=9),
    pl.Decimal(20, 9): st.none() | st.decimals(-10, 10, places=9),
    pl.List(pl.Decimal(20, 9)): st.none() | st.lists(st.none() | st.decimals(-1, 1, places=9), max_size=2),
    pl.List(pl.Float64): st.none() | st.lists(st.none() | finite, max_size=2),
    pl.String: st.none() | st.text(),
    pl.Binary: st.none() | st.binary(),
}


@unhurried
@given(
    st.lists(st.sampled_from(list(TEXTS)), min_size=1, max_size=4).flatmap(
        lambda kinds: st.tuples(
            st.just(kinds), st.lists(st.tuples(*[TEXTS[kind] for kind in kinds]), min_size=1, max_size=5)
        )
    )
)
@example(([pl.Float64], [(1e16,)]))
@example(([pl.Datetime("us")], [(NOON.replace(microsecond=500_000),)]))
def test_many_rows_are_written_as_few_are(given_: tuple[list[Any], list[tuple[Any, ...]]]) -> None:
    """Keys are compared by their bytes."""
    kinds, rows = given_
    columns = {f"f{at}": pl.Series([row[at] for row in rows], dtype=kind) for at, kind in enumerate(kinds)}
    series = pl.DataFrame(columns).to_struct()
    one_by_one = [
        row for at in range(len(rows)) for row in JSON.encode_series(series[at : at + 1]).to_pylist()
    ]
    assert JSON.encode_series(pl.concat([series] * 65)).to_pylist() == one_by_one * 65


FAR = pl.Series([-62_135_596_800_000_001, 253_402_300_800_000_000, 0, None]).cast(pl.Datetime("us", "UTC"))


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize(
    "make", [lambda far: far, lambda far: pl.concat_list(far), lambda far: pl.struct(far)]
)
def test_times_that_python_does_not_have(copies: int, make: Any) -> None:
    series = pl.concat(
        [pl.DataFrame({"far": FAR}).select(pl.struct(when=make(pl.col("far")))).to_series()] * copies
    )
    with pytest.raises(SerdeError, match="before the year 1 or after 9999") as caught:
        JSON.encode_series(series)
    assert caught.value.code == "CS-403"
    assert beyond_the_calendar(series)
    assert [beyond_the_calendar(series[row : row + 1]) for row in range(4)] == [True, True, False, False]
    assert len(JSON.encode_series(series[2:4])) == 2


EXACT = pl.Decimal(20, 9)
SCHEMAS: dict[str, tuple[Any, Any]] = {
    "alone": ({"d": EXACT}, lambda d: {"d": d}),
    "beside a duration": (
        {"d": EXACT, "took": pl.Duration("us")},
        lambda d: {"d": d, "took": dt.timedelta(1)},
    ),
    "in a list": ({"d": pl.List(EXACT)}, lambda d: {"d": [None, d]}),
    "in lists of objects": (
        {"d": pl.List(pl.Struct({"x": pl.List(EXACT), "s": pl.String}))},
        lambda d: {"d": [{"x": [d, d], "s": "a"}, None, {"x": None, "s": "3E-7"}]},
    ),
    "in an object": ({"o": pl.Struct({"d": EXACT})}, lambda d: {"o": {"d": d}}),
}


@pytest.mark.parametrize("copies", [1, 10, 50])
@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("written", ["0", "-0.0", "0E-9", "1E-7", "1E+3", "-0.0000001", "1.5", "12345678901"])
def test_decimals_have_one_text(name: str, written: str, copies: int) -> None:
    """Plainly, as objects and as columns."""
    schema, make = SCHEMAS[name]
    serde, values = serdes.json(schema), [make(Decimal(written)), None] * copies
    rows = serde.encode_objects(values)
    assert serde.encode_series(serde.decode_series(rows)).equals(rows)
    assert serde.encode_series(pl.Series(values, dtype=serde.dtype)).equals(rows)
    assert serde.serialize(values[0]) == rows[0].as_py()
    text = rows[0].as_py().replace(b"3E-7", b"")
    assert b"E" not in text
    assert b'"-0.000000000"' not in text


@pytest.mark.parametrize("copies", [1, 50])
def test_decimals_in_objects_are_written_as_python_writes_them(copies: int) -> None:
    values = [{"d": Decimal("1E+3"), "in": [Decimal("1.50")]}, None] * copies
    assert JSON.encode_objects(values).to_pylist() == [b'{"d":"1E+3","in":["1.50"]}', None] * copies
    column = pl.DataFrame({"d": [Decimal(1000)] * copies}).to_struct()
    assert JSON.encode_series(column).to_pylist() == [b'{"d":"1000"}'] * copies


@dataclasses.dataclass
class Rate:
    rate: Decimal
    more: list[Decimal] = dataclasses.field(default_factory=list)


class Tagged(msgspec.Struct, tag="rate"):
    rate: Decimal


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("19.5", "19.5"),
        ("-0.25", "-0.25"),
        ("100", "100"),
        ("0", "0"),
    ],
)
def test_decimals_without_declared_scale(written: str, text: str, copies: int) -> None:
    """A column of them has a scale that nobody asked for."""
    value = Decimal(written)
    for serde, one, expected in (
        (serdes.json(Decimal), value, f'"{text}"'),
        (serdes.json(Rate), Rate(value, [value]), f'{{"rate":"{text}","more":["{text}"]}}'),
        (serdes.json(Tagged), Tagged(value), f'{{"type":"rate","rate":"{text}"}}'),
    ):
        rows = serde.encode_objects([one] * copies)
        assert rows.to_pylist() == [expected.encode()] * copies
        assert serde.encode_series(serde.decode_series(rows)).equals(rows)
        assert serde.serialize(one) == expected.encode()


@pytest.mark.parametrize("rows", [1, 100])
def test_columns_of_decimals_without_declared_scale_as_untyped_json(rows: int) -> None:
    """As of the declared type from which they come; where a scale was declared, the zeros stay."""
    rates = serdes.json(Rate)
    read = rates.decode_series(rates.encode_objects([Rate(Decimal("19.5"), [Decimal(2)]), None] * rows))
    assert JSON.encode_series(read).to_pylist() == [b'{"rate":"19.5","more":["2"]}', None] * rows
    assert JSON.encode_series(read.struct.field("rate")).to_pylist() == [b'"19.5"', None] * rows
    scaled = read.struct.field("rate").cast(pl.Decimal(10, 2))
    assert JSON.encode_series(scaled).to_pylist() == [b'"19.50"', None] * rows
    schema = serdes.json({"rate": pl.Decimal(38, 18)})
    written = schema.encode_series(read.struct.unnest().select("rate").to_struct())
    assert written[0].as_py() == b'{"rate":"19.500000000000000000"}'


class Short(msgspec.Struct, frozen=True, omit_defaults=True):
    id: int
    region: str = "euro"


@pytest.mark.parametrize("copies", [1, 50])
def test_columns_are_written_with_defaults(copies: int) -> None:
    """Also of a struct with ``omit_defaults``, whose objects are written without the very default."""
    serde = serdes.json(Short)
    made = serde.encode_objects([Short(1), Short(2, "asia"), None] * copies)
    assert made.to_pylist() == [b'{"id":1}', b'{"id":2,"region":"asia"}', None] * copies
    written = serde.encode_series(serde.decode_series(made))
    assert written[0].as_py() == b'{"id":1,"region":"euro"}'
    assert serde.decode_objects(written) == serde.decode_objects(made)
