"""An application that was stopped (SIGSTOP) in a batch, and continues when another one has taken its place.

Both are real processes with their state on an object store, where a lease says who may write. (The lock of a local
folder is never lost by a process that stands still: a second one is refused.)
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

import crossstream as cs
from tests.end_to_end.kills import LOCAL, SECONDS, Application, own_broker
from tests.faults.application import WITHOUT_SPARK
from tests.kafka.committed import ends, read
from tests.object_store import ObjectStore, object_server, object_store
from tests.spark.world import ALONE, World

__all__ = ["object_server", "object_store"]

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.timeout(1_800),
]

STOPS = {
    "a batch runs": "logged:2",
    "noted": "noted:2",  # while the transaction begins
    "in its transaction": "stored:3",
    "in its transaction, with the mark": "send_offsets_to_transaction:3",
    "after its transaction": "commit_transaction:3",
    "after its commit": "committed:2",
}
"""Where it stops: in its second batch. (The first transaction has the mark alone.)"""


@pytest.mark.parametrize(
    ("step", "master"), [*((step, WITHOUT_SPARK) for step in STOPS), ("in its transaction", LOCAL)]
)
def test_it_writes_nothing(tmp_path: Path, object_store: ObjectStore, step: str, master: str) -> None:
    world = World(tmp_path / "world", "zombie", single_task_rows=ALONE)
    world.root.mkdir()
    with own_broker(tmp_path, appends=2, elements=2, lists=2) as broker:
        environment = {
            "SERVERS": broker.servers,
            "GUARANTEE": "exactly_once",
            "APPLICATION": "zombie",
            "STATE_URI": object_store.uri(tmp_path.name),
            "CROSSSTREAM_CACHE": str(tmp_path / "cache"),
            "STEPS": "0",
        }
        stopping = {**environment, "STOPS": STOPS[step]}
        first = Application(world, tmp_path / "first", "appends", stopping, master)
        second = replace(first, log=tmp_path / "second", environment=environment, _groups=[], _threads=[])
        try:
            append(broker.servers, range(20))
            first.start()
            assert first.await_running(), first.last_words()
            wait_until(lambda: stored(world, environment) == 20, first)
            append(broker.servers, range(20, 40))
            wait_until(lambda: psutil.Process(first.pid).status() == psutil.STATUS_STOPPED, first)
            is_open = ends(broker.servers, "elements") != ends(broker.servers, "elements", "read_uncommitted")
            assert step == "noted" or is_open == ("in its" in step)
            second.start()
            assert second.await_running(), second.last_words()
            append(broker.servers, range(40, 60))
            wait_until(lambda: stored(world, environment) == 60, second)
            os.kill(first.pid, signal.SIGCONT)
            first.await_end()
            assert "CS-720" in first.last_words()
            append(broker.servers, range(60, 80))
            wait_until(lambda: stored(world, environment) == 80, second)
            second.stop()
        finally:
            for one in (first, second):
                one.kill_all()
        assert ends(broker.servers, "elements") == ends(broker.servers, "elements", "read_uncommitted")
        found = read(broker.servers, "elements")
    for key in ("a", "b"):
        values = [value for rows in found.values() for k, value, _ in rows if k == key.encode()]
        assert values == [b"%d" % number for number in range(80)]


def append(servers: str, numbers: Sequence[int]) -> None:
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for number in numbers:
        for key in ("a", "b"):
            producer.produce("appends", str(number), key)
    assert producer.flush(60) == 0


def stored(world: World, environment: dict[str, str]) -> int:
    """How many elements each of the committed lists has at least."""
    try:
        lists = dict(cs.open_store(environment["STATE_URI"], "lists").all())
    except cs.StateError:
        return 0
    return min(len(lists.get(key, "").split()) for key in ("a", "b"))


def wait_until(what: Callable[[], bool], app: Application) -> None:
    until = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < until, app.last_words()
        assert not app.has_ended, app.last_words()
        time.sleep(0.3)
