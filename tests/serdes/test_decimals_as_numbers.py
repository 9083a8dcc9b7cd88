"""Decimals in JSON: read as text and as numbers, and written as the serde says, with every digit."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.described import made
from crossstream.serdes.own import known

KEY = serdes.string()


@dataclass(frozen=True)
class Payment:
    amount: Decimal
    parts: list[Decimal]
    at: datetime | None = None
    note: str | None = None


SCHEMA = {"amount": pl.Decimal(38, 2), "parts": pl.List(pl.Decimal(38, 2)), "note": pl.String}
NUMBERS, TEXTS = serdes.json(Payment, decimals="number"), serdes.json(Payment)
LARGE = "12345678901234567890.12"


def through(serde: serdes.Serde, text: bytes, *, expressions: bool, count: int) -> list[bytes]:
    """The bytes that a store and a sink make of some records."""
    builder = cs.StreamsBuilder()
    source = builder.table("in", cs.Consumed(key=KEY, value=serde))
    if expressions:
        changed = source.map_values(
            pl.struct(pl.all()), materialized=cs.Materialized(store="kept", value=serde)
        )
    else:
        changed = source.map_values(lambda row: row, materialized=cs.Materialized(store="kept", value=serde))
    changed.to_stream().to("out", key=KEY, value=serde)
    with cs.TopologyTestDriver(builder.build(), commit_every=count) as driver:
        topic = driver.create_input_topic("in", KEY, serdes.bytes())
        topic.pipe_records([(f"k{n}", text) for n in range(count)])
        driver.commit()
        assert len(list(driver.get_key_value_store("kept").all())) == count
        return driver.create_output_topic("out", KEY, serdes.bytes()).read_values()


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("expressions", [False, True])
@pytest.mark.parametrize("quote", ["", '"'])
def test_the_serde_says_how_they_are_written(quote: str, expressions: bool, count: int) -> None:
    one, other = f"{quote}{LARGE}{quote}", f"{quote}10.00{quote}"
    text = f'{{"amount":{one},"parts":[{other},{one}],"note":"10.00"}}'.encode()
    for decimals, sign in (("number", ""), ("text", '"')):
        for kind in (Payment, SCHEMA):
            serde = serdes.json(kind, decimals=decimals)  # type: ignore[arg-type]
            for found in through(serde, text, expressions=expressions, count=count):
                assert f'"amount":{sign}{LARGE}{sign}' in found.decode()
                short = "10" if expressions and kind is Payment else "10.00"
                assert f'"parts":[{sign}{short}{sign},{sign}{LARGE}{sign}]' in found.decode()
                assert json.loads(found)["note"] == "10.00"


DECIMALS = st.integers(-(10**37), 10**37).map(lambda number: Decimal(number).scaleb(-18))


@given(st.lists(DECIMALS, max_size=4), st.booleans(), st.sampled_from([1, 100]))
def test_no_digit_is_lost(numbers: list[Decimal], as_columns: bool, count: int) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    value = Payment(sum(numbers, Decimal("0.5")) if len(numbers) < 2 else numbers[0], numbers, at, "x")
    data = NUMBERS.encode_objects([value] * count + [None])
    if as_columns:
        data = NUMBERS.encode_series(NUMBERS.decode_series(data))
    assert NUMBERS.decode_objects(data) == [value] * count + [None]
    assert TEXTS.decode_objects(data) == [value] * count + [None]
    assert isinstance(json.loads(data[0].as_py())["amount"], int | float)


def test_single_decimals_and_exponents() -> None:
    number = serdes.json(Decimal, decimals="number")
    assert [number.serialize(Decimal(text)) for text in ("10.00", "1E+2", "-0.5")] == [
        b"10.00",
        b"100",
        b"-0.5",
    ]
    assert number.encode_series(pl.Series([Decimal(100), None])).to_pylist() == [b"100", None]
    assert number.deserialize(b"10.00") == Decimal("10.00")
    for serde in (number, serdes.json(Decimal)):
        with pytest.raises(cs.SerdeError, match=r"^\[CS-403\].*digits"):
            serde.serialize(Decimal("1E+999999999"))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("kind", [Payment, Decimal, list[Decimal], dict[str, Decimal], SCHEMA])
def test_what_is_no_number_of_json_is_refused(kind: Any, text: str) -> None:
    odd = Decimal(text)
    value = {
        Payment: Payment(odd, []),
        Decimal: odd,
        list[Decimal]: [odd],
        dict[str, Decimal]: {"a": odd},
    }.get(kind if not isinstance(kind, dict) else None, {"amount": odd})  # type: ignore[call-overload]
    for count in (1, 100):
        with pytest.raises(cs.SerdeError):
            serdes.json(kind, decimals="number").encode_objects([value] * count)


def test_the_two_are_not_alike_and_are_described() -> None:
    assert NUMBERS.name == "json[Payment, decimals as numbers]"
    assert NUMBERS != TEXTS
    assert pickle.loads(pickle.dumps(NUMBERS)) == NUMBERS
    schema = serdes.json(SCHEMA, decimals="number")
    assert made(known(schema).described(), {}) == schema
    read = made(known(NUMBERS).described(), {})
    data = NUMBERS.serialize(Payment(Decimal(LARGE), []))
    assert read.deserialize(data)["amount"] == Decimal(LARGE)
    assert read.decode_objects(pa.array([data], pa.large_binary()))[0]["amount"] == Decimal(LARGE)


def test_settings_that_do_not_fit() -> None:
    for type_, decimals in ((Payment, "float"), (None, "number")):
        with pytest.raises(cs.SerdeError, match=r"^\[CS-404\]"):
            serdes.json(type_, decimals=decimals)  # type: ignore[arg-type]
