"""Windows of time in which the records of a group are aggregated.

All are keyword options with durations, kept in milliseconds. Each raises `TopologyError` at the line that makes it:
CS-101 for a setting that is unknown or missing, CS-110 for a duration that is not valid. Sources: semantics 3.4,
KIP-450 (sliding), KIP-633 (grace).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossstream.api.checks import settle_durations, settle_timestamp, settled
from crossstream.durations import Duration, Timestamp, is_duration
from crossstream.errors import TopologyError, caller_location
from crossstream.graph.nodes import WindowSpec
from crossstream.signatures import keyword_settings


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindows:
    """Windows of one ``size`` that begin every ``advance``; without it they do not overlap (tumbling windows).

    A record belongs to each window with ``start <= timestamp < start + size``; starts are multiples of ``advance``.
    A window is closed when stream time reaches its end plus ``grace``; later records for it are dropped and counted.

    >>> TimeWindows(size="1 hour", advance="10 minutes", grace="1 minute").advance
    600000
    """

    size: Duration
    advance: Duration | None = None
    grace: Duration = 0

    def __post_init__(self) -> None:
        settle_durations(self, "size", minimum=1)
        settle_durations(self, "advance", minimum=1)
        settle_durations(self, "grace")
        if self.advance is not None and settled(self.advance) > settled(self.size):
            raise TopologyError(
                f"the windows advance by {self.advance} ms, which is more than their size of {self.size} ms",
                code="CS-110",
                where=caller_location(),
                next="give an advance of at most the size, or leave it out for windows that do not overlap",
            )

    def spec(self) -> WindowSpec:
        """The windows as the engine takes them, in ms."""
        size = settled(self.size)
        return WindowSpec(
            "time", size, size if self.advance is None else settled(self.advance), settled(self.grace)
        )


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindows:
    """A window for each different set of records that are at most ``difference`` apart, both ends included.

    >>> SlidingWindows(difference="10 seconds").difference
    10000
    """

    difference: Duration
    grace: Duration = 0

    def __post_init__(self) -> None:
        settle_durations(self, "difference", "grace")

    def spec(self) -> WindowSpec:
        """The windows as the engine takes them, in ms."""
        return WindowSpec("sliding", settled(self.difference), 0, settled(self.grace))


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows:
    """Sessions: records of a key belong together as long as no more than ``gap`` passes between two of them.

    A session ends at its last record. It is closed when stream time has passed its end by more than ``gap`` plus
    ``grace``.

    >>> SessionWindows(gap="5 minutes").gap
    300000
    """

    gap: Duration
    grace: Duration = 0

    def __post_init__(self) -> None:
        settle_durations(self, "gap", minimum=1)
        settle_durations(self, "grace")

    def spec(self) -> WindowSpec:
        """The windows as the engine takes them, in ms."""
        return WindowSpec("session", settled(self.gap), 0, settled(self.grace))


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class UnlimitedWindows:
    """One window that begins at ``start`` (a timestamp) and never ends. Earlier records belong to none.

    >>> UnlimitedWindows().start
    0
    """

    start: Timestamp = 0

    def __post_init__(self) -> None:
        settle_timestamp(self, "start")

    def spec(self) -> WindowSpec:
        """The windows as the engine takes them, in ms."""
        return WindowSpec("unlimited", settled(self.start), 0, 0)


Windows = TimeWindows | SlidingWindows | SessionWindows | UnlimitedWindows


def windows_of(given: object) -> WindowSpec:
    """The windows of ``windowed_by``; a bare duration means `TimeWindows` of that size. Raises CS-110 otherwise."""
    if isinstance(given, Windows):
        return given.spec()
    if is_duration(given):
        size: Any = given
        return TimeWindows(size=size).spec()
    raise TopologyError(
        f"windowed_by takes windows, not {type(given).__name__}",
        code="CS-110",
        where=caller_location("windowed_by"),
        next='pass TimeWindows(size="1 hour"), SlidingWindows(difference=…), SessionWindows(gap=…) or a duration',
    )
