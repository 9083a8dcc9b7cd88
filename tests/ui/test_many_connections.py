"""More connections than an application has files: they end neither the application, nor what answers beside it."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from crossstream.metrics import serving
from tests.faults.one_process import streams
from tests.metrics.shop import config_of, shop, write
from tests.ui.test_page import events, get

pytestmark = pytest.mark.slow

CROWD = """
import socket, sys
host, port, count, said = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
held = []
for _ in range(count):
    try:
        held.append(socket.create_connection((host, port), timeout=2))
        held[-1].sendall(said)
    except OSError:
        pass
print(len(held), flush=True)
sys.stdin.read()
"""
"""Connects, says a little, and waits."""

FILES = 200
"""So many files more than it has now may this process open."""


@contextmanager
def few_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + FILES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def crowd(port: int, said: str) -> Iterator[None]:
    """Twice as many connections as there are files, from another process."""
    command = [sys.executable, "-c", CROWD, "127.0.0.1", str(port), str(2 * FILES), said]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) > FILES
        yield
        other.kill()


def answers(address: str, path: str) -> bool:
    """Whether a request is answered; one may be the oldest of too many and end without."""
    for _ in range(5):
        with suppress(OSError):
            return get(address, path)[0] == 200
        time.sleep(0.2)
    return False


@pytest.mark.parametrize("said", ["", "GET / HTTP/1.1\r\nHost: localhost\r\n", "GET / HTTP/1.1\r\n\r\n"])
@pytest.mark.parametrize("server", ["metrics", "page", "health"])
def test_an_application_goes_on(tmp_path: Path, server: str, said: str) -> None:
    write(tmp_path, "customers", [("c1", {"name": "Ann"}, 1_000)])
    write(tmp_path, "orders", [("o1", {"customer": "c1"}, 5_000)])
    with streams(shop(), config_of(tmp_path, metrics_port=0, ui_port=0, health_port=0)) as app:
        app._runner._health.open()
        app.process_available()
        page = str(app.ui_address)
        asked = {
            "metrics": f"http://127.0.0.1:{app._monitoring.metrics_port}/",
            "page": page,
            "health": f"http://127.0.0.1:{app._runner._health.port}/",
        }
        port = int(asked[server].split(":")[2].partition("/")[0])
        with few_files(), crowd(port, said):
            for number in range(3):
                write(tmp_path, "orders", [(f"p{number}", {"customer": "c1"}, 6_000)])
                app.process_available()
            assert dict(app.store("details").all()).keys() == {"o1", "p0", "p1", "p2"}
            assert answers(asked[server], {"page": ""}.get(server, server))
        app._runner._health.close()


@pytest.mark.parametrize("server", ["metrics", "page"])
def test_who_asks_nothing_is_parted_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    from crossstream.ui import connections

    assert (serving.SECONDS, connections.SECONDS) == (10, 10)
    monkeypatch.setattr(serving, "SECONDS", 0.5)
    monkeypatch.setattr(connections, "SECONDS", 0.5)
    with streams(shop(), config_of(tmp_path, metrics_port=0, ui_port=0)) as app:
        write(tmp_path, "orders", [])
        write(tmp_path, "customers", [])
        app.process_available()
        page = int(str(app.ui_address).split(":")[2].partition("/")[0])
        port = app._monitoring.metrics_port if server == "metrics" else page
        for said in (b"", b"GET /", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
            with closing(socket.create_connection(("127.0.0.1", int(port or 0)), timeout=5)) as one:
                one.sendall(said)
                assert ended(one)


def test_a_browser_that_listens_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crossstream.ui import connections

    monkeypatch.setattr(connections, "SECONDS", 0.3)
    write(tmp_path, "orders", [])
    write(tmp_path, "customers", [])
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        seen = [one["time"] for one in events(str(app.ui_address), 3)]
    assert seen[-1] - seen[0] > 1


def test_metrics_are_of_this_machine_unless_said_otherwise(tmp_path: Path) -> None:
    assert config_of(tmp_path).metrics_host == "127.0.0.1"


def ended(one: socket.socket) -> bool:
    """Whether the other side has ended the connection, perhaps with an answer."""
    try:
        while one.recv(1000):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
