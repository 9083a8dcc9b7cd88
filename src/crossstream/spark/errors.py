"""Errors across Spark: what a worker raised, raised again in the driver as it was."""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from crossstream.errors import CrossStreamError, ProcessingError

_MARK = "crossstream-error:"
_FOUND = re.compile(_MARK + r"([A-Za-z0-9+/=]+):")


class WorkerError(RuntimeError):
    """Carries an error of ours through Spark, which passes on nothing but text."""


def carried(make: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """The items of a task; an error of ours is packed so that `unpacked` finds it in Spark's message."""
    try:
        yield from make()
    except CrossStreamError as error:
        data = base64.b64encode(pickle.dumps(error)).decode()
        raise WorkerError(f"{error}\n{_MARK}{data}:") from error


def unpacked(error: Exception) -> Exception:
    """What a worker raised; for anything else a `ProcessingError` CS-590 with the heart of Spark's message."""
    if isinstance(error, CrossStreamError):
        return error
    text = str(error)
    found = _FOUND.search(text)
    if found is not None:
        ours = pickle.loads(base64.b64decode(found.group(1)))
        assert isinstance(ours, CrossStreamError)
        return ours
    return ProcessingError(
        f"Spark could not run a batch: {_heart(text)}",
        code="CS-590",
        next="see the cause below and Spark's log; `crossstream doctor` checks the installation",
    )


def _heart(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if re.match(r"[A-Za-z_.]+(Error|Exception|Exit)\b.*:", line) and "Py4J" not in line:
            return line[:500]
    return (lines or ["no message"])[0][:500]
