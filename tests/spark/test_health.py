"""`health_port`: what /health and /ready answer while an application starts, works, is stuck, fails and stops."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.health import Health
from tests.faults.one_process import streams
from tests.spark.world import World

TEXT = serdes.string()


def ask(port: int | None, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path / "world")
    found.create(words=1, out=1)
    found.append("words", [("a", "x", 1)])
    return found


class Gate:
    """A function of the topology that waits until it may go on."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, value: str) -> str:
        self.reached.set()
        self.open.wait(30)
        if value == "bad":
            raise ValueError("bad")
        return value


GATES: dict[str, Gate] = {}


def gate_of_test(value: str) -> str:
    return GATES["now"](value)


def topology() -> cs.Topology:
    builder = cs.StreamsBuilder()
    words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT)).map_values(gate_of_test)
    words.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def wait_for(port: int | None, path: str, status: int) -> dict[str, Any]:
    for _ in range(200):
        found, body = ask(port, path)
        if found == status:
            return body
        threading.Event().wait(0.05)
    raise AssertionError((path, found, body))


def test_from_start_to_stop(world: World) -> None:
    gate = GATES["now"] = Gate()
    config = world.config(health_port=0, health_patience="300 ms")
    with streams(topology(), config) as app:
        app.start()
        port = app._runner._health.port
        assert gate.reached.wait(20)
        assert ask(port, "/ready")[0] == 503, "the first batch is not done"
        stuck = wait_for(port, "/health", 503)
        assert stuck["reason"] == "a batch takes longer than 0.3 seconds"
        gate.open.set()
        assert wait_for(port, "/ready", 200)["ok"] is True
        assert ask(port, "/health?probe=1")[0] == 200
        assert ask(port, "/other")[0] == 404
        app.pause()
        assert wait_for(port, "/ready", 503)["reason"] == "not ready: paused"
        assert ask(port, "/health")[0] == 200, "a pause is no reason to kill it"
        app.resume()
        wait_for(port, "/ready", 200)
    with pytest.raises(urllib.error.URLError):
        ask(port, "/health")


def test_an_application_that_failed_says_so_without_data(world: World) -> None:
    GATES["now"] = Gate()
    GATES["now"].open.set()
    world.append("words", [("a", "bad", 2)])
    with streams(topology(), world.config(health_port=0)) as app:
        app.start()
        port = app._runner._health.port
        body = wait_for(port, "/health", 503)
        failed = "the application has failed: ProcessingError CS-501"
        assert (body["reason"], body["doing"]) == (failed, "failed")
        assert ask(port, "/ready")[0] == 503
        with pytest.raises(cs.ProcessingError):
            app.stop()
    with pytest.raises(urllib.error.URLError):
        ask(port, "/health")


def test_a_port_that_is_taken(world: World) -> None:
    GATES["now"] = Gate()
    other = Health("127.0.0.1", 0, 1.0)
    other.open()
    try:
        with (
            pytest.raises(cs.ConfigError, match=r"CS-201.*health_port cannot be opened"),
            streams(topology(), world.config(health_port=other.port)) as app,
        ):
            app.start()
    finally:
        other.close()


@pytest.mark.parametrize("settings", [{"health_port": 70000}, {"health_port": True}, {"health_host": ""}])
def test_settings_that_are_not_valid(settings: dict[str, Any]) -> None:
    with pytest.raises(cs.ConfigError, match="CS-201"):
        cs.StreamsConfig(application_id="a", **settings)
