"""Keys of every type, at the limits of their types and beside them: a table has the last value of each key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.serdes import Serde
from tests.lakehouse.lake import FORMATS, Lake
from tests.lakehouse.other_readers import rows_of
from tests.laws.effort import cases

NUMBER = serdes.json({"n": pl.Int64})
LONG = "x" * 64


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of keys: the serde, and keys at its limits, which a strategy picks among others like them."""

    serde: Serde
    keys: tuple[Any, ...]
    forms: tuple[str, ...] = FORMATS


def field(dtype: Any, *keys: Any, forms: tuple[str, ...] = FORMATS) -> Kind:
    """A key that is a struct of one field."""
    return Kind(serdes.json({"k": dtype}), tuple({"k": key} for key in keys), forms)


NINES = 10**38 - 1
UTC = timezone.utc
TIMES = (
    datetime(1, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2026, 1, 1, 0, 0, 0, 1500),
    datetime(2026, 1, 1, 0, 0, 0, 1501),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
)
TEXTS = (
    "",
    "'",
    "\\",
    "%",
    "a\0",
    "null",
    LONG,
    LONG + "y",
    "\U0010ffff" * 40,
    "\U0010ffff" * 41,
)
KINDS: dict[str, Kind] = {
    "int64": Kind(serdes.int64(), (-(2**63), 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1)),
    "int32": Kind(serdes.int32(), (-(2**31), -1, 0, 2**31 - 1)),
    "int16": Kind(serdes.int16(), (-(2**15), 0, 2**15 - 1)),
    "uint64": field(pl.UInt64, 0, 7, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1),
    "uint32": field(pl.UInt32, 0, 2**32 - 1),
    "uint8": field(pl.UInt8, 0, 255),
    "decimal(38,0)": field(pl.Decimal(38, 0), *map(Decimal, (-NINES, 1 - NINES, 2**53 + 1, 5, NINES))),
    "decimal(38,18)": field(
        pl.Decimal(38, 18),
        Decimal("-1.5"),
        Decimal("1e-18"),
        Decimal("99999999999999999999.999999999999999999"),
    ),
    "decimal(16,2)": field(pl.Decimal(16, 2), Decimal("99999999999999.99"), Decimal("99999999999999.98")),
    "decimal(15,3)": field(pl.Decimal(15, 3), Decimal("999999999999.999"), Decimal("-0.001"), Decimal(0)),
    "float64": Kind(serdes.float64(), (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 5e-324, 1.7e308)),
    "float32": Kind(serdes.float32(), (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 2.0**-149, 2.0**127)),
    "boolean": Kind(serdes.boolean(), (True, False)),
    "string": Kind(serdes.string(), TEXTS),
    "bytes": Kind(serdes.bytes(), (b"", b"\0", b"\xff", b"\xff" * 40, b"\xff" * 41)),
    "uuid": Kind(serdes.uuid(), (UUID(int=0), UUID(int=2**128 - 1))),
    "date": field(pl.Date, date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None),
    "time": field(pl.Time, time(0), time(23, 59, 59, 999999), forms=("iceberg",)),
    "datetime": field(pl.Datetime("us"), *TIMES),
    "datetime of a zone": field(pl.Datetime("us", "UTC"), *(at.replace(tzinfo=UTC) for at in TIMES)),
    "several fields": Kind(
        serdes.json({"a": pl.String, "b": pl.UInt64, "c": pl.Int64}),
        tuple(
            {"a": a, "b": b, "c": c} for a in (None, "", LONG) for b in (None, 2**64 - 1) for c in (None, 0)
        ),
    ),
}
CASES = [(name, form) for name, kind in KINDS.items() for form in kind.forms]


def changes_of(keys: tuple[Any, ...]) -> st.SearchStrategy[list[list[tuple[Any, int | None]]]]:
    """Batches of (key, number), None for a delete."""
    change = st.tuples(st.sampled_from(keys), st.none() | st.integers(0, 9))
    return st.lists(st.lists(change, min_size=1, max_size=5), min_size=1, max_size=4)


def written(lake: Lake, kind: Kind, batches: list[list[tuple[Any, int | None]]], **settings: Any) -> None:
    builder = cs.StreamsBuilder()
    lake.sink(builder.table("t", cs.Consumed(key=kind.serde, value=NUMBER)), "t", **settings)
    with cs.TopologyTestDriver(builder.build(), commit_every=100) as driver:
        topic = driver.create_input_topic("t", kind.serde, NUMBER)
        for batch in batches:
            for key, number in batch:
                topic.pipe_input(key, None if number is None else {"n": number})
            driver.commit()


def columns_of(key: Any) -> tuple[Any, ...]:
    """A key as its columns have it, so that equal keys are equal: 0.0 and -0.0, and all NaN."""
    values = key.values() if isinstance(key, dict) else (key,)
    return tuple(
        "nan" if v != v else str(v) if isinstance(v, UUID) else v or abs(v) if v == 0.0 else v for v in values
    )


def table_of(lake: Lake) -> list[tuple[Any, ...]]:
    """Rows as another reader finds them."""
    return sorted((columns_of(row) for row in rows_of(lake, "t")), key=repr)


def expected(batches: list[list[tuple[Any, int | None]]]) -> list[tuple[Any, ...]]:
    last = {columns_of(key): number for batch in batches for key, number in batch}
    return sorted(((*key, number) for key, number in last.items() if number is not None), key=repr)


@pytest.mark.parametrize(("name", "form"), CASES)
def test_keys_at_the_limits_of_their_type(
    name: str, form: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All in one file, then each changed alone, then each deleted alone."""
    kind, lake = KINDS[name], Lake(tmp_path_factory.mktemp("lake"), form)
    batches = [[(key, 0) for key in kind.keys], *([(key, 1)] for key in kind.keys)]
    written(lake, kind, batches)
    assert table_of(lake) == expected(batches)
    written(lake, kind, [[(key, None)] for key in kind.keys])
    assert table_of(lake) == []


@cases(0.8)
@given(data=st.data())
def test_a_table_has_the_last_value_of_each_key(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name, form = data.draw(st.sampled_from(CASES))
    kind, lake = KINDS[name], Lake(tmp_path_factory.mktemp("lake"), form)
    batches = data.draw(changes_of(kind.keys))
    written(lake, kind, batches)
    assert table_of(lake) == expected(batches)


@cases(0.1)
@given(
    batches=changes_of(tuple({"p": p, "k": k} for p in (None, "a", "é") for k in (1, 2**64 - 2, 2**64 - 1)))
)
def test_a_key_with_the_column_of_the_partitions(
    batches: list[list[tuple[Any, int | None]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, lake = (
        Kind(serdes.json({"p": pl.String, "k": pl.UInt64}), ()),
        Lake(tmp_path_factory.mktemp("lake"), "delta"),
    )
    written(lake, kind, batches, partition_by="p")
    assert table_of(lake) == expected(batches)
