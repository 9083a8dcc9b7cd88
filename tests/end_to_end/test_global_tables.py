"""Global tables on a real broker: aborted transactions in their topic, changes while it runs and while it is down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.dev.broker import BrokerInfo
from crossstream.kafka.log import KafkaLog
from tests.end_to_end.clients import Row, consume_table, produce, produce_half_aborted

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SHOPS = 5_000


def topology() -> cs.Topology:
    """A stream of orders and a table of products, each with the city of its shop."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=serdes.string(), value=serdes.json())
    produced = cs.Produced(key=serdes.string(), value=serdes.json())
    shops = builder.global_table("glob-shops", consumed, cs.Materialized(store="shops"))
    orders, products = builder.stream("glob-orders", consumed), builder.table("glob-products", consumed)
    orders.left_join(shops, city, key_selector=shop_of).to("glob-told", produced)
    products.left_join(shops, city, foreign_key=shop_of).to_stream().to("glob-offers", produced)
    return builder.build()


def city(row: Any, shop: Any) -> Any:
    return {"shop": row["shop"], "city": shop and shop["city"]}


def shop_of(row: Any) -> Any:
    return row["shop"]


def rows(letter: str, count: int, first: int = 0) -> list[Row]:
    """Rows that name shops, some of them unknown."""
    return [
        (f"{letter}{number}", {"shop": f"s{number * 7 % (SHOPS + 500)}"})
        for number in range(first, first + count)
    ]


def found(given: list[Row], held: dict[str, Any]) -> dict[str, Any]:
    return {key: city(row, held.get(row["shop"])) for key, row in given if row is not None}


def test_a_global_table_on_kafka(spark: Any, broker_info: BrokerInfo, log: KafkaLog, tmp_path: Path) -> None:
    servers = broker_info.bootstrap_servers
    for topic, partitions in (("glob-shops", 3), ("glob-orders", 4), ("glob-products", 2)):
        log.create_topic(topic, partitions)
    for topic in ("glob-told", "glob-offers"):
        log.create_topic(topic, 2)
    config = cs.StreamsConfig(
        application_id="glob",
        bootstrap_servers=servers,
        state_dir=tmp_path / "state",
        partitions=3,
        max_records_per_batch=2_000,
    )
    committed = produce_half_aborted(
        servers, "glob-shops", [(f"s{number}", {"city": f"C{number}"}) for number in range(2 * SHOPS)]
    )
    held: dict[str, Any] = dict(committed)
    orders, products = rows("o", 3_000), rows("p", 2_000)
    produce(servers, "glob-orders", orders)
    produce(servers, "glob-products", products)
    with cs.SparkStreams(topology(), config, spark) as app:
        app.process_available()
        assert dict(app.store("shops").all()) == held
        assert consume_table(servers, "glob-told") == found(orders, held)
        assert consume_table(servers, "glob-offers") == found(products, held)

        moved: list[Row] = [(f"s{number}", {"city": f"New {number}"}) for number in range(0, 600, 2)]
        gone: list[Row] = [(f"s{number}", None) for number in range(1, 600, 2)]
        produce(servers, "glob-shops", [*moved, *gone])
        app.process_available()
        held |= dict(moved)
        held = {key: value for key, value in held.items() if key not in dict(gone)}
        later = rows("o", 500, 3_000)
        produce(servers, "glob-orders", later)
        app.process_available()
        assert consume_table(servers, "glob-told").items() >= found(later, held).items()
        assert consume_table(servers, "glob-offers") == found(products, held)
    produce(servers, "glob-shops", [("s0", {"city": "While down"})])
    last: list[Row] = [("o-last", {"shop": "s0"})]
    produce(servers, "glob-orders", last)
    held["s0"] = {"city": "While down"}
    with cs.SparkStreams(topology(), config, spark) as app:
        app.process_available()
        assert app.progress.lag == 0
        assert app.progress.total_rows == 2, "nothing is read again"
        assert consume_table(servers, "glob-told").items() >= found(last, held).items()
        assert consume_table(servers, "glob-offers") == found(products, held)
