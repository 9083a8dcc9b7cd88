"""Tables of others: what they demand of rows or writers is refused at the start, not by a batch."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, TableFeatures
from deltalake import Schema as DeltaSchema
from pyiceberg import transforms
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimeType,
    UUIDType,
)

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from tests.lakehouse.lake import Lake
from tests.lakehouse.other_readers import rows_of
from tests.lakehouse.test_each_batch_once import Lives
from tests.lakehouse.test_what_tables_cannot_hold import TEXT, topology, valued, write


@pytest.fixture
def delta(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "delta")


@pytest.fixture
def iceberg(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "iceberg")


def partitioned(lake: Lake, source: IcebergType, transform: Any) -> None:
    """An Iceberg table that somebody else has made."""
    catalog = load_catalog("default", **lake.catalog)
    catalog.create_namespace_if_not_exists("shop")
    fields = [
        NestedField(1, "key", StringType(), True),
        NestedField(2, "p", source),
        NestedField(3, "n", LongType()),
    ]
    spec = PartitionSpec(PartitionField(2, 1000, transform, "part"))
    catalog.create_table("shop.t", Schema(*fields), partition_spec=spec).catalog.close()


TRANSFORMS: list[tuple[IcebergType, Any, Any, Any]] = [
    (StringType(), transforms.IdentityTransform(), pl.String, ("a/b", "", "x" * 300, None)),
    (StringType(), transforms.BucketTransform(num_buckets=4), pl.String, ("a", "", None)),
    (LongType(), transforms.TruncateTransform(width=10), pl.Int64, (2**63 - 1, -(2**63), None)),
    (DateType(), transforms.DayTransform(), pl.Date, (date.min, date.max, None)),
    (DateType(), transforms.MonthTransform(), pl.Date, (date(1969, 12, 31), None)),
]


@pytest.mark.parametrize(
    ("source", "transform", "dtype", "values"), TRANSFORMS, ids=lambda one: str(one)[:20]
)
def test_an_iceberg_table_in_partitions(
    source: IcebergType, transform: Any, dtype: Any, values: Any, iceberg: Lake
) -> None:
    partitioned(iceberg, source, transform)
    built, serde = topology(iceberg, TEXT, valued(dtype)), valued(dtype)
    rows = [(str(n), {"p": value, "n": n}) for n, value in enumerate(values)]
    for changed in ([(key, {**value, "n": -1}) for key, value in rows], [*rows, ("gone", None)]):
        write(built, TEXT, serde, changed)
    found = sorted(rows_of(iceberg, "t"), key=lambda row: row["n"])
    assert [(row["key"], {"p": row["p"], "n": row["n"]}) for row in found] == rows


UNWRITTEN: list[tuple[IcebergType, Any, Any]] = [
    (BinaryType(), transforms.TruncateTransform(width=3), pl.Binary),
    (TimeType(), transforms.BucketTransform(num_buckets=4), pl.Time),
]


@pytest.mark.parametrize(("source", "transform", "dtype"), UNWRITTEN, ids=lambda one: str(one)[:20])
def test_partitions_that_pyiceberg_does_not_write_stop_the_start(
    source: IcebergType, transform: Any, dtype: Any, iceberg: Lake
) -> None:
    partitioned(iceberg, source, transform)
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(iceberg, TEXT, valued(dtype)))
    assert (caught.value.code, f"{transform} of 'p'" in caught.value.what) == ("CS-657", True)


def test_a_partition_by_a_column_that_only_others_fill(iceberg: Lake) -> None:
    """It is null in the rows of crossstream; but others may make its files."""
    catalog = load_catalog("default", **iceberg.catalog)
    catalog.create_namespace("shop")
    fields = [("key", StringType()), ("p", LongType()), ("n", LongType()), ("id", UUIDType())]
    schema = Schema(*(NestedField(at, name, kind) for at, (name, kind) in enumerate(fields, 1)))
    spec = PartitionSpec(PartitionField(4, 1000, transforms.IdentityTransform(), "part"))
    catalog.create_table("shop.t", schema, partition_spec=spec).catalog.close()
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(iceberg, TEXT, valued(pl.Int64)))
    assert (caught.value.code, "identity of 'id' (uuid)" in caught.value.what) == ("CS-657", True)


WHOLE = valued(pl.Int64)
COLUMNS = {"key": pa.string(), "p": pa.int64(), "n": pa.int64()}
DEMANDS: dict[str, tuple[dict[str, str], list[TableFeatures], str]] = {
    "an invariant": (
        {"delta.invariants": '{"expression": {"expression": "m > 3"}}'},
        [],
        "the column 'm' has an invariant",
    ),
    "generated": ({"delta.generationExpression": "n + 1"}, [], "the column 'm' is generated"),
    "an identity": ({"delta.identity.start": "1"}, [], "the column 'm' is an identity column"),
    "a feature": ({}, [TableFeatures.RowTracking], "delta-rs does not write it: Unsupported table features"),
}


def refused(delta: Lake, kind: str) -> str:
    """Why the start refuses the table of the topology."""
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(delta, TEXT, WHOLE, kind))
    assert (caught.value.code, caught.value.where["table"]) == ("CS-657", delta.path("t"))
    assert "filter(" in str(caught.value.next)
    return caught.value.what


@pytest.mark.parametrize("kind", ["table", "stream"])
@pytest.mark.parametrize("demand", DEMANDS)
def test_a_delta_table_that_demands_more_stops_the_start(demand: str, kind: str, delta: Lake) -> None:
    metadata, features, what = DEMANDS[demand]
    fields = [Field.from_arrow(pa.field(name, dtype)) for name, dtype in COLUMNS.items()]
    table = DeltaTable.create(delta.path("t"), DeltaSchema([*fields, Field("m", "long", metadata=metadata)]))
    if features:
        table.alter.add_feature(features, allow_protocol_versions_increase=True)
    version = DeltaTable(delta.path("t")).version()
    assert what in refused(delta, kind)
    assert DeltaTable(delta.path("t")).version() == version


@pytest.mark.parametrize("kind", ["table", "stream"])
def test_a_delta_table_with_a_constraint_stops_the_start(kind: str, delta: Lake) -> None:
    """A row that breaks it would stop the writer at each start."""
    table = DeltaTable.create(delta.path("t"), pa.schema(COLUMNS.items()))
    table.alter.add_constraint({"small": "n < 5"})
    assert "the constraint 'small' (n < 5)" in refused(delta, kind)
    table.alter.drop_constraint("small")
    write(topology(delta, TEXT, WHOLE, kind), TEXT, WHOLE, [("a", {"p": 1, "n": 7})])
    assert rows_of(delta, "t") == [{"key": "a", "p": 1, "n": 7}]


def test_a_constraint_of_a_table_that_is_being_written(delta: Lake) -> None:
    """It stops the next batch before its rows are written, whether they break it or not."""
    built = topology(delta, TEXT, WHOLE)
    with cs.TopologyTestDriver(built, commit_every=100) as driver:
        topic = driver.create_input_topic("t", TEXT, WHOLE)
        table = DeltaTable(delta.path("t"))
        table.alter.add_constraint({"small": "n < 5"})
        topic.pipe_input("a", {"p": 1, "n": 4})
        with pytest.raises(cs.SinkError) as caught:
            driver.commit()
        assert (caught.value.code, "'small'" in caught.value.what) == ("CS-657", True)
    assert rows_of(delta, "t") == []


def test_a_delta_table_that_is_only_appended(delta: Lake) -> None:
    """A stream does that."""
    settings = {"delta.appendOnly": "true"}
    DeltaTable.create(delta.path("t"), pa.schema(COLUMNS.items()), configuration=settings)
    assert "delta.appendOnly" in refused(delta, "table")
    write(topology(delta, TEXT, WHOLE, "stream"), TEXT, WHOLE, [("a", {"p": 1, "n": 7})])
    assert rows_of(delta, "t") == [{"key": "a", "p": 1, "n": 7}]


def test_a_constraint_that_came_between_two_starts(tmp_path: Path) -> None:
    lives = Lives(tmp_path, "delta")
    lives.append("a")
    lives.run()
    for name in ("events", "counts"):
        DeltaTable(lives.lake.path(name)).alter.add_constraint({"small": "key < 'b'"})
    lives.append("bb", "a")
    with pytest.raises(cs.SinkError, match="'small'"):
        lives.run()
    for name in ("events", "counts"):
        DeltaTable(lives.lake.path(name)).alter.drop_constraint("small")
    lives.run()
    assert (lives.events(), lives.counts()) == (["a", "a", "bb"], {"a": 2, "bb": 1})


def test_a_constraint_that_comes_while_a_batch_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = Lives(tmp_path, "delta")
    lives.append("a")
    lives.run()
    lives.append("bb", "a")
    note = BatchLog.write_publication

    def constrained(*given: Any, **more: Any) -> Any:
        DeltaTable(lives.lake.path("counts")).alter.add_constraint({"small": "key < 'b'"})
        return note(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(BatchLog, "write_publication", constrained)
        with pytest.raises(cs.SinkError, match="'small'"):
            lives.run()
    with pytest.raises(cs.SinkError, match="'small'"):
        lives.run()
    DeltaTable(lives.lake.path("counts")).alter.drop_constraint("small")
    lives.run()
    assert (lives.events(), lives.counts()) == (["a", "a", "bb"], {"a": 2, "bb": 1})
