"""Where no broker runs: what a first start says, and how often the clients say it."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.application import inputs as topics
from crossstream.application.inputs import TopicInputs, connection_of
from crossstream.application.open_state import Found
from crossstream.catalog.planners import plan_topology
from crossstream.errors import SourceError
from crossstream.kafka import client
from crossstream.kafka.client import Outages
from crossstream.storage.commit_log import BatchLog

LINE = "FAIL [crossstream#producer-{}] [thrd:h:9/bootstrap]: h:9/bootstrap: Connection refused (after {}ms in state)"


def inputs(folder: Path, **settings: Any) -> TopicInputs:
    builder = cs.StreamsBuilder()
    builder.table("a").to_stream().to("out")
    config = cs.StreamsConfig(
        application_id="a", bootstrap_servers="localhost:9", state_dir=folder, **settings
    )
    return TopicInputs(plan_topology(builder.build()), config, connection_of(config), BatchLog(folder))


def test_a_first_start_does_not_wait_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "FIRST_PATIENCE", "300 ms")
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"no broker answered for 0\.3 s") as caught:
        inputs(tmp_path).check(Found(None, None))
    assert caught.value.code == "CS-604"
    assert time.monotonic() - began < 20


def test_a_patience_that_was_set_holds_for_the_first_start_too(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no broker answered for 0\.2 s"):
        inputs(tmp_path, broker_patience="200 ms").check(Found(None, None))


def passed(outages: Outages, text: str) -> bool:
    record = logging.LogRecord("crossstream.kafka", logging.ERROR, "", 0, text, (), None)
    return outages.filter(record)


def test_an_outage_is_said_when_it_lasts_and_then_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, outages = [0.0], Outages()
    monkeypatch.setattr(client, "monotonic", lambda: clock[0])
    said = []
    for number in range(150):
        clock[0] = float(number)
        if passed(outages, LINE.format(number, number)):
            said.append(number)
    assert said == [10, 70, 130]
    assert passed(outages, "a transaction is in doubt")


def test_a_connection_that_fails_once_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, outages = [0.0], Outages()
    monkeypatch.setattr(client, "monotonic", lambda: clock[0])
    for clock[0] in (0.0, 100.0, 200.0):
        assert not passed(outages, LINE.format(1, 0))
