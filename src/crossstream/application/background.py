"""Batches in the background: when the next one begins, until the application is stopped."""

from __future__ import annotations

import threading
import time

from crossstream.application.health import Health
from crossstream.application.lifecycle import Lifecycle
from crossstream.application.loop import Loop

IDLE_SECONDS, MOST_IDLE_SECONDS = 0.01, 0.05
"""Pause between two looks for new records, at first and after some seconds without any."""


def run_batches(
    loop: Loop, life: Lifecycle, health: Health, stop: threading.Event, trigger_ms: int | None
) -> None:
    """Runs batches until ``stop``, each ``trigger_ms`` after the one before, or at once where records wait."""
    pause = (trigger_ms or 0) / 1000
    idle = IDLE_SECONDS
    loop.refreshing.follow()
    loop.feed(once=False)
    while not stop.is_set():
        if life.is_paused:
            health.rest("paused", ready=False)
            life.resumed.wait(MOST_IDLE_SECONDS)
            loop.note_pause()
            continue
        started = time.monotonic()
        health.begin("a batch")
        worked = loop.run_next()
        health.rest("waiting for records" if not worked else "between two batches")
        if life.waiters:  # what is waited for may be gone, with its topic, without a batch
            life.wake()
        idle = IDLE_SECONDS if worked else min(idle * 1.01, MOST_IDLE_SECONDS)
        rest = pause - (time.monotonic() - started) if pause else (0.0 if worked else idle)
        if rest > 0:
            stop.wait(min(rest, threading.TIMEOUT_MAX))
