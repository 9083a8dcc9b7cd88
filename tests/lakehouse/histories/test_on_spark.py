"""A topic with a history on Spark: the tasks read the files of the table, and a restart continues."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import crossstream as cs
from crossstream.columns.flat import Format
from crossstream.lakehouse.history_topics import HistoryReader
from crossstream.lakehouse.past_tables import PastReader
from tests.lakehouse.histories.topic_and_lake import Lake, Order, Record, rows_of, write_topic

pytestmark = pytest.mark.spark
NOON = 1_700_000_000_000
RECORDS = [Record(n % 2, f"k{n % 50}", ("x", n), NOON + n) for n in range(1_000)]


@pytest.mark.parametrize(("form", "until"), [("delta", None), ("iceberg", None), ("delta", NOON + 601)])
def test_a_history_on_spark(
    spark: SparkSession, tmp_path: Path, form: Format, until: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("the driver reads no rows")

    for reader in (HistoryReader, PastReader):
        monkeypatch.setattr(reader, "read_many", refused)
    lake = Lake(tmp_path, form)
    lake.create()
    rows = rows_of(RECORDS[:700])
    settings: dict[str, Any] = {}
    if until is None:
        for start in range(0, len(rows), 100):
            lake.append(rows[start : start + 100])
    else:
        lake.append(list({row["key"]: row for row in rows}.values()))
        settings = {"until": datetime.fromtimestamp(until / 1000, timezone.utc), "deleted": None}
    write_topic(tmp_path / "topics", RECORDS, {0: 300, 1: 300})
    for most in (300, None):
        builder = cs.StreamsBuilder()
        orders = builder.table("orders", value=Order, store="orders", history=lake.history(**settings))
        orders.group_by("customer").agg(total=cs.agg.sum("amount"), store="totals")
        config = cs.StreamsConfig(
            application_id="shop",
            state_dir=tmp_path / "state",
            topics_dir=tmp_path / "topics",
            partitions=2,
            max_records_per_batch=most,
            single_task_rows=0,
        )
        with cs.SparkStreams(builder.build(), config, spark) as app:
            app.process_available()
            found = dict(app.store("orders").all())
            totals = dict(app.store("totals").all())
    newest = {record.key: record.value for record in RECORDS}
    assert found == {key: Order(*value) for key, value in newest.items() if value is not None}
    assert totals == {"x": {"total": sum(range(950, 1_000))}}
