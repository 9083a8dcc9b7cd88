"""For all tests: one Spark session, one broker and one JVM of Kafka's driver; a run in which no test ran fails."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import settings

from tests import schedule
from tests.application.engines import engine
from tests.kafka.edges import edge
from tests.kafka.fixtures import broker_connection, broker_info, creating, log, proxy, reader, writer
from tests.known_warnings import FILTERS
from tests.laws.clock import clock
from tests.oracle.fixtures import SEED, fresh, oracle
from tests.spark.fixtures import either_world, sessions, spark, world

__all__ = [
    "broker_connection",
    "broker_info",
    "clock",
    "creating",
    "edge",
    "either_world",
    "engine",
    "fresh",
    "log",
    "oracle",
    "proxy",
    "reader",
    "sessions",
    "spark",
    "world",
    "writer",
]

settings.register_profile("crossstream", deadline=None, max_examples=50)
settings.register_profile("fast", deadline=None, max_examples=12)
settings.register_profile("nightly", deadline=None, max_examples=3000)
settings.load_profile("crossstream")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell's background job ignores interrupts, and so would the programs that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_RAN = ("passed", "failed", "error", "xfailed", "xpassed")


def pytest_configure(config: pytest.Config) -> None:
    """What older dependencies are known for does not fail a test."""
    for known in FILTERS:
        config.addinivalue_line("filterwarnings", known)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that need the same JVM run in one process."""
    return schedule.ByService(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A process of several has what takes longest first."""
    schedule.check(items)
    if hasattr(config, "workerinput"):
        schedule.longest_first(items)


def pytest_report_header() -> str:
    """How to repeat a nightly run."""
    return f"nightly seed: CROSSSTREAM_SEED={SEED}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Everything skipped ends like nothing collected (exit status 5)."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus != pytest.ExitCode.OK or session.config.option.collectonly or reporter is None:
        return
    if not any(reporter.stats.get(outcome) for outcome in _RAN):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
