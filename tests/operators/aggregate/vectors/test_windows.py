"""Windowed aggregations give what Kafka's own driver gave, record by record; see `record.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.operators.aggregate.kafka import assert_as_in_kafka
from tests.operators.aggregate.vectors.record import FILE
from tests.operators.aggregate.windowed import Case, Record

VECTORS = json.loads(FILE.read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: "-".join(map(str, vector["case"].values())))
def test_as_recorded(vector: dict[str, Any]) -> None:
    records = [Record(*record) for record in vector["records"]]
    assert_as_in_kafka(Case(**vector["case"]), records, vector["kafka"])
