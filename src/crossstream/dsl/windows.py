"""Windows of time for joins. Checked when made; all raise `TopologyError` in the line that makes them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from crossstream.dsl.checks import check_choice, settle_durations
from crossstream.durations import Duration, to_milliseconds
from crossstream.errors import TopologyError
from crossstream.settings import keyword_settings, refuse_calls, settings_refusal
from crossstream.topology.location import here

_BOUNDS = MappingProxyType(
    dict.fromkeys(("before", "after"), "a window with bounds of its own is JoinWindows(before=…, after=…)")
)


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWindows:
    """Which records of two streams are partners: those of one key whose timestamps are close to each other.

    The right record may be up to ``before`` older and up to ``after`` newer than the left one, both ends included;
    a bound may be negative (``before="-5 seconds"``: at least 5 s newer), but together they are at least 0. ``grace``
    is how much longer, in stream time, a record waits for partners that are late. A record of a left or outer join
    that finds none comes out alone when its window and the grace period are over; with ``eager=True`` (Kafka before
    3.1) at once, even if partners follow. Durations, which are kept in milliseconds. Raises CS-110 for what is none,
    CS-170 for an empty window. Sources: semantics 2.1.1, KIP-633.

    >>> JoinWindows(before=0, after="10 seconds", grace="1 minute").after
    10000
    """

    before: Duration
    after: Duration
    grace: Duration = 0
    eager: bool = False

    def __post_init__(self) -> None:
        settle_durations(self, "before", "after", minimum=None)
        settle_durations(self, "grace")
        before, after, _ = self.milliseconds()
        check_choice("JoinWindows", "eager", self.eager, (True, False))
        if before + after < 0:
            raise TopologyError(
                f"the window is empty: it ends {-before - after} ms before it begins",
                code="CS-170",
                where=here(),
                next="let before and after add up to 0 or more; one of them may be negative",
            )

    @classmethod
    @refuse_calls(settings_refusal(TopologyError, "CS-101", "JoinWindows.of", _BOUNDS))
    def of(cls, duration: Duration, grace: Duration = 0, eager: bool = False) -> JoinWindows:
        """A window of ``duration`` to either side.

        >>> JoinWindows.of("10 seconds", grace="1 minute")
        JoinWindows(before=10000, after=10000, grace=60000, eager=False)
        """
        return cls(before=duration, after=duration, grace=grace, eager=eager)

    def milliseconds(self) -> tuple[int, int, int]:
        """``before``, ``after`` and ``grace`` in milliseconds."""
        before, after = (
            to_milliseconds(getattr(self, name), name, minimum=None, error=TopologyError)
            for name in ("before", "after")
        )
        return before, after, to_milliseconds(self.grace, "grace", error=TopologyError)
