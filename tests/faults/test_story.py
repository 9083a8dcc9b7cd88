"""What an application says of itself while it runs: its log, the batch that runs, the time of ``for_each_batch``."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.filetopics import FileTopics
from tests.faults.one_process import application, streams
from tests.filetopics.topics import numbered
from tests.filetopics.topics import write as write_rows

TEXT = cs.Consumed(key=serdes.string(), value=serdes.string())


@pytest.fixture
def config(tmp_path):
    write_rows(FileTopics(str(tmp_path / "topics")), numbered(3))
    return cs.StreamsConfig(
        application_id="relay", topics_dir=tmp_path / "topics", state_dir=tmp_path / "state"
    )


def relay(function=None) -> cs.Topology:
    builder = cs.StreamsBuilder()
    stream = builder.stream("t", TEXT)
    if function is not None:
        stream.for_each_batch(function)
    stream.to("out")
    return builder.build()


def said(caplog, level=logging.INFO):
    return [one.getMessage() for one in caplog.records if one.name == "crossstream" and one.levelno >= level]


def await_batches(app, number):
    deadline = time.monotonic() + 30
    while app.progress.batch < number and time.monotonic() < deadline:
        time.sleep(0.01)


def run(config):
    with streams(relay(), config) as app:
        app.start()
        app.await_termination(30)


def test_the_log_has_a_line_for_each_step(config, caplog):
    caplog.set_level(logging.DEBUG, "crossstream")
    with streams(relay(), config) as app:
        app.start()
        await_batches(app, 0)
    assert said(caplog) == [
        "relay: starts",
        "relay: begins without state, state partitions: 2",
        "relay: stopped after batch 0",
    ]
    (batch,) = [line for line in said(caplog, logging.DEBUG) if "committed" in line]
    assert batch.startswith("relay: batch 0 committed: 3 records in ")
    caplog.clear()
    with streams(relay(), config) as app:
        app.start()
    assert said(caplog)[1:] == [
        "relay: begins after batch 0, state partitions: 2",
        "relay: stopped after no batch",
    ]


def test_a_failure_is_no_stop_and_the_next_start_says_what_it_repeats(config, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "crossstream")
    with monkeypatch.context() as patch:
        patch.setattr(LocalRounds, "run", lambda *arguments: 1 / 0)
        with pytest.raises(cs.CrossStreamError):
            run(config)
    assert any(line.startswith("relay: failed: [CS-") for line in said(caplog, logging.ERROR))
    assert not any("stopped" in line for line in said(caplog))
    caplog.clear()
    with streams(relay(), config) as app:
        app.process_available()
    assert "relay: batch 0 was begun and not committed, and is repeated" in said(caplog)


def test_the_batch_that_runs_is_seen(config, monkeypatch):
    seen = []
    original = LocalRounds.run

    def running(rounds, batch, frame):
        seen.append((app.running.batch, app.running.records, time.time() - app.running.since < 30))
        return original(rounds, batch, frame)

    monkeypatch.setattr(LocalRounds, "run", running)
    with streams(relay(), config) as app:
        assert app.running is None
        app.process_available()
        assert app.running is None
    assert seen == [(0, 3, True)]


def test_a_function_for_each_batch_has_a_phase(config, monkeypatch):
    monkeypatch.setattr(LocalRounds, "deliver", lambda *arguments: time.sleep(0.2))
    with application(relay(lambda frame, batch: None), config) as running:
        running.run_until(running.inputs.end_offsets())
        phases, seconds = running.progress.phases, running.progress.seconds
    assert phases["for_each_batch"] >= 200
    assert phases["run"] + phases["for_each_batch"] <= 1000 * seconds
    with streams(relay(), replace(config, state_dir=f"{config.state_path}2")) as app:
        app.process_available()
        assert "for_each_batch" not in app.progress.phases
