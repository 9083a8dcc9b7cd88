"""Answers of a schema registry, within bounds of time and size."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

MOST_BYTES = 16 * 2**20
"""Bytes of an answer. A registry keeps its schemas in a Kafka topic, whose records have a megabyte or a few."""

MOST_REFERENCES = 300
"""Schemas that another one refers to, directly or not."""


class Unusable(Exception):
    """An answer that says nothing of use, now or later."""


class Late(OSError):
    """There is no whole answer in time."""


def bound_answers(client: Any) -> None:
    """Makes a client of `confluent_kafka` refuse answers of more than `MOST_BYTES`, also of packed ones."""
    session = getattr(getattr(client, "_rest_client", None), "session", None)
    if session is None:  # a mock
        return
    hooks = session.event_hooks
    if _bound not in hooks["response"]:
        session.event_hooks = {**hooks, "response": [*hooks["response"], _bound]}
        session.headers["Accept-Encoding"] = "identity"


def _bound(response: Any) -> None:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise Unusable("it is packed, which was not asked for")
    library = sys.modules[type(response).__module__.partition(".")[0]]  # httpx or httpx2, as installed

    class Bounded(library.SyncByteStream):  # type: ignore[misc, name-defined]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for part in self._stream:
                size += len(part)
                if size > MOST_BYTES:
                    raise Unusable(f"it has more than {MOST_BYTES} bytes")
                yield part

        def close(self) -> None:
            self._stream.close()

    response.stream = Bounded(response.stream)


def in_time(seconds: float, call: Callable[[], Any]) -> Any:
    """What the call gives. Raises `Late` if it takes longer, and a second at least: a client waits for each byte, as
    long as one comes."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="schema registry", daemon=True)
    thread.start()
    thread.join(max(seconds, 1.0))
    if failed:
        raise failed[0]
    if not found:
        raise Late("no whole answer in time")
    return found[0]
