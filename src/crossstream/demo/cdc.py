"""Changes in a real Postgres, as records in Kafka: Postgres, Debezium in Kafka Connect, a schema registry, a broker.

    python -m crossstream.demo.cdc

starts all of them on free ports of this machine, changes two tables in SQL, and shows which records come.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossstream.demo.postgres import Postgres, started
from crossstream.errors import SourceError
from crossstream.kafka import KafkaConnection, broker, servers
from crossstream.kafka.broker import BrokerInfo
from crossstream.kafka.servers import ConnectInfo, RegistryInfo
from crossstream.topics import TopicPartition

if TYPE_CHECKING:
    from crossstream.kafka.log import KafkaLog

CAPTURE_SECONDS = 120.0
SHOW_SECONDS = 10.0

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text);
CREATE TABLE orders (id int PRIMARY KEY, customer_id int, amount numeric(10, 2) NOT NULL, at timestamptz DEFAULT now());
INSERT INTO customers VALUES (1, 'Ada', 'London'), (2, 'Grace', 'Arlington');
INSERT INTO orders VALUES (10, 1, 12.50), (11, 1, 7.00), (12, 2, 99.90);
"""
CHANGES = (
    ("a new order", "INSERT INTO orders VALUES (13, 2, 45.00)"),
    (
        "a customer moves: all orders of this customer change",
        "UPDATE customers SET city = 'Paris' WHERE id = 1",
    ),
    ("an order for a customer who is not there yet", "INSERT INTO orders VALUES (14, 3, 8.25)"),
    ("the customer comes", "INSERT INTO customers VALUES (3, 'Edsger', 'Nuenen')"),
    ("an order goes to another customer", "UPDATE orders SET customer_id = 2 WHERE id = 10"),
    ("an order gets another key", "UPDATE orders SET id = 110 WHERE id = 11"),
    ("a customer is deleted", "DELETE FROM customers WHERE id = 2"),
)


@dataclass(frozen=True, slots=True)
class Parts:
    """All servers between a row in Postgres and a record in a topic."""

    postgres: Postgres
    broker: BrokerInfo
    registry: RegistryInfo
    connect: ConnectInfo

    def capture(
        self, prefix: str, database: str = "postgres", settings: Mapping[str, str] | None = None
    ) -> None:
        """Starts a connector, and returns when it has read the tables and follows their changes."""
        config = {**self.postgres.connector(prefix, database), "poll.interval.ms": "50", **(settings or {})}
        servers.request(f"{self.connect.url}/connectors/{prefix}/config", "PUT", config)
        self.await_streaming(prefix, config["slot.name"])

    def await_streaming(self, connector: str, slot: str) -> None:
        """Returns when the connector follows the changes. `SourceError` CS-620 with its trace if it fails."""
        query = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"
        deadline = time.monotonic() + CAPTURE_SECONDS
        while True:
            if failure := self.failure(connector):
                what = f"the connector {connector} failed: {failure[:2000]}"
                raise SourceError(what, code="CS-620", next="correct its settings, or the table")
            if self.postgres.select(query):
                return
            if time.monotonic() > deadline:
                raise SourceError(
                    f"the connector {connector} does not follow the changes after {CAPTURE_SECONDS:g} s",
                    code="CS-620",
                    next=f"look into {self.connect.log_file}",
                )
            time.sleep(0.1)

    def failure(self, connector: str) -> str | None:
        """Why a connector failed."""
        try:
            status = servers.request(f"{self.connect.url}/connectors/{connector}/status")
        except SourceError:  # it was just made
            return None
        failed = (part for part in (status["connector"], *status["tasks"]) if part["state"] == "FAILED")
        return next((str(part.get("trace")) for part in failed), None)


@contextmanager
def parts() -> Iterator[Parts]:
    """Starts all parts on free ports, in a temporary folder; they end with the block. `SourceError` CS-620."""
    with ExitStack() as stack:
        postgres = stack.enter_context(started())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="crossstream-cdc-"))
        info = broker.start(broker.free_port(), folder)
        stack.callback(broker.stop, info.port)
        stack.callback(servers.stop_companions, info.port)
        registry = servers.start_registry(info, broker.free_port())
        yield Parts(postgres, info, registry, servers.start_connect(info, broker.free_port(), registry))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m crossstream.demo.cdc", description=__doc__)
    parser.add_argument("--pause", type=float, default=1.0, metavar="SECONDS", help="between two changes")
    pause = parser.parse_args(argv).pause
    print(
        "Starting Postgres, Kafka, a schema registry and Kafka Connect (a minute; the first time loads 230 MB)…"
    )
    began = time.monotonic()
    with parts() as all_parts:
        print(f"They answer after {time.monotonic() - began:.0f} s:")
        print(f"  postgres  127.0.0.1:{all_parts.postgres.port}")
        print(f"  broker    {all_parts.broker.bootstrap_servers}")
        for server in (all_parts.registry, all_parts.connect):
            print(f"  {server.NAME:<9} {server.url}")
        all_parts.postgres.execute(TABLES)
        print(TABLES)
        all_parts.capture("shop")
        log = KafkaConnection(all_parts.broker.bootstrap_servers).log()
        try:
            known = _show_new(log, {})
            for words, sql in CHANGES:
                time.sleep(pause)
                print(f"\n-- {words}\n{sql};")
                all_parts.postgres.execute(sql)
                known = _show_new(log, known)
        finally:
            log.close()
        print("\nThe tables at the end:")
        for table in ("customers", "orders"):
            for row in all_parts.postgres.select(f"SELECT * FROM {table} ORDER BY id"):
                print(f"  {table}: {row}")


def _show_new(log: KafkaLog, known: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    """Waits for records until no more come, and prints how many each topic has got; the offsets after them."""
    began, ends = time.monotonic(), known
    while True:
        partitions = [TopicPartition(topic, 0) for topic in log.topics() if topic.startswith("shop.")]
        before, ends = ends, log.end_offsets(partitions)
        new = {partition: end - known.get(partition, 0) for partition, end in ends.items()}
        if (any(new.values()) and ends == before) or time.monotonic() > began + SHOW_SECONDS:
            break
        time.sleep(0.3)
    for partition, count in sorted(new.items(), key=lambda item: item[0].topic):
        if count:
            print(f"    {partition.topic}: {count} {'record' if count == 1 else 'records'}")
    return ends


if __name__ == "__main__":
    main()
