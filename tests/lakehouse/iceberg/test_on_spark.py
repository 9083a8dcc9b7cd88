"""Iceberg tables that an application on Spark reads: its tasks open the files, and the driver none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.lakehouse.iceberg_files import DataFiles
from tests.lakehouse.iceberg.tables import Tables, delete_positions, files_of, rows_of
from tests.lakehouse.iceberg.test_join_law import CUSTOMERS, ORDERS, topology

pytestmark = pytest.mark.spark


def test_an_application_on_spark(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: Any) -> Any:
        raise AssertionError("the driver reads a data file")

    monkeypatch.setattr(DataFiles, "rows", opened)
    tables, config = Tables(tmp_path), cs.StreamsConfig(application_id="shop", state_dir=tmp_path / "state")
    tables.create("orders", ORDERS)
    tables.create("customers", CUSTOMERS)
    tables.append(*((key, "ab"[key % 2], 0.5) for key in range(100)), name="orders")
    tables.append(("a", "Ada", "eu"), name="customers")
    with cs.SparkStreams(topology(tables), config, spark) as app:
        app.process_available()
        offers = dict(app.store("offers").all())
    ada = {"customer_id": "a", "amount": 0.5, "customer_name": "Ada", "customer_region": "eu"}
    assert offers == dict.fromkeys(range(0, 100, 2), ada)
    with tables.table("orders") as table:
        (file,) = files_of(table)
        delete_positions(table, {file.file_path: range(4, 100)}, rows_of(table, (4, "b", 1.5)))
    tables.append(("b", "Bob", None), name="customers")
    with cs.SparkStreams(topology(tables), config, spark) as app:
        app.process_available()
        offers = dict(app.store("offers").all())
    bob = {**ada, "customer_id": "b", "customer_name": "Bob", "customer_region": None}
    assert offers == {0: ada, 1: bob, 2: ada, 3: bob, 4: {**bob, "amount": 1.5}}
