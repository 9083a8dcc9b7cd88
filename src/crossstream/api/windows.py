"""Windows of time in which the records of a group are aggregated.

All are keyword options with durations, kept in milliseconds. Each raises `TopologyError` at the line that makes it:
CS-101 for a setting that is unknown or missing, CS-110 for a duration that is not valid. Sources: semantics 3.4,
KIP-450 (sliding), KIP-633 (grace).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

from crossstream.api.checks import check_choice, settle_durations, settle_timestamp, settled
from crossstream.columns.windows import WindowSpec
from crossstream.durations import Duration, Timestamp, is_duration
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.names import history_of
from crossstream.graph.nodes import Aggregate, Node
from crossstream.missing_names import OptionObject
from crossstream.signatures import is_whole, keyword_settings, refuse_calls, settings_error

logger = logging.getLogger("crossstream.windows")


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindows(OptionObject):
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
            what = (
                f"the windows advance by {self.advance} ms, which is more than their size of {self.size} ms"
            )
            step = "give an advance of at most the size, or leave it out for windows that do not overlap"
            raise refuse("CS-110", what, step, **caller_location())

    def spec(self) -> WindowSpec:
        """The windows as the engine takes them, in ms."""
        size = settled(self.size)
        return WindowSpec(
            "time", size, size if self.advance is None else settled(self.advance), settled(self.grace)
        )


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindows(OptionObject):
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


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows(OptionObject):
    """Sessions: records of a key belong together as long as no more than ``gap`` passes between two of them.

    A session ends at its last record. It is closed when stream time has passed its end by more than ``gap`` plus
    ``grace``. A late record that belongs to a closed session is dropped, or begins a session of its own: both are
    counted. Without ``grace`` it is 0, and a warning asks for it: as ``0``, or as how late records may come.

    >>> SessionWindows(gap="5 minutes", grace="1 minute").gap
    300000
    """

    gap: Duration
    grace: Duration | None = None

    def __post_init__(self) -> None:
        settle_durations(self, "gap", minimum=1)
        settle_durations(self, "grace")

    def spec(self) -> WindowSpec:
        """The windows as the engine takes them, in ms."""
        return WindowSpec("session", settled(self.gap), 0, 0 if self.grace is None else settled(self.grace))


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class UnlimitedWindows(OptionObject):
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
    if isinstance(given, SessionWindows) and given.grace is None:
        _ask_for_grace(given)
    if isinstance(given, Windows):
        return given.spec()
    if is_duration(given):
        size: Any = given
        return TimeWindows(size=size).spec()
    what = f"windowed_by takes windows, not {type(given).__name__}"
    step = (
        'pass TimeWindows(size="1 hour"), SlidingWindows(difference=…), SessionWindows(gap=…) or a duration'
    )
    raise refuse("CS-110", what, step, **caller_location("windowed_by"))


def _ask_for_grace(given: SessionWindows) -> None:
    """Kafka has two methods for it, one of them "with no grace": late records split sessions in silence."""
    logger.warning(
        "SessionWindows(gap=%r) has no grace, so a late record splits its session or is dropped (%s): "
        'write grace="1 minute" for records that may be so late, or grace=0 if this is meant',
        given.gap,
        caller_location("windowed_by").get("line"),
    )


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed(OptionObject):
    """How long, and how many, changes of a table are held back. Made by its two class methods.

    ``max_records``, ``max_bytes``: what the buffer of one state partition holds at most; None: any number. A buffer
    that would hold more is full: with ``on_full="emit"`` its oldest rows come out early, with ``"stop"`` the
    application stops (`ProcessingError` CS-509). Bytes are counted as Kafka does: key, value, old value, headers,
    topic, and 28 for each record. Raises CS-101 for other values, CS-110 for a duration that is not valid. Sources:
    KIP-328, semantics 3.13.

    >>> Suppressed.until_time_limit("10 seconds", max_records=1000).duration
    10000
    """

    until: Literal["window-closes", "time-limit"]
    duration: Duration | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    on_full: Literal["emit", "stop"] = "stop"

    def __post_init__(self) -> None:
        check_choice("Suppressed", "until", self.until, ("window-closes", "time-limit"))
        settle_durations(self, "duration")
        check_choice("Suppressed", "on_full", self.on_full, ("emit", "stop"))
        for setting in ("max_records", "max_bytes"):
            given = getattr(self, setting)
            if given is not None and (not is_whole(given) or given < 0):
                what = f"Suppressed({setting}={given!r}) is not a number of {setting[4:]}"
                raise refuse("CS-101", what, "give an int of 0 or more, or leave it out", **caller_location())
        if (self.duration is None) != (self.until == "window-closes"):
            what = "a suppression has a duration if it is until a time limit, and only then"
            step = "write Suppressed.until_window_closes() or Suppressed.until_time_limit(duration)"
            raise refuse("CS-101", what, step, **caller_location())
        if self.until == "window-closes" and self.on_full == "emit":
            what = (
                'until windows close, rows cannot come out early: on_full="emit" would give results that are not '
                "final"
            )
            step = 'choose on_full="stop", leave the bounds out, or write Suppressed.until_time_limit(…)'
            raise refuse("CS-101", what, step, **caller_location())

    @classmethod
    @refuse_calls(settings_error("CS-101", "Suppressed.until_window_closes"))
    def until_window_closes(
        cls, max_records: int | None = None, max_bytes: int | None = None, on_full: Literal["stop"] = "stop"
    ) -> Suppressed:
        """One result for each window, when it has closed: the last row it had. For windowed tables only.

        A window is closed when stream time reaches its end plus the grace period of the windowing.

        >>> Suppressed.until_window_closes().on_full
        'stop'
        """
        return cls(until="window-closes", max_records=max_records, max_bytes=max_bytes, on_full=on_full)

    @classmethod
    @refuse_calls(settings_error("CS-101", "Suppressed.until_time_limit"))
    def until_time_limit(
        cls,
        duration: Duration,
        max_records: int | None = None,
        max_bytes: int | None = None,
        on_full: Literal["emit", "stop"] = "emit",
    ) -> Suppressed:
        """At most one result for each row in every ``duration`` of stream time: its latest value.

        >>> Suppressed.until_time_limit("1 minute", max_bytes=1_000_000).on_full
        'emit'
        """
        return cls(
            until="time-limit",
            duration=duration,
            max_records=max_records,
            max_bytes=max_bytes,
            on_full=on_full,
        )


def suppression(nodes: dict[str, Node], table: Node, option: Suppressed) -> dict[str, Any]:
    """The settings of a `Suppress` node. Raises CS-136 for a table that cannot be suppressed like this."""
    if history_of(nodes, table.name) is not None:
        what = f"{table.name} keeps versions, and a change of an older version cannot wait for newer ones"
        step = "leave history_retention out, or make a table without it: table.to_stream().to_table()"
        raise refuse("CS-136", what, step, **caller_location("suppress"))
    duration = 0 if option.duration is None else settled(option.duration)
    if option.until == "window-closes":
        duration = _grace(nodes, table)
    return {
        "until": option.until,
        "duration": duration,
        "max_records": option.max_records,
        "max_bytes": option.max_bytes,
        "stops": option.on_full == "stop",
    }


def _grace(nodes: dict[str, Node], table: Node) -> int:
    """The longest grace period of the windowings above a table. Source: ``GraphGraceSearchUtil``."""
    found = _graces(nodes, table.name) if table.key is not None and table.key.has_windows else set()
    if not found:
        raise refuse(
            "CS-136",
            f"the rows of {table.name} are not windows, so that they never close: it is made by {table.public_name}",
            "group and aggregate in windows before: windowed_by(…); or write Suppressed.until_time_limit(…)",
            **caller_location("suppress"),
        )
    return max(found)


def _graces(nodes: dict[str, Node], name: str) -> set[int]:
    node = nodes[name]
    if isinstance(node, Aggregate) and node.windows is not None:
        return {node.windows.open_after_end}
    return {grace for parent in node.parents for grace in _graces(nodes, parent)}
