"""Values are decoded once: where they are joined, or where foreign keys are taken from them, whence they travel so."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.algebra.change import Changes
from crossstream.algebra.values import Values
from crossstream.engine.parcels import HANDED, pack, unpack
from crossstream.serdes.json_typed import SchemaJson
from crossstream.state.gathered import whole

TEXT, JSON = serdes.string(), serdes.json()
LEFT = serdes.json({"one": pl.String, "two": pl.String, "n": pl.Int64, "note": pl.String})
RIGHT = serdes.json({"m": pl.Int64})


def bills(builder: cs.StreamsBuilder) -> Any:
    left = builder.table("left", cs.Consumed(key=TEXT, value=LEFT))
    right = builder.table("right", cs.Consumed(key=TEXT, value=RIGHT))
    total = sum((pl.col(side).struct.field("m") for side in ("one", "two")), pl.col("left").struct.field("n"))
    return left.join_many(
        {"one": (right, pl.col("one")), "two": (right, pl.col("two"))}, pl.struct(total=total)
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rows", [20, 3 * HANDED])
@pytest.mark.parametrize("partitions", [1, 2])
def test_left_rows_of_a_join_of_many(
    monkeypatch: pytest.MonkeyPatch, rows: int, partitions: int, stream: bool
) -> None:
    builder = cs.StreamsBuilder()
    results = bills(builder)
    if stream:  # every change is wanted then
        clicks = builder.stream("clicks", cs.Consumed(key=TEXT, value=TEXT))
        clicks.join(results, lambda click, bill: bill).to("out", cs.Produced(key=TEXT, value=JSON))
    else:
        results.to_stream().to("out", cs.Produced(key=TEXT, value=JSON))
    decoded: list[int] = []
    plain = SchemaJson._decoded

    def counting(self: SchemaJson, data: Any, how: Any) -> pl.Series:
        decoded.extend([len(data)] if self == LEFT else [])
        return plain(self, data, how)

    monkeypatch.setattr(SchemaJson, "_decoded", counting)
    with cs.TopologyTestDriver(builder.build(), partitions=partitions, commit_every=10**9) as driver:
        right, left = (driver.create_input_topic(name, TEXT, JSON) for name in ("right", "left"))
        for number in range(3):
            right.pipe_input(f"r{number}", {"m": number})
        for number in range(rows):
            value = {"one": f"r{number % 3}", "two": "r1", "n": number, "note": "x" * 40}
            left.pipe_input(f"k{number % (rows // 2)}", value)
        driver.commit()
        assert sum(decoded) == rows
        if not stream:
            told = dict(driver.create_output_topic("out", TEXT, JSON).read_key_values())
            last = range(rows - rows // 2, rows)
            assert told == {f"k{n % (rows // 2)}": {"total": n + n % 3 + 1} for n in last}


COLUMNS = {
    "text": pl.Series(["a", None, "b" * 40], dtype=pl.String),
    "number": pl.Series([1, 2, None], dtype=pl.Int16),
    "time": pl.Series([datetime(2026, 1, 2, tzinfo=UTC), None, None], dtype=pl.Datetime("us", "UTC")),
    "exact": pl.Series([Decimal("1.5"), None, None], dtype=pl.Decimal(38, 18)),
    "list": pl.Series([["a"], [], None], dtype=pl.List(pl.String)),
    "inner": pl.Series([{"a": [1]}, None, {"a": None}], dtype=pl.Struct({"a": pl.List(pl.Int64)})),
    "enum": pl.Series(["x", "y", None], dtype=pl.Enum(["x", "y"])),
}


def changes(values: Values) -> Changes:
    numbers = np.arange(values.rows)
    return Changes(values, values, numbers, numbers, numbers)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("copies", [1, 200])
def test_columns_come_out_of_a_parcel_as_they_went_in(name: str, copies: int) -> None:
    struct = pl.DataFrame([COLUMNS[name].alias(name)]).to_struct()
    series = pl.concat([struct[:2], pl.Series([None], dtype=struct.dtype), struct[2:]] * copies)
    wire = pa.array([b"{}", b"{}", None, b"{}"] * copies, pa.large_binary())
    parcel = whole(pack(changes(Values(LEFT, wire=wire, fields=series)), LEFT, LEFT))
    value = unpack([parcel], LEFT, LEFT).value
    if name == "enum":  # what it stands for is not in the parcel
        assert value.decoded() is None
    else:
        found = value.decoded()
        assert found is not None
        assert (found.dtype, found.to_list()) == (series.dtype, series.to_list())
    assert value.wire().equals(wire)
