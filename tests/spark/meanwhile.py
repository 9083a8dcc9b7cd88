"""Something done again and again beside what a test does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(act: Callable[[], None], pause: float) -> Iterator[None]:
    """Does ``act`` in a thread while the block runs, ``pause`` seconds apart; the last one has ended when it has."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
