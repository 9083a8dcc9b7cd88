"""A schema registry and Kafka Connect beside the development broker, as processes in the background.

The registry is Apicurio Registry, with Confluent's interface. Connect runs with Debezium's connector for Postgres, and
with converters for JSON and for Avro in the registry's frame. They belong to a broker: their records bear its port,
their files lie in its folder, and they stop with it.

Every error is `SourceError` CS-620.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from crossstream.dev.background import (
    HOST,
    JVM,
    Jars,
    Server,
    check_free,
    find_java,
    known,
    prepare,
    records_folder,
    server_error,
    started,
    stop_server,
)
from crossstream.dev.broker import KAFKA_VERSION, BrokerInfo
from crossstream.errors import SourceError
from crossstream.storage.files import locked

REGISTRY_VERSION = "2.6.13.Final"
"""The last one that runs on Java 17."""
DEBEZIUM_VERSION = "3.6.1.Final"
REGISTRY_PORT = 8081
CONNECT_PORT = 8083

REGISTRY_JARS = Jars(
    f"apicurio-registry-{REGISTRY_VERSION}",
    f"Apicurio Registry {REGISTRY_VERSION}",
    (("io.apicurio", "apicurio-registry-app", REGISTRY_VERSION),),
    archive=True,
)
CONNECT_JARS = Jars(
    f"connect-{KAFKA_VERSION}-debezium-{DEBEZIUM_VERSION}",
    f"Kafka Connect {KAFKA_VERSION} with Debezium {DEBEZIUM_VERSION}",
    (
        ("io.debezium", "debezium-connector-postgres", DEBEZIUM_VERSION),
        ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
        ("org.apache.kafka", "connect-json", KAFKA_VERSION),
        ("org.apache.kafka", "connect-transforms", KAFKA_VERSION),
        ("io.apicurio", "apicurio-registry-utils-converter", REGISTRY_VERSION),
        ("org.slf4j", "slf4j-simple", "2.0.17"),
    ),
)

JSON: Mapping[str, str] = {
    f"{side}.converter{name}": value
    for side in ("key", "value")
    for name, value in (("", "org.apache.kafka.connect.json.JsonConverter"), (".schemas.enable", "false"))
}
"""A connector's settings for JSON without schemas."""


@dataclass(frozen=True, slots=True)
class Companion(Server):
    """A server that belongs to the broker at the port ``broker``."""

    READY: ClassVar[str]
    """A path that it answers when it is ready for clients."""
    START_SECONDS: ClassVar[float] = 120.0

    broker: int

    @property
    def record(self) -> str:
        return f"{self.broker}-{self.NAME}"

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"http://{HOST}:{self.port}"

    @property
    def answers(self) -> bool:
        with suppress(OSError, http.client.HTTPException, SourceError, ValueError):
            request(f"http://{HOST}:{self.port}{self.READY}")
            return True
        return False


@dataclass(frozen=True, slots=True)
class RegistryInfo(Companion):
    """A registry that was started by `start_registry`."""

    NAME: ClassVar[str] = "registry"
    TITLE: ClassVar[str] = "the registry"
    READY: ClassVar[str] = "/apis/ccompat/v7/subjects"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"


@dataclass(frozen=True, slots=True)
class ConnectInfo(Companion):
    """A Kafka Connect that was started by `start_connect`."""

    NAME: ClassVar[str] = "connect"
    TITLE: ClassVar[str] = "Kafka Connect"
    READY: ClassVar[str] = "/health"


C = TypeVar("C", bound=Companion)


