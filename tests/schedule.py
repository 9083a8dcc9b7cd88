"""Which tests share a process of ``pytest -n … --dist loadfile``, and which come first.

A Spark session, a broker and Kafka's own driver are JVMs that take many seconds of a core to start and to warm up.
Tests that need one stay together: a run has one broker, one of Kafka's drivers, and one Spark session beside that of
the broker's tests. Other tests are shared out by file. What takes longest starts first, so that no process ends alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

from tests import durations
from tests.application.engines import ON_SPARK

ROOT = Path(__file__).parents[1]

SEAT = re.compile(rf".*::.*[\[-]{ON_SPARK}[\]-]")
"""A test that runs on several engines, on Spark."""

SERVICES = {
    "broker": re.compile(r"tests/(kafka/|end_to_end/|benchmarks/test_(edges|(kafka_streams|flink)_peer))"),
    "oracle": re.compile(r"tests/((operators/\w+/)?oracle/|runtime/test_compositions_in_kafka)"),
    "spark": re.compile(
        r"tests/(spark/|application/test_local|lakehouse/((iceberg|sources|histories)/)?test_on_spark"
        r"|faults/test_(cluster|killed|lost_workers|no_code_from_data)\.py|benchmarks/test_spark_streaming)"
    ),
}
"""Where the tests are that need one."""
FIXTURES = {"broker_info": {"broker"}, "oracle": {"oracle"}, "sessions": {"spark", "broker"}}
"""Where a fixture may be asked for: elsewhere it would start a JVM of its own."""


def unit(test: str) -> str:
    """What runs in one process: the tests of a service, or a file. ``test``: its file, or its whole name."""
    file = test.partition("::")[0]
    otherwise = "spark" if SEAT.match(test) else file
    return next((service for service, where in SERVICES.items() if where.match(file)), otherwise)


def file_of(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).as_posix()


def check(items: Sequence[pytest.Item]) -> None:
    """Fails where a test asks for a service from another place."""
    for item in items:
        for fixture in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            if unit(item.nodeid) not in FIXTURES[fixture]:
                raise pytest.UsageError(f"{item.nodeid} needs {fixture}: add its file to tests/schedule.py")


class ByService(LoadFileScheduling):
    """Gives a process all tests of a unit."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts by what the unit takes, and in it by what the file takes."""
    seconds = durations.read()
    of_unit: Counter[str] = Counter()
    for file, taken in seconds.items():
        of_unit[unit(file)] += taken  # type: ignore[assignment]

    def rank(item: pytest.Item) -> tuple[float, str, float, str]:
        file = file_of(item)
        of = unit(item.nodeid)
        return -of_unit[of], of, -seconds.get(file, 0.0), file

    items.sort(key=rank)
