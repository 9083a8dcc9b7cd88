"""Values are decoded once: where they are joined, or where foreign keys are taken from them, whence they travel so."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.columns.changes import Changes
from crossstream.columns.values import Values
from crossstream.serdes.json.columns import Columns
from crossstream.storage.files import whole
from crossstream.task.shuffle_codec import HANDED, pack, unpack

TEXT, JSON = serdes.string(), serdes.json()
LEFT = serdes.json({"one": pl.String, "two": pl.String, "n": pl.Int64, "note": pl.String})
RIGHT = serdes.json({"m": pl.Int64})
ONE = pl.col("one")


def bills(builder: cs.StreamsBuilder) -> Any:
    left = builder.table("left", cs.Consumed(key=TEXT, value=LEFT))
    right = builder.table("right", cs.Consumed(key=TEXT, value=RIGHT))
    total = sum((pl.col(side).struct.field("m") for side in ("one", "two")), pl.col("left").struct.field("n"))
    return left.join_many({"one": (right, ONE), "two": (right, pl.col("two"))}, pl.struct(total=total))


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
    plain = Columns.decoded

    def counting(self: Columns, data: Any, serde: str) -> pl.Series:
        decoded.extend([len(data)] if serde == LEFT.name else [])
        return plain(self, data, serde)

    monkeypatch.setattr(Columns, "decoded", counting)
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


class Required(msgspec.Struct):
    one: str
    two: Literal["r1"]
    n: int = 0


class Optional(msgspec.Struct):
    one: str | None
    two: str
    n: int = 0


class Defaulting(msgspec.Struct):
    one: str = "r0"
    two: str | None = None
    n: int = 0


def joined(kind: Any, one: pl.Expr = ONE) -> Any:
    builder = cs.StreamsBuilder()
    left = builder.table("left", cs.Consumed(key=TEXT, value=serdes.json(kind)))
    right = builder.table("right", cs.Consumed(key=TEXT, value=RIGHT))
    total = pl.col("left").struct.field("n") + pl.col("two").struct.field("m")
    result = left.join_many({"one": (right, one), "two": (right, pl.col("two"))}, pl.struct(total=total))
    result.to_stream().to("out", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def dropped(driver: cs.TopologyTestDriver) -> int:
    return int(driver.metrics()["dropped-records-total"])


def fill(driver: cs.TopologyTestDriver, values: list[Any]) -> None:
    """Rows of right keys r0 and r1, and changes of one left row."""
    right, left = (driver.create_input_topic(name, TEXT, JSON) for name in ("right", "left"))
    for number in range(2):
        right.pipe_input(f"r{number}", {"m": number})
    for value in values:
        left.pipe_input("k", value)
    driver.commit()


@pytest.mark.parametrize(
    ("kind", "one"),
    [
        (Required, ONE),
        (Required, ONE.str.slice(0, 2)),
        (Optional, ONE),
        (Defaulting, ONE),
        ({"one": pl.String, "two": pl.String, "n": pl.Int64}, ONE),
    ],
)
def test_of_superseded_changes_only_foreign_keys_are_read(
    monkeypatch: pytest.MonkeyPatch, kind: Any, one: pl.Expr
) -> None:
    asked: list[frozenset[str] | None] = []
    plain = Values.series

    def noting(self: Values, fields: Any = None, *, checked: Any = None) -> pl.Series:
        if checked is not None and self.rows == 3:  # so many are superseded
            asked.append(fields)
        return plain(self, fields, checked=checked)

    monkeypatch.setattr(Values, "series", noting)
    with cs.TopologyTestDriver(joined(kind, one), partitions=1, commit_every=10**9) as driver:
        fill(driver, [{"one": "r0", "two": "r1", "n": n} for n in range(4)])
        assert dict(driver.create_output_topic("out", TEXT, JSON).read_key_values()) == {"k": {"total": 4}}
        assert dropped(driver) == 0
    assert asked == [frozenset({"one", "two"})]


@pytest.mark.parametrize("kind", [Optional, Defaulting, {"one": pl.String, "two": pl.String, "n": pl.Int64}])
def test_superseded_changes_without_a_foreign_key_are_counted(kind: Any) -> None:
    lacks = {"two": "r1"} if kind is not Defaulting else {"one": "r1"}
    lacks |= {"one": None} if kind is Optional else {}
    with cs.TopologyTestDriver(joined(kind), partitions=1, commit_every=10**9) as driver:
        fill(driver, [lacks, None, lacks, {"one": "r0", "two": "r1", "n": 5}])
        assert dict(driver.create_output_topic("out", TEXT, JSON).read_key_values()) == {"k": {"total": 6}}
        assert dropped(driver) == 2


@pytest.mark.parametrize(
    "bad", [{"one": 1, "two": "r1"}, {"one": "r0", "two": "r1", "n": "x"}, {"two": "r1"}]
)
@pytest.mark.parametrize("place", range(5))
def test_superseded_changes_are_checked(bad: Any, place: int) -> None:
    values = [{"one": "r0", "two": "r1"}] * 6
    values[place] = bad
    with cs.TopologyTestDriver(joined(Required), partitions=1, commit_every=10**9) as driver:
        with pytest.raises(cs.errors.CrossStreamError, match="CS-4") as caught:
            fill(driver, values)
        where = caught.value.where
        assert (where["topic"], where["offset"]) == ("left", place)


@pytest.mark.parametrize("text", ["null", None])
def test_superseded_changes_that_delete_are_no_changes_without_foreign_keys(text: Any) -> None:
    with cs.TopologyTestDriver(joined(Required), partitions=1, commit_every=10**9) as driver:
        driver.create_input_topic("left", TEXT, serdes.bytes()).pipe_input("k", text and text.encode())
        fill(driver, [{"one": "r0", "two": "r1"}])
        assert dict(driver.create_output_topic("out", TEXT, JSON).read_key_values()) == {"k": {"total": 1}}
        assert dropped(driver) == 0


COLUMNS = {
    "text": pl.Series(["a", None, "b" * 40], dtype=pl.String),
    "number": pl.Series([1, 2, None], dtype=pl.Int16),
    "time": pl.Series(
        [datetime(2026, 1, 2, tzinfo=timezone.utc), None, None], dtype=pl.Datetime("us", "UTC")
    ),
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
def test_columns_come_out_of_a_block_as_they_went_in(name: str, copies: int) -> None:
    struct = pl.DataFrame([COLUMNS[name].alias(name)]).to_struct()
    series = pl.concat([struct[:2], pl.Series([None], dtype=struct.dtype), struct[2:]] * copies)
    wire = pa.array([b"{}", b"{}", None, b"{}"] * copies, pa.large_binary())
    block = whole(pack(changes(Values(LEFT, wire=wire, fields=series)), LEFT, LEFT))
    value = unpack([block], LEFT, LEFT).value
    if name == "enum":  # what it stands for is not in the block
        assert value.decoded() is None
    else:
        found = value.decoded()
        assert found is not None
        assert (found.dtype, found.to_list()) == (series.dtype, series.to_list())
    assert value.wire().equals(wire)
