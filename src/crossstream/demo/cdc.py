"""Changes in a real Postgres, as records in Kafka: Postgres, Debezium in Kafka Connect, a schema registry, a broker.

`parts` starts all of them on free ports of this machine. `crossstream demo --postgres` shows them at work.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from crossstream.demo.postgres import Postgres, started
from crossstream.errors import SourceError
from crossstream.kafka import KafkaConnection, broker, servers
from crossstream.kafka.broker import BrokerInfo
from crossstream.kafka.servers import ConnectInfo, RegistryInfo

CAPTURE_SECONDS = 120.0


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

    def await_topics(self, *topics: str) -> None:
        """Returns when Connect has made the topics: it does with the first record of each."""
        log = KafkaConnection(self.broker.bootstrap_servers).log()
        try:
            deadline = time.monotonic() + CAPTURE_SECONDS
            while missing := set(topics) - set(log.topics()):
                if time.monotonic() > deadline:
                    raise SourceError(
                        f"Connect has not made {', '.join(sorted(missing))} after {CAPTURE_SECONDS:g} s",
                        code="CS-620",
                        next=f"put a row into each table, and look into {self.connect.log_file}",
                    )
                time.sleep(0.1)
        finally:
            log.close()

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
