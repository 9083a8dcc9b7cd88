"""Static DataFrames of Spark that are read again: files that change under them, and columns that Arrow's types have."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.errors import CrossStreamError, TopologyError
from tests.spark.world import World

pytestmark = pytest.mark.spark
TEXT = serdes.string()
LATER = 1 << 42
"""A time after every reading, in ms."""


def write(spark: Any, folder: Path, *rows: str) -> None:
    """Replaces what is in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    frame = spark.sql("select * from values " + ", ".join(rows) + " as t(code, at, rate)")
    frame.selectExpr("code", "date(at) as at", "cast(rate as decimal(10, 2)) as rate").write.parquet(
        str(folder)
    )


def told(world: World) -> list[str]:
    return [one.value for one in world.read("told", TEXT, TEXT)]


@pytest.mark.parametrize("is_function", [False, True], ids=["frame", "function"])
def test_files_that_change_under_a_frame_are_read_again(
    spark: Any, tmp_path: Path, is_function: bool
) -> None:
    world, folder = World(tmp_path), tmp_path / "rates"
    world.create(orders=1, told=1)
    write(spark, folder, "('EUR', '2026-01-01', 1.0)", "('USD', '2026-01-01', 1.1)")

    def read() -> Any:
        return spark.read.parquet(str(folder)).where("rate > 0")

    builder = cs.StreamsBuilder()
    given = read if is_function else read()
    rates = builder.global_table_from(
        given, key="code", columns=["rate"], refresh="1 ms", name="rates", store="rates"
    )
    orders = builder.stream("orders", cs.Consumed(key=TEXT, value=TEXT))
    joined = orders.left_join(
        rates, lambda code, rate: f"{code} {rate and rate['rate']}", key_selector=lambda code: code
    )
    joined.to("told", cs.Produced(key=TEXT, value=TEXT))
    with cs.SparkStreams(builder.build(), world.config(partitions=2), spark) as app:
        world.append("orders", [("1", "EUR", 1), ("2", "GBP", 1)], TEXT, TEXT)
        app.process_available()
        assert sorted(told(world)) == ["EUR 1.00", "GBP None"]
        write(spark, folder, "('GBP', '2026-01-02', 0.9)", "('USD', '2026-01-02', 1.1)")
        world.append("orders", [("1", "EUR", LATER), ("2", "GBP", LATER)], TEXT, TEXT)
        time.sleep(0.002)
        app.process_available()
        assert sorted(told(world)[2:]) == ["EUR None", "GBP 0.90"]
        assert app.progress.rows_in["rates"] == 2, "USD is as before: the date is not read"


def test_a_streaming_frame_is_refused(spark: Any) -> None:
    with pytest.raises(TopologyError, match=r"\[CS-150\] the DataFrame is a streaming one(?s:.)*table_from"):
        cs.StreamsBuilder().global_table_from(spark.readStream.format("rate").load(), key="value")


def test_an_error_of_spark_is_named(spark: Any, tmp_path: Path) -> None:
    write(spark, tmp_path / "rates", "('EUR', '2026-01-01', 1.0)")
    builder = cs.StreamsBuilder()
    builder.global_table_from(lambda: spark.read.parquet(str(tmp_path / "rates")), key="code", name="rates")
    shutil.rmtree(tmp_path / "rates")
    with pytest.raises(
        CrossStreamError, match=r"\[CS-621\] it cannot be read: AnalysisException: \[PATH_NOT_FOUND\]"
    ):
        builder.build().frames["rates"].reading()
