"""Functions of the user that are told of progress."""

from __future__ import annotations

from collections.abc import Callable

from crossstream.errors import ConfigError, ProcessingError, told
from crossstream.settings import fits_call, put_off
from crossstream.spark.progress import Progress
from crossstream.topology.location import here


class Listeners:
    """Those of an application, in the order in which they came."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Progress], None]] = []

    def add(self, listener: Callable[[Progress], None]) -> None:
        """Raises `ConfigError` CS-238 if it cannot be called with a `Progress`."""
        fault = _fault(listener)
        if fault is not None:
            raise ConfigError(
                f"a listener for progress is {fault}",
                code="CS-238",
                where=here(),
                next="pass a function, such as lambda progress: …",
            )
        self._listeners.append(listener)

    def tell(self, progress: Progress) -> None:
        """Raises `ProcessingError` CS-591 with what the first of them raises."""
        for listener in self._listeners:
            _call(listener, progress)


def _fault(listener: object) -> str | None:
    """Why a listener would not be told of progress; None: nothing is wrong."""
    if not callable(listener):
        return f"{listener!r}, not a function"
    if not fits_call(listener, ("progress",)):
        return "called with (progress), and does not take that"
    way = put_off(listener)
    return None if way is None else f"called, and not awaited or iterated: it has {way}"


def _call(listener: Callable[[Progress], None], progress: Progress) -> None:
    try:
        listener(progress)
    except Exception as error:
        raise ProcessingError(
            f"a listener for progress raised {told(error)}",
            code="CS-591",
            where={"batch": progress.batch},
            next="mend the listener; the batch itself is committed",
        ) from error
