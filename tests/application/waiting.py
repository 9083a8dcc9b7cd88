"""Waits for a condition, and for calls in other threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def in_background(act: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Calls ``act`` in a thread; what it returns, or the error it raises, is put in the list."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(act())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results
