"""Ctrl-C and SIGTERM: once means stop after the running batch, twice means now."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ENDED = 130
"""Exit code of a process that was told twice."""


class Interrupts:
    """Handles the signals inside a ``with`` block, in the main thread.

    ``asked`` is set by the first signal, which calls ``on_first``; the second calls ``on_second`` and ends
    the process at once: whatever batch was running is repeated at the next start.
    """

    def __init__(self, on_first: Callable[[], None], on_second: Callable[[], None]) -> None:
        self.asked = threading.Event()
        self._on_first = on_first
        self._on_second = on_second
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Takes the signals; again after a SparkContext was made, which takes SIGINT for itself."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            self._on_second()
            os._exit(ENDED)
        self.asked.set()
        self._on_first()
