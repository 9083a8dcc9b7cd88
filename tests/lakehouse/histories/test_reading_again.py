"""What reads topics beside an application finds the rows of a history, or does without them."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.application.inputs import connection_of
from crossstream.catalog.planners import plan_topology
from crossstream.recompute.verify import verify_results
from tests.lakehouse.histories.topic_and_lake import Lake, Order, Record, rows_of, write_topic

NOON = 1_700_000_000_000
RECORDS = [
    Record(0, "ada", ("x", 1), NOON),
    Record(0, "bob", ("y", 2), NOON + 1),
    Record(0, "ada", ("z", 3), NOON + 2),
]
UNTIL: dict[str, Any] = {"until": datetime.fromtimestamp((NOON + 2) / 1000, timezone.utc), "deleted": None}


def made(tmp_path: Path, settings: dict[str, Any]) -> tuple[cs.KTable, cs.StreamsBuilder]:
    lake = Lake(tmp_path, "delta")
    lake.create()
    lake.append(rows_of(RECORDS)[:2])
    write_topic(tmp_path / "topics", RECORDS, {0: 2})
    builder = cs.StreamsBuilder()
    return builder.table("orders", value=Order, store="orders", history=lake.history(**settings)), builder


def config(tmp_path: Path) -> cs.StreamsConfig:
    return cs.StreamsConfig(
        application_id="shop", state_dir=tmp_path / "state", topics_dir=tmp_path / "topics", engine="local"
    )


@pytest.mark.parametrize("settings", [{}, UNTIL], ids=["offsets", "a time"])
def test_why_and_verify(tmp_path: Path, settings: dict[str, Any]) -> None:
    orders, builder = made(tmp_path, settings)
    orders.group_by(lambda key, order: ("all", order.amount), key=str, value=int).reduce(
        lambda a, b: a + b, lambda a, b: a - b, materialized=cs.Materialized(store="total")
    )
    topology = builder.build()
    with cs.SparkStreams(topology, config(tmp_path)) as app:
        app.process_available()
        assert dict(app.store("total").all()) == {"all": 5}
        of_lake, of_topic, of_both = (
            str(app.why(*row)) for row in (("orders", "bob"), ("orders", "ada"), ("total", "all"))
        )
    place = "past:orders" if settings else "offset 1"
    assert '{"customer":"y","amount":2}' in of_lake
    assert place in of_lake
    assert "offset 2" in of_topic
    assert '"amount":2' in of_both
    assert '"amount":3' in of_both
    plan = plan_topology(topology)
    state = tmp_path / "state"
    assert verify_results(state, plan, connection_of(config(tmp_path), topology, state)).different == 0


@pytest.mark.parametrize("settings", [{}, UNTIL], ids=["offsets", "a time"])
def test_a_preview_reads_the_topic_alone(tmp_path: Path, settings: dict[str, Any]) -> None:
    orders, _ = made(tmp_path, settings)
    assert orders.preview(10, topics_dir=tmp_path / "topics")["key"].to_list() == ["ada"]


@pytest.mark.parametrize("settings", [{}, UNTIL], ids=["offsets", "a time"])
def test_the_test_driver_pipes_records_into_the_topic(tmp_path: Path, settings: dict[str, Any]) -> None:
    _, builder = made(tmp_path, settings)
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("orders", str, Order).pipe_input("cid", Order("w", 4))
        assert driver.get_key_value_store("orders").get("cid") == Order("w", 4)


def test_secrets_of_a_catalog_are_in_no_text(tmp_path: Path) -> None:
    past = cs.history(iceberg="shop.orders", catalog={"type": "rest", "token": "hidden"}, until=cs.offsets())
    assert "hidden" not in repr(past)
