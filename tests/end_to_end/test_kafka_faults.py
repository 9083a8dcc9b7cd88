"""A broker that goes away, records that retention deletes: recovered from, or told."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.dev import broker
from crossstream.dev.broker import BrokerInfo
from crossstream.kafka import KafkaConnection
from crossstream.kafka.log import KafkaLog
from tests.end_to_end.clients import consume_table, produce
from tests.kafka.fixtures import delete, frozen, proxied, quick_java
from tests.kafka.proxy import FORGETFUL, Proxy

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def copying(source: str, target: str) -> cs.Topology:
    """A topology with state: the table of a topic, and its changes."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=serdes.string(), value=serdes.json())
    table = builder.table(source, consumed, cs.Materialized(store="rows"))
    table.to_stream().to(target, cs.Produced(key=serdes.string(), value=serdes.json()))
    return builder.build()


def rows(start: int, stop: int) -> list[tuple[str, dict[str, Any] | None]]:
    return [(f"k{number}", {"n": number}) for number in range(start, stop)]


def test_a_broker_away_for_twenty_seconds(spark: Any, broker_info: BrokerInfo, log: KafkaLog, tmp_path: Path):
    servers = broker_info.bootstrap_servers
    for topic in ("away-in", "away-out"):
        log.create_topic(topic, 2)
    produce(servers, "away-in", rows(0, 1_000))
    config = cs.StreamsConfig(application_id="away", bootstrap_servers=servers, state_dir=tmp_path / "state")
    with cs.SparkStreams(copying("away-in", "away-out"), config, spark) as app:
        app.start()
        app.process_available()
        with frozen(broker_info, 20):
            threading.Event().wait(20)
        produce(servers, "away-in", rows(1_000, 2_000))
        app.process_available()
        assert app.status == "running"
        assert app.store("rows").get("k1999") == {"n": 1999}
    assert len(consume_table(servers, "away-out")) == 2_000


def test_a_broker_that_said_that_there_are_no_brokers(
    spark: Any, broker_info: BrokerInfo, log: KafkaLog, proxy: Proxy, tmp_path: Path
):
    """As one does that just starts. The clients of driver and workers would not look for brokers any more."""
    for topic in ("lonely-in", "lonely-out"):
        log.create_topic(topic, 2)
    produce(broker_info.bootstrap_servers, "lonely-in", rows(0, 1_000))
    config = cs.StreamsConfig(
        application_id="lonely",
        bootstrap_servers=f"127.0.0.1:{proxied(broker_info)[0]}",
        state_dir=tmp_path / "state",
        kafka=FORGETFUL,
    )
    with cs.SparkStreams(copying("lonely-in", "lonely-out"), config, spark) as app:
        app.start()
        app.process_available()
        proxy.lie(1)
        produce(broker_info.bootstrap_servers, "lonely-in", rows(1_000, 2_000))
        app.process_available()
        assert app.status == "running"
    assert consume_table(broker_info.bootstrap_servers, "lonely-out") == dict(rows(0, 2_000))


@pytest.mark.nightly
@pytest.mark.usefixtures("broker_info")  # skips where no broker can be started
def test_a_broker_killed_and_started_again(spark: Any, tmp_path: Path):
    """It dies while batches run and while records come, and is away for 20 seconds."""
    port, home = broker.free_port(), tmp_path / "broker"
    with quick_java():
        info = broker.start(port, home)
    servers, total = info.bootstrap_servers, 60_000
    own = KafkaConnection(servers).log()
    for topic in ("killed-in", "killed-out"):
        own.create_topic(topic, 2)
    own.close()
    config = cs.StreamsConfig(
        application_id="killed",
        bootstrap_servers=servers,
        state_dir=tmp_path / "state",
        max_records_per_batch=2_000,
    )
    safe = {"enable.idempotence": True}
    coming = threading.Thread(target=produce, args=(servers, "killed-in", rows(0, total)), kwargs=safe)
    try:
        with cs.SparkStreams(copying("killed-in", "killed-out"), config, spark) as app:
            batches = threading.Semaphore(0)
            app.on_progress(lambda progress: batches.release())
            app.start()
            coming.start()
            for _ in range(3):
                assert batches.acquire(timeout=60)
            os.kill(info.pid, signal.SIGKILL)
            threading.Event().wait(20)
            assert app.status == "running"
            with quick_java():
                broker.start(port, home)
            coming.join()
            app.process_available()
            assert app.status == "running"
            assert dict(app.store("rows").all()) == dict(rows(0, total))
        assert consume_table(servers, "killed-out") == dict(rows(0, total))
    finally:
        broker.stop(port)


