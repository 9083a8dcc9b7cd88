"""A worker opens its client for Kafka before it has records to write: the first flush waited for half a second."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import crossstream as cs
from crossstream.catalog.planners import plan_topology
from crossstream.spark import worker


class Connection:
    """Notes the clients that are opened."""

    def __init__(self) -> None:
        self.opened = 0

    def writer(self) -> Any:
        return SimpleNamespace(open=self._open, close=lambda: None)

    def _open(self) -> None:
        self.opened += 1


class Staged(Connection):
    def stage_in(self, storage: Any, task: str) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("kind", "writes", "expected"), [(Connection, True, 1), (Connection, False, 0), (Staged, True, 0)]
)
def test_the_client_is_opened_before_there_are_records(
    kind: type[Connection], writes: bool, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, connection = cs.StreamsBuilder(), kind()
    stream = builder.stream("in")
    stream.to("out") if writes else stream.for_each_batch(lambda frame, id: None)
    job = SimpleNamespace(plan=plan_topology(builder.build()), state_dir=str(tmp_path), connection=connection)
    monkeypatch.setattr(worker, "_held", {})
    monkeypatch.setattr(worker.pickle, "load", lambda _: job)
    held = worker.held_for("run", lambda: b"")
    assert connection.opened == expected
    assert (held.writer is not None) == bool(expected)
