"""NaN and infinities, for which JSON has no number: refused where they are, never written as null."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import msgspec
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.columns.evaluate import encoded
from crossstream.columns.values import Values
from crossstream.errors import SerdeError
from tests.serdes.rows import unhurried

TEXT, JSON = serdes.string(), serdes.json()


@dataclasses.dataclass
class Rate:
    id: int
    rate: float | None = None


class Trade(msgspec.Struct, omit_defaults=True):
    id: int
    price: float | None = None
    rates: list[Rate] = []
    limit: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Tagged(msgspec.Struct, tag="t"):
    id: int
    price: float | None


SCHEMA = {
    "id": pl.Int64,
    "price": pl.Float64,
    "small": pl.Float32,
    "rates": pl.List(pl.Struct({"id": pl.Int64, "rate": pl.Float64})),
    "numbers": pl.List(pl.List(pl.Float32)),
}
NUMBER = st.none() | st.floats(width=32)
RATES = st.lists(st.builds(Rate, st.integers(0, 9), NUMBER), max_size=2)
KINDS: dict[str, tuple[Any, Any]] = {
    "float": (serdes.json(float), NUMBER),
    "list": (serdes.json(list[float | None]), st.none() | st.lists(NUMBER, max_size=3)),
    "dataclass": (serdes.json(Rate), st.none() | st.builds(Rate, st.integers(0, 9), NUMBER)),
    "struct": (
        serdes.json(Trade),
        st.none() | st.builds(Trade, st.integers(0, 2**40), NUMBER, RATES, st.none() | st.floats(0)),
    ),
    "tagged": (serdes.json(Tagged), st.builds(Tagged, st.integers(0, 9), NUMBER)),
    "schema": (
        serdes.json(SCHEMA),
        st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "price": NUMBER,
                "small": NUMBER,
                "rates": st.none() | st.lists(st.fixed_dictionaries({"id": st.just(1), "rate": NUMBER})),
                "numbers": st.none() | st.lists(st.none() | st.lists(NUMBER, max_size=2), max_size=2),
            },
        ),
    ),
    "untyped": (
        JSON,
        st.recursive(
            NUMBER | st.integers() | st.text(max_size=2).filter(str.isascii),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
            max_leaves=4,
        ),
    ),
    "objects in untyped": (JSON, RATES | st.builds(Trade, st.just(2**70), NUMBER, RATES)),
}


def is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return all(map(is_finite, value)) if isinstance(value, list) else True


def with_defaults(value: Any) -> Any:
    fields = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
    return msgspec.to_builtins(fields)


def refused_of(serde: Any, values: Values) -> list[tuple[int, str]]:
    return [(row, error.code) for row, error in encoded(values, serde)[1]]


@pytest.mark.parametrize("kind", KINDS)
@unhurried
@given(data=st.data(), copies=st.sampled_from([1, 30]))
def test_those_rows_are_refused_and_no_others(kind: str, data: st.DataObject, copies: int) -> None:
    serde, strategy = KINDS[kind]
    values = data.draw(st.lists(strategy, min_size=1, max_size=5)) * copies
    bad = [(row, "CS-403") for row, one in enumerate(values) if not is_finite(msgspec.to_builtins(one))]
    assert refused_of(serde, Values(objects=values)) == bad
    if bad:
        with pytest.raises(SerdeError, match="finite numbers only") as caught:
            serde.encode_objects(values)
        assert caught.value.code == "CS-403"
    else:
        serde.encode_objects(values)
    if serde.dtype is not None:
        series = pl.Series(list(map(with_defaults, values)), dtype=serde.dtype, strict=False)
        assert refused_of(serde, Values(series=series)) == bad


@pytest.mark.parametrize("copies", [1, 40])
@pytest.mark.parametrize(
    ("serde", "value", "field"),
    [
        (JSON, {"a": {"b": [1.0, math.inf]}}, "a.b[]"),
        (JSON, math.nan, None),
        (serdes.json(float), -math.inf, None),
        (serdes.json(Trade), {"id": 1, "rates": [{"id": 1, "rate": math.nan}]}, "rates[].rate"),
        (serdes.json(Trade), {"id": 1, "rates": [], "limit": math.nan}, "limit"),
        (serdes.json({"small": pl.Float32}), {"small": math.inf}, "small"),
    ],
)
def test_the_field_is_named(serde: Any, value: Any, field: str | None, copies: int) -> None:
    column = pl.Series([value] * copies, dtype=None if serde.dtype is None else serde.dtype)
    for encode in (
        lambda: serde.serialize(value),
        lambda: serde.encode_objects([value] * copies),
        lambda: serde.encode_series(column),
    ):
        with pytest.raises(SerdeError) as caught:
            encode()
        assert (caught.value.code, caught.value.where["field"]) == ("CS-403", field)
        assert caught.value.next


@given(numbers=st.lists(st.integers(-(2**80), 2**80) | NUMBER | st.binary(max_size=9), max_size=30))
@example(numbers=[0xCB7FF0, None])
@example(numbers=[b"\xcb\x7f\xf8\0\0\0\0\0\0", None, 2**70])
@unhurried
def test_what_looks_like_one_in_bytes_is_written(numbers: list[Any]) -> None:
    values = [one for one in numbers if is_finite(one)]
    assert JSON.serialize(values) == msgspec.json.encode(values)


@pytest.mark.parametrize("copies", [1, 40])
def test_a_null_row_hides_what_is_under_it(copies: int) -> None:
    column = pl.Series([{"a": math.nan, "b": 1}, {"a": 1.5, "b": 2}] * copies)
    hidden = column.to_frame("x").select(pl.when(pl.Series([False, True] * copies)).then("x")).to_series()
    assert JSON.encode_series(hidden).to_pylist() == [None, b'{"a":1.5,"b":2}'] * copies


@pytest.mark.parametrize("every", [1, 150])
@pytest.mark.parametrize(
    "share",
    [lambda one: {"share": 1.0 if one["n"] else math.inf, "n": None}, None],
    ids=["callable", "expression"],
)
def test_the_record_whose_result_it_is_is_named(share: Any, every: int) -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=serdes.json({"n": pl.Int64})))
    divided = pl.struct(share=1 / pl.col("n"), n=pl.lit(None, pl.Int64))
    stream.map_values(divided if share is None else share).to("out", cs.Produced(key=TEXT, value=JSON))
    with (
        pytest.raises(SerdeError) as caught,
        cs.TopologyTestDriver(builder.build(), commit_every=every) as driver,
    ):
        driver.create_input_topic("in", TEXT, JSON).pipe_records(
            [(f"k{number}", {"n": number - 77}) for number in range(150)]
        )
    assert (caught.value.code, caught.value.where["field"]) == ("CS-403", "share")
    assert (caught.value.where["key"], caught.value.where["offset"]) == ("k77", 77)
