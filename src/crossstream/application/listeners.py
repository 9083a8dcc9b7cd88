"""Functions of the user that are called with the progress of each batch."""

from __future__ import annotations

from collections.abc import Callable

from crossstream.error_codes import refuse
from crossstream.errors import caller_location, type_and_text
from crossstream.metrics.observation import Progress
from crossstream.signatures import deferred_kind, fits_call


def check_listener(listener: Callable[[Progress], None]) -> None:
    """Raises `ConfigError` CS-201 if it cannot be called with a `Progress`."""
    fault = _fault(listener)
    if fault is not None:
        what = f"a listener for progress is {fault}"
        raise refuse("CS-201", what, "pass a function, such as lambda progress: …", **caller_location())


def _fault(listener: object) -> str | None:
    """Why a listener cannot be called with progress; None if it can."""
    if not callable(listener):
        return f"{listener!r}, not a function"
    if not fits_call(listener, ("progress",)):
        return "called with (progress), and does not take that"
    way = deferred_kind(listener)
    return None if way is None else f"called, and not awaited or iterated: it has {way}"


def call_listener(listener: Callable[[Progress], None], progress: Progress) -> None:
    """Raises `ProcessingError` CS-591 with what it raises."""
    try:
        listener(progress)
    except Exception as error:
        what = f"a listener for progress raised {type_and_text(error)}"
        step = "fix the listener; the batch itself is committed"
        raise refuse("CS-591", what, step, batch=progress.batch) from error
