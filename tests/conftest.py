"""For all tests: a run in which no test ran is a failure; no test fails for being slow on a busy machine."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

from tests.left_sockets import FILTERS

settings.register_profile("crossstream", deadline=None)
settings.register_profile("nightly", deadline=None, max_examples=3000)
settings.load_profile("crossstream")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell's background job ignores interrupts, and so would the programs that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_RAN = ("passed", "failed", "error", "xfailed", "xpassed")


def pytest_configure(config: pytest.Config) -> None:
    """What an older PySpark is known for does not fail a test."""
    for known in FILTERS:
        config.addinivalue_line("filterwarnings", known)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Everything skipped ends like nothing collected (exit status 5)."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus != pytest.ExitCode.OK or session.config.option.collectonly or reporter is None:
        return
    if not any(reporter.stats.get(outcome) for outcome in _RAN):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
