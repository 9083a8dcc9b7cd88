"""Which tests share a process, and which come first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import durations, schedule


def item(file: str, *fixtures: str) -> Any:
    return SimpleNamespace(path=schedule.ROOT / file, nodeid=f"{file}::test", fixturenames=fixtures)


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("tests/kafka/test_log.py", "broker"),
        ("tests/end_to_end/test_real_kafka.py", "broker"),
        ("tests/oracle/test_random_cases.py", "oracle"),
        ("tests/operators/suppress/oracle/test_random_cases.py", "oracle"),
        ("tests/spark/test_running.py", "spark"),
        ("tests/faults/test_killed.py", "spark"),
        ("tests/faults/test_topics.py", "tests/faults/test_topics.py"),
        ("tests/faults/test_topics.py::test_a_missing_topic[local]", "tests/faults/test_topics.py"),
        ("tests/faults/test_topics.py::test_a_missing_topic[on_spark]", "spark"),
        ("tests/faults/test_topics.py::Test::test[2-on_spark-spread]", "spark"),
        ("tests/faults/test_topics.py::test_on_spark[1]", "tests/faults/test_topics.py"),
        ("tests/kafka/test_log.py::test[on_spark]", "broker"),
        ("tests/faults/test_topics_made_anew.py", "tests/faults/test_topics_made_anew.py"),
    ],
)
def test_tests_of_a_service_run_in_one_process(test: str, unit: str) -> None:
    assert schedule.unit(test) == unit


def test_what_takes_longest_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two short files of a service take longer than one that is longer than each."""
    seconds = {"tests/kafka/a.py": 2.0, "tests/kafka/b.py": 3.0, "tests/api/c.py": 4.0}
    monkeypatch.setattr(durations, "read", lambda: seconds)
    files = ["tests/api/new.py", "tests/kafka/a.py", "tests/api/c.py", "tests/kafka/b.py"]
    items = [item(file) for file in files]
    schedule.longest_first(items)
    found = [schedule.file_of(one) for one in items]
    assert found == ["tests/kafka/b.py", "tests/kafka/a.py", "tests/api/c.py", "tests/api/new.py"]


def test_a_service_is_not_asked_for_elsewhere() -> None:
    schedule.check([item("tests/kafka/test_log.py", "broker_info", "sessions")])
    with pytest.raises(pytest.UsageError, match="needs broker_info"):
        schedule.check([item("tests/api/test_streams.py", "broker_info")])


def test_durations_are_of_files_that_are_there() -> None:
    assert [file for file in durations.read() if not (schedule.ROOT / file).is_file()] == []