def start_registry(broker: BrokerInfo, port: int | None = None) -> RegistryInfo:
    """Starts a registry and returns when it answers; one that runs already is kept.

    Its schemas lie in a folder of the broker's folder, and are there again at the next start.
    """
    with locked(records_folder() / f"{broker.port}-registry.lock"):
        info, running = _prepared(RegistryInfo, broker, port, REGISTRY_PORT)
        if running:
            return info
        java, jars = find_java(), REGISTRY_JARS.fetch()
        prepare(info, {})
        command = [java, *JVM, f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={info.port}"]
        command.append(f"-DREGISTRY_DATASOURCE_URL=jdbc:h2:file:{info.directory}/schemas")
        command += ["-jar", str(jars / f"apicurio-registry-app-{REGISTRY_VERSION}-runner.jar")]
        return started(info, command)


def start_connect(
    broker: BrokerInfo, port: int | None = None, registry: RegistryInfo | None = None
) -> ConnectInfo:
    """Starts Kafka Connect and returns when it answers; one that runs already is kept.

    Connectors write Avro in the registry's frame where a registry is given, else JSON without schemas. A connector
    may have converters of its own. Its connectors and their offsets lie in the broker's topics.
    """
    with locked(records_folder() / f"{broker.port}-connect.lock"):
        info, running = _prepared(ConnectInfo, broker, port, CONNECT_PORT)
        if running:
            return info
        java, jars = find_java(), CONNECT_JARS.fetch()
        kinds = {"config": "connect-configs", "offset": "connect-offsets", "status": "connect-status"}
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "listeners": info.url,
            "group.id": "connect",
            **{f"{kind}.storage.topic": topic for kind, topic in kinds.items()},
            **{f"{kind}.storage.replication.factor": "1" for kind in kinds},
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "offset.flush.interval.ms": "1000",
            # One worker: after it was killed, no other one takes its tasks.
            "scheduled.rebalance.max.delay.ms": "0",
            "plugin.discovery": "service_load",
            **(JSON if registry is None else avro(registry)),
        }
        prepare(info, settings)
        command = [java, *JVM, "-cp", str(jars / "*"), "org.apache.kafka.connect.cli.ConnectDistributed"]
        return started(info, [*command, str(info.properties_file)])


def running_companions(port: int) -> list[Companion]:
    """The registry and Connect of the broker at ``port``, as far as they run."""
    found = (known(f"{port}-{kind.NAME}", kind) for kind in (RegistryInfo, ConnectInfo))
    return [server for server in found if server is not None]


def stop_companions(port: int) -> list[Companion]:
    """Stops Connect and the registry of the broker at ``port``; which ones ran."""
    stopped = running_companions(port)[::-1]
    for server in stopped:
        with locked(records_folder() / f"{server.record}.lock"):
            stop_server(server)
    return stopped


def avro(registry: RegistryInfo) -> dict[str, str]:
    """A connector's settings for Avro in the registry's frame: a zero byte and four bytes of a schema's id."""
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": f"http://{HOST}:{registry.port}/apis/registry/v2",
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "false",
        ".apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": "false",
    }
    return {f"{side}.converter{name}": value for side in ("key", "value") for name, value in settings.items()}


def request(url: str, method: str = "GET", body: object = None) -> Any:
    """What a server answers in JSON to a request with a JSON body. Proxies of the environment are not asked.

    Raises `SourceError` CS-620 for an answer other than 2xx.
    """
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, f"/{path}", text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read().decode("utf-8", "replace")
    finally:
        connection.close()
    if answer.status >= 300:
        what = f"{method} {url} is answered with {answer.status}: {content[:1000]}"
        raise server_error(what, "look into the log of the server")
    return json.loads(content) if content else None


def _prepared(kind: type[C], broker: BrokerInfo, port: int | None, default: int) -> tuple[C, bool]:
    """The server to start; or the one that runs already, and True."""
    running = known(f"{broker.port}-{kind.NAME}", kind)
    if running is not None and port is not None and running.port != port:
        raise server_error(
            f"{kind.TITLE} of the broker at port {broker.port} runs at port {running.port} already",
            f"use that one, or stop both first (crossstream broker stop --port {broker.port})",
            port=port,
        )
    if running is not None:
        running.await_answer()
        return running, True
    info = kind(port or default, 0, str(Path(broker.directory) / kind.NAME), broker.port)
    check_free(info, lambda: "another program", f"choose another port: --{kind.NAME} {info.port + 100}")
    return info, False
