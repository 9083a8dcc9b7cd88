"""`why`, `verify` and `shadow` over Kafka, with results that were written in transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

import crossstream as cs
from crossstream.catalog.planners import plan_topology
from crossstream.kafka import KafkaConnection
from crossstream.kafka.log import KafkaLog
from crossstream.recompute.shadow import compare_topics
from crossstream.recompute.verify import verify_results
from crossstream.recompute.why import why
from tests.faults.one_process import process
from tests.kafka.fixtures import new_topic, records
from tests.recompute.world import BOTH, JSON, TEXT

pytestmark = pytest.mark.kafka


def test_results_in_kafka(log: KafkaLog, broker: KafkaConnection, tmp_path: Path) -> None:
    products, merchants, offers = (new_topic(log, 2) for _ in range(3))
    builder = cs.StreamsBuilder()
    joined = builder.table(products, BOTH).join(
        builder.table(merchants, BOTH),
        lambda product, merchant: [product["price"], merchant],
        foreign_key=lambda product: product["merchant"],
        materialized=cs.Materialized(store="offers", value=JSON),
    )
    joined.to_stream().to(offers, cs.Produced(key=TEXT, value=JSON))
    topology = builder.build()
    config = cs.StreamsConfig(
        application_id=products,
        bootstrap_servers=broker.bootstrap_servers,
        state_dir=tmp_path / "state",
        processing_guarantee="exactly_once",
        partitions=2,
        durable=False,
    )
    writer = broker.writer()
    rows = [(f"p{n}".encode(), f'{{"price": {n}, "merchant": "m{n % 3}"}}'.encode()) for n in range(20)]
    for part in (rows[:10], rows[10:]):
        writer.write(products, records(*part))
        writer.write(merchants, records(*((f"m{n}".encode(), str(len(part) + n).encode()) for n in range(2))))
        writer.flush()
        process(topology, config)
    writer.close()
    plan = plan_topology(topology)
    checked = verify_results(tmp_path / "state", plan, broker)
    assert (checked.different, checked.stores[0].rows, checked.records) == (0, 14, 24)
    compared = compare_topics(plan, broker, offers)
    assert (compared.found.different, compared.found.rows) == (0, 14)
    found = why(tmp_path / "state", plan, broker, "offers", "p4")
    assert (found.value, found.exact) == ([4, 11], True)
    assert {(record.topic, record.key) for record in found.records} == {(products, "p4"), (merchants, "m1")}
    missing = why(tmp_path / "state", plan, broker, "offers", "p5")
    assert "no partner for key m2" in str(missing.ended)
