"""The development broker: start, status, stop; jars that are fetched once."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crossstream.dev import background, broker
from crossstream.dev.broker import BrokerInfo
from crossstream.errors import SourceError
from crossstream.kafka import KafkaConnection
from crossstream.storage.files import locked
from tests.kafka.fixtures import quick_java


@pytest.mark.kafka
def test_a_running_broker_is_kept(broker_info: BrokerInfo, tmp_path: Path) -> None:
    assert broker.start(broker_info.port) == broker_info
    assert broker.start(broker_info.port, broker_info.directory) == broker_info
    assert broker.status(broker_info.port) == broker_info
    assert broker.answers(broker_info.port)
    with pytest.raises(SourceError, match="already, with the directory") as caught:
        broker.start(broker_info.port, tmp_path)
    assert caught.value.code == "CS-620"


@pytest.mark.kafka
def test_topics_outlive_the_broker(broker_info: BrokerInfo, tmp_path: Path) -> None:
    """One that was killed, too; its process is there for a moment, and is not taken for the one that is started."""
    port, killed = broker.free_port(), None
    for start in range(3):
        with quick_java():
            info = broker.start(port, tmp_path)
        assert info.pid != killed
        log = KafkaConnection(info.bootstrap_servers).log()
        if start == 0:
            log.create_topic("kept", 2)
        assert log.topics() == {"kept": 2}
        log.close()
        if start == 0:
            killed = info.pid
            os.kill(killed, signal.SIGKILL)
            continue
        assert broker.stop(port)
        assert not broker.answers(port)
        assert broker.status(port) is None
        assert not info.alive
    assert not broker.stop(port)


def test_a_process_that_becomes_another_program_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker on a busy machine was taken for dead while it became java."""
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path / "cache"))
    for number in range(20):
        info = BrokerInfo(9092, 0, str(tmp_path))
        pid = background.start_detached(["/bin/sh", "-c", "exec sleep 5"], info)
        info = BrokerInfo(9092, pid, str(tmp_path))
        assert all(info.alive for _ in range(20)), number
        assert background.end(info)
        assert not info.alive


def test_a_taken_port_is_an_error() -> None:
    with socket.socket() as other:
        other.bind((broker.HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        assert not broker.answers(port, timeout=0.1)
        assert broker.status(port) is None
        with pytest.raises(SourceError, match="taken by another program") as caught:
            broker.start(port)
        assert caught.value.code == "CS-620"


def test_nothing_at_the_port() -> None:
    port = broker.free_port()
    assert not broker.answers(port)
    assert broker.status(port) is None
    assert not broker.stop(port)


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A java that counts its calls and makes the jars; what it does is in its ``action`` file."""
    java = tmp_path / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'test "$1" = -version && {{ cat "{tmp_path}/version" >&2; exit; }}\n'
        f'echo call >> "{tmp_path}/calls"\n'
        "for pattern; do :; done\n"
        'folder=$(dirname "$pattern")\n'
        f'. "{tmp_path}/action"\n'
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "version").write_text('openjdk version "21.0.1" 2025-01-01\n')
    (tmp_path / "action").write_text(
        f'sleep 0.2; mkdir -p "$folder"; touch "$folder/kafka_2.13-{broker.KAFKA_VERSION}.jar"\n'
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java-home"))
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_jars_are_fetched_once_by_many(fake_java: Path) -> None:
    assert broker.find_kafka_jars() is None
    abandoned = fake_java / "cache" / ".fetching-abandoned"
    abandoned.mkdir(parents=True)
    with ThreadPoolExecutor(4) as pool:
        folders = {found.result() for found in [pool.submit(broker.fetch_kafka_jars) for _ in range(4)]}
    assert folders == {fake_java / "cache" / f"kafka-{broker.KAFKA_VERSION}"}
    assert (fake_java / "calls").read_text() == "call\n"
    assert broker.find_kafka_jars() in folders
    assert not list((fake_java / "cache").glob(".fetching-*"))


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    file, inside, most = tmp_path / "some.lock", 0, 0

    def enter() -> None:
        nonlocal inside, most
        for _ in range(50):
            with locked(file):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0001)
                inside -= 1

    with ThreadPoolExecutor(4) as pool:
        for entered in [pool.submit(enter) for _ in range(4)]:
            entered.result()
    assert most == 1


def test_jars_that_cannot_be_fetched_leave_nothing_behind(fake_java: Path) -> None:
    (fake_java / "action").write_text('mkdir -p "$folder"; echo "module not found: kafka"; exit 1\n')
    with pytest.raises(SourceError, match="module not found: kafka") as caught:
        broker.fetch_kafka_jars()
    assert caught.value.code == "CS-620"
    assert broker.find_kafka_jars() is None
    assert not list((fake_java / "cache").glob(".fetching-*"))


def test_java_must_be_there_and_new_enough(fake_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake_java / "version").write_text('java version "1.8.0_392"\n')
    with pytest.raises(SourceError, match="is Java 8") as caught:
        broker.start(broker.free_port())
    assert caught.value.code == "CS-620"
    monkeypatch.setenv("JAVA_HOME", str(fake_java))
    with pytest.raises(SourceError, match="there is no Java in JAVA_HOME") as caught:
        broker.find_java()
    assert caught.value.code == "CS-620"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(fake_java))
    with pytest.raises(SourceError, match="no Java on this machine"):
        broker.find_java()


def test_a_folder_that_cannot_be_made(fake_java: Path, tmp_path: Path) -> None:
    (fake_java / "cache" / f"kafka-{broker.KAFKA_VERSION}").mkdir(parents=True)
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SourceError, match="the folder of the broker cannot be made") as caught:
            broker.start(broker.free_port(), folder)
        assert (caught.value.code, caught.value.where) == ("CS-620", {"folder": str(folder)})


def test_a_broker_that_does_not_start_tells_its_log(fake_java: Path) -> None:
    (fake_java / "cache" / f"kafka-{broker.KAFKA_VERSION}").mkdir(parents=True)
    (fake_java / "action").write_text('echo "the disk is full"; exit 1\n')
    with pytest.raises(SourceError, match="the disk is full") as caught:
        broker.start(broker.free_port())
    assert caught.value.code == "CS-620"
    assert "broker.log" in str(caught.value.next)
