"""The registry and Connect beside the development broker, with a Java that only pretends. The real ones: end_to_end."""

from __future__ import annotations

import http.server
import os
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crossstream.dev import servers
from crossstream.dev.background import HOST, free_port, record_file
from crossstream.dev.broker import BrokerInfo
from crossstream.dev.servers import CONNECT_JARS, REGISTRY_JARS, ConnectInfo, RegistryInfo
from crossstream.errors import SourceError


@pytest.fixture
def info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerInfo:
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path / "cache"))
    return BrokerInfo(free_port(), 0, str(tmp_path / "broker"))


@pytest.fixture
def action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `java` does, as a shell script."""
    java = tmp_path / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    version = """test "$1" = -version && { echo 'openjdk version "21.0.1"' >&2; exit; }"""
    java.write_text(f'#!/bin/sh\n{version}\n. "{tmp_path}/action"\n')
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java-home"))
    return tmp_path / "action"


@pytest.fixture
def answering() -> Iterator[int]:
    """The port of a server that answers every request with {}."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_that_does_not_start_shows_its_log(info: BrokerInfo, action: Path, tmp_path: Path) -> None:
    for jars, start in (
        (REGISTRY_JARS, servers.start_registry),
        (CONNECT_JARS, servers.start_connect),
    ):
        (tmp_path / "cache" / jars.folder).mkdir(parents=True)
        action.write_text('echo "the disk is full"; exit 1\n')
        with pytest.raises(
            SourceError, match="did not start: its process ended\n    the disk is full"
        ) as caught:
            start(info, free_port())
        assert caught.value.code == "CS-620"
        assert ".log" in str(caught.value.next)


def test_what_runs_is_found_and_stopped(
    info: BrokerInfo, action: Path, tmp_path: Path, answering: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache" / REGISTRY_JARS.folder).mkdir(parents=True)
    action.write_text('echo "$@"; exec sleep 60\n')
    monkeypatch.setattr(RegistryInfo, "answers", property(lambda info: bool(info.log_file.read_text())))
    port = free_port()
    registry = servers.start_registry(info, port)
    assert registry.url == f"http://{HOST}:{port}/apis/ccompat/v7"
    said = registry.log_file.read_text()
    assert f"-Dquarkus.http.host={HOST} -Dquarkus.http.port={port}" in said
    assert servers.start_registry(info) == registry
    assert servers.running_companions(info.port) == [registry]
    assert servers.running_companions(info.port + 1) == []
    with pytest.raises(SourceError, match=f"the registry of the broker .* runs at port {port} already"):
        servers.start_registry(info, answering)
    assert servers.stop_companions(info.port) == [registry]
    assert not registry.alive
    assert not record_file(registry.record).exists()
    assert servers.stop_companions(info.port) == []


def test_a_port_that_is_taken(info: BrokerInfo) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        with pytest.raises(SourceError, match="taken by another program") as caught:
            servers.start_connect(info, other.getsockname()[1])
    assert "--connect" in str(caught.value.next)


def test_an_archive_is_unpacked_once(info: BrokerInfo, action: Path, tmp_path: Path) -> None:
    action.write_text(
        'for pattern; do :; done; folder=$(dirname "$pattern"); mkdir -p "$folder"; touch "$folder/runner.jar"\n'
        'tar -C "$folder" -czf "$folder/apicurio-registry-app-2.6.13.Final-all.tar.gz" runner.jar\n'
        'rm "$folder/runner.jar"\n'
    )
    folder = REGISTRY_JARS.fetch()
    assert os.listdir(folder) == ["runner.jar"]
    action.write_text("exit 1\n")
    assert REGISTRY_JARS.fetch() == folder
    with pytest.raises(SourceError, match=r"the jars of Kafka Connect .* could not be fetched"):
        CONNECT_JARS.fetch()


def test_connectors_write_avro_where_there_is_a_registry(
    info: BrokerInfo, action: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache" / CONNECT_JARS.folder).mkdir(parents=True)
    action.write_text("exec sleep 60\n")
    monkeypatch.setattr(ConnectInfo, "answers", True)
    for registry, converter in (
        (None, "org.apache.kafka.connect.json.JsonConverter"),
        (RegistryInfo(8081, 0, "", info.port), "io.apicurio.registry.utils.converter.AvroConverter"),
    ):
        connect = servers.start_connect(info, free_port(), registry)
        settings = dict(line.split("=", 1) for line in connect.properties_file.read_text().splitlines())
        assert settings["value.converter"] == settings["key.converter"] == converter
        assert settings["listeners"] == connect.url
        servers.stop_companions(info.port)


def test_a_request_that_is_refused_says_how(info: BrokerInfo, answering: int) -> None:
    url = f"http://{HOST}:{answering}"
    assert servers.request(f"{url}/any") == {}
    with pytest.raises(SourceError, match=r"PUT .*any is answered with 501") as caught:
        servers.request(f"{url}/any", "PUT", {"a": 1})
    assert caught.value.code == "CS-620"
    server = ConnectInfo(answering, 0, "", info.port)
    assert server.answers
    assert not replace(server, port=free_port()).answers
