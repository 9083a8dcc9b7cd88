"""A worker opens its client for Kafka before it has records to write: the first flush waited for half a second."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import crossstream as cs
from crossstream.catalog.planners import plan_topology
from crossstream.filetopics import FileTopics
from crossstream.runtime.delivery import AtOnce, Delivery, Place
from crossstream.runtime.worker import Job
from crossstream.spark import worker
from crossstream.task.batch import Settings


class Connection:
    """Notes the clients that are opened."""

    def __init__(self) -> None:
        self.opened = 0

    def delivery(self, place: Place) -> Delivery:
        return AtOnce(self.writer)

    def writer(self) -> Any:
        return SimpleNamespace(open=self._open, close=lambda: None)

    def _open(self) -> None:
        self.opened += 1


class Staged(Connection):
    def delivery(self, place: Place) -> Delivery:
        return FileTopics(str(place.staging)).delivery(place)


@pytest.mark.parametrize(
    ("kind", "writes", "expected"), [(Connection, True, 1), (Connection, False, 0), (Staged, True, 0)]
)
def test_the_client_is_opened_before_there_are_records(
    kind: type[Connection], writes: bool, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, connection = cs.StreamsBuilder(), kind()
    stream = builder.stream("in")
    stream.to("out") if writes else stream.for_each_batch(lambda frame, id: None)
    plan, folder = plan_topology(builder.build()), str(tmp_path)
    job = Job("app", plan, folder, folder, Settings(), connection)  # type: ignore[arg-type]
    monkeypatch.setattr(worker, "_states", {})
    monkeypatch.setattr(worker.pickle, "load", lambda _: job)
    worker.state_for("run", lambda: b"")
    assert connection.opened == expected