def deleted_before(servers: str, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result()


def test_records_deleted_before_they_were_read_are_an_error(
    spark: Any, broker_info: BrokerInfo, log: KafkaLog, tmp_path: Path
):
    servers = broker_info.bootstrap_servers
    for topic in ("lost-in", "lost-out"):
        log.create_topic(topic, 1)
    produce(servers, "lost-in", rows(0, 10))
    settings = {"application_id": "lost", "bootstrap_servers": servers, "state_dir": tmp_path / "state"}
    with cs.SparkStreams(copying("lost-in", "lost-out"), cs.StreamsConfig(**settings), spark) as app:
        app.process_available()
    produce(servers, "lost-in", rows(10, 30))
    deleted_before(servers, "lost-in", 20)
    with (
        pytest.raises(cs.SourceError) as error,
        cs.SparkStreams(copying("lost-in", "lost-out"), cs.StreamsConfig(**settings), spark) as app,
    ):
        app.process_available()
    assert (error.value.code, error.value.where["topic"], error.value.where["offset"]) == (
        "CS-601",
        "lost-in",
        10,
    )
    assert "on_lost_records" in (error.value.next or "")
    skipping = cs.StreamsConfig(**settings, on_lost_records="skip")
    with cs.SparkStreams(copying("lost-in", "lost-out"), skipping, spark) as app:
        app.process_available()
        assert app.progress.dropped == {"lost by retention": 10}
        assert {key for key, _ in app.store("rows").all()} == {f"k{n}" for n in [*range(10), *range(20, 30)]}


def test_a_topic_made_anew(spark: Any, broker_info: BrokerInfo, log: KafkaLog, tmp_path: Path):
    """It has as many records as before and more, so offsets do not tell it."""
    servers = broker_info.bootstrap_servers
    for topic in ("anew-in", "anew-out"):
        log.create_topic(topic, 1)
    produce(servers, "anew-in", rows(0, 10))
    settings = {"application_id": "anew", "bootstrap_servers": servers, "state_dir": tmp_path / "state"}
    with cs.SparkStreams(copying("anew-in", "anew-out"), cs.StreamsConfig(**settings), spark) as app:
        app.start()
        app.process_available()
        delete(servers, "anew-in")
        log.create_topic("anew-in", 1)
        produce(servers, "anew-in", rows(100, 120))
        with pytest.raises(cs.SourceError) as while_running:
            app.await_termination(60)
    with (
        pytest.raises(cs.SourceError, match="recreated") as at_start,
        cs.SparkStreams(copying("anew-in", "anew-out"), cs.StreamsConfig(**settings), spark) as app,
    ):
        app.process_available()
    for error in (while_running, at_start):
        assert (error.value.code, error.value.where["topic"]) == ("CS-603", "anew-in")
    skipping = cs.StreamsConfig(**settings, on_lost_records="skip")
    with cs.SparkStreams(copying("anew-in", "anew-out"), skipping, spark) as app:
        app.process_available()
        found = {key for key, _ in app.store("rows").all()}
    assert found >= {f"k{n}" for n in [*range(10), *range(100, 120)]}


def test_a_missing_topic_is_told_at_the_start(spark: Any, broker_info: BrokerInfo, tmp_path: Path):
    config = cs.StreamsConfig(
        application_id="missing",
        bootstrap_servers=broker_info.bootstrap_servers,
        state_dir=tmp_path / "state",
    )
    with (
        pytest.raises(cs.SourceError, match="does not exist") as error,
        cs.SparkStreams(copying("no-such-topic", "anywhere"), config, spark) as app,
    ):
        app.start()
    assert error.value.code == "CS-602"
