"""Nexmark's queries in Spark SQL: those that Spark takes as streams, and what it answers to the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchmarks.nexmark.events import events
from benchmarks.nexmark.write import write
from benchmarks.peers.spark_streaming.program import SCHEMAS, timed
from benchmarks.peers.spark_streaming.program import results as records_of
from benchmarks.peers.spark_streaming.queries import QUERIES, REFUSED, Query

from benchmarks.nexmark import reference, results

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NEWER = {
    "q4": "Detected pattern of possible 'correctness' issue due to global watermark",
    "q6": "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append",
}
"""How answers begin that a newer Spark than the peer's gives instead."""


OFTEN = {"q3", "q5", "q7", "q11"}
EVENTS = 3_000


@pytest.fixture
def session(spark: Any, tmp_path: Path) -> Any:
    """A session with the tables as streams of files in folders of their names."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.shuffle.partitions", "2")
    write(tmp_path, EVENTS)
    for name, schema in SCHEMAS.items():
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.json").rename(tmp_path / name / "rows.json")
        reader = own.read if name == "side_input" else own.readStream
        timed(reader.schema(schema).json(str(tmp_path / name))).createOrReplaceTempView(name)
    return own


def run(session: Any, query: Query, folder: Path) -> None:
    """Streams what there is into the table ``found``."""
    writing = (
        records_of(session, query).writeStream.outputMode(query.mode).format("memory").queryName("found")
    )
    started = writing.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    started.awaitTermination()


@pytest.mark.parametrize("name", REFUSED)
def test_spark_refuses(name: str, session: Any, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as refusal:
        run(session, REFUSED[name], tmp_path / "checkpoint")
    assert str(refusal.value).startswith((REFUSED[name].answer, NEWER.get(name, "\0")))


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.nightly) for name in QUERIES]
)
def test_results_are_those_of_duckdb(name: str, session: Any, tmp_path: Path) -> None:
    run(session, QUERIES[name], tmp_path / "checkpoint")
    found = [(row.key and row.key.encode(), row.value.encode()) for row in session.table("found").collect()]
    expected = reference.expected(name, events(EVENTS))
    rows = results.rows_of(name, pl.DataFrame(found, results.RECORDS, orient="row"), expected.schema)
    assert results.differs(name, rows, expected) is None


def test_each_query_is_said_or_refused() -> None:
    assert {*QUERIES, *REFUSED} == {f"q{number}" for number in range(24)} - {"q10"}
