"""`crossstream run --restarts N`: starts the application again, in another process, after what a start can cure.

The exit code says what may be tried again: `TEMPORARY`, or that a signal killed the process. Any other code is final:
a bad record, a function that raises or a changed topology would fail the same way. An application that ran for
`HEALTHY_SECONDS` has its restarts back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from crossstream.cli.console import say

TEMPORARY = 75
"""The exit code of a failure that another start may not meet: EX_TEMPFAIL of sysexits.h."""
HEALTHY_SECONDS = 300.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the second restart in a row; each later one waits twice as long. The first comes at once."""
PARENT = "CROSSSTREAM_RESTARTS"
"""The environment variable by which a process knows the one that starts it again."""


Handler = Callable[[int, FrameType | None], object]


def take_signals(handler: Handler) -> dict[int, Any]:
    """Gives a handler the signals to stop; the handlers before."""
    return {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}


@contextmanager
def on_signals(handler: Handler) -> Iterator[None]:
    """In this block the handler gets the signals to stop."""
    before = take_signals(handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def is_supervised() -> bool:
    """Whether this process was started to be started again."""
    return PARENT in os.environ


def is_orphaned() -> bool:
    """Whether the process that would start this one again has ended."""
    return os.environ.get(PARENT, str(os.getppid())) != str(os.getppid())


def supervise(words: Sequence[str], restarts: int) -> int:
    """Runs ``crossstream`` with these words until it is done, with at most ``restarts`` restarts in a row."""
    return _Supervisor([sys.executable, "-m", "crossstream", *words], restarts).run()


class _Supervisor:
    """Passes on the signals to stop; the child has a session of its own, so that a terminal sends it none."""

    def __init__(self, command: Sequence[str], restarts: int) -> None:
        self.command = command
        self.restarts = restarts
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()

    def run(self) -> int:
        with on_signals(self._stop):
            return self._run()

    def _run(self) -> int:
        left, pause = self.restarts, 0.0
        while True:
            began = time.monotonic()
            code = self._once()
            if time.monotonic() - began >= HEALTHY_SECONDS:
                left, pause = self.restarts, 0.0
            if code >= 0 and code != TEMPORARY:
                return code
            if self._stopped.is_set():
                return 0 if code == -signal.SIGTERM else _shown(code)
            if not left:
                say(f"the application ended again: no restart is left of {self.restarts}")
                return _shown(code)
            left -= 1
            how = f"with the code {code}" if code >= 0 else f"by the signal {signal.Signals(-code).name}"
            say(f"the application ended {how}; it starts again in {pause:g} s, {left} restarts are left")
            if self._stopped.wait(pause):
                return 0
            pause = min(2 * pause or FIRST_PAUSE, LONGEST_PAUSE)

    def _once(self) -> int:
        environment = {**os.environ, PARENT: str(os.getpid())}
        with subprocess.Popen(self.command, env=environment, start_new_session=True) as child:
            self._child = child
            if self._stopped.is_set():
                child.terminate()
            return child.wait()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped.set()
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)


def _shown(code: int) -> int:
    """The exit code of this process; shells and service managers read a signal as 128 and its number."""
    return code if code >= 0 else 128 - code
