"""Delta tables as sources on Spark: the tasks read the files, a snapshot by shares; a restart continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from pyspark.sql import SparkSession

import crossstream as cs
from crossstream.lakehouse.reading import LakeReader
from tests.lakehouse.sources.delta_tables import customers_in, orders_in
from tests.lakehouse.sources.test_join_law import check_batches, topology, verified

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("feed", [False, True])
def test_a_join_is_that_of_the_versions_that_were_read(
    spark: SparkSession, tmp_path: Path, feed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("the driver reads no rows")

    orders, customers = orders_in(tmp_path, feed=feed), customers_in(tmp_path, feed=feed)
    whole = pa.table(
        {
            "id": range(1_000),
            "customer_id": ["abcx"[number % 4] for number in range(1_000)],
            "amount": [0.5] * 1_000,
        }
    )
    write_deltalake(
        orders.path,
        whole,
        configuration={"delta.enableChangeDataFeed": str(feed).lower()},
        writer_properties=WriterProperties(max_row_group_size=100),
    )
    customers.create([{"id": one, "name": one.upper(), "region": None} for one in "abc"])
    state = tmp_path / "state"

    def run(**settings: Any) -> cs.Progress:
        config = cs.StreamsConfig(
            application_id="shop", state_dir=state, partitions=2, retain_batches=100, **settings
        )
        with (
            monkeypatch.context() as patch,
            cs.SparkStreams(topology(orders, customers), config, spark) as app,
        ):
            patch.setattr(LakeReader, "read_many", refused)
            app.process_available()
            return app.progress

    assert run(single_task_rows=0).rows_in["orders"] == 1_000
    orders.commit(("upsert", [{"id": 1}, {"id": 2, "customer_id": "a", "amount": 1.5}]))
    customers.commit(("replace", [{"id": "a", "name": "Ada", "region": "eu"}]))
    DeltaTable(orders.path).optimize.compact()
    customers.commit(("upsert", [{"id": "b"}, {"id": "x", "name": "Xen", "region": "us"}]))
    run(max_records_per_batch=1)
    orders.commit(("delete", [4, 5]))
    run()
    check_batches(orders, customers, state)
    assert verified(orders, customers, state) == 0
