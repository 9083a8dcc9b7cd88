"""Durations and timestamps: what a user may write, in the engine's whole milliseconds.

A number is milliseconds. One below `UNCLEAR` is more often meant as seconds, so it never passes in silence: where a
batch or a client would wait for it, it is refused; in stream time, where small numbers are milliseconds of a test, one
warning names the line. Only the clocks of test topics take it without a word.
"""

from __future__ import annotations

import logging
import math
import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from threading import TIMEOUT_MAX
from typing import Literal, TypeAlias

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location, user_location
from crossstream.signatures import is_whole

logger = logging.getLogger("crossstream.durations")

Duration = timedelta | int | str
"""A `timedelta`, an int of milliseconds, or a string such as ``"10 seconds"`` or ``"1 hour 30 minutes"``."""

Timestamp = datetime | int
"""Milliseconds since the epoch, or a `datetime` (one without a time zone is taken as UTC)."""

UNCLEAR = 1_000
"""A number below this does not say its unit."""

Unclear: TypeAlias = Literal["warn", "refuse", "take"]
"""What happens to a number that does not say its unit."""

LONGEST = 1 << 61
"""The longest duration in ms, some 73 million years.

A timestamp gains at most two of them (the distance to a partner, and the grace period) and loses at most three:
with timestamps up to `LATEST`, all sums fit 64 bits.
"""

LATEST = (1 << 62) - 1
"""The latest timestamp of a record in ms, some 146 million years from now."""

_WORDS = {
    1: ("ms", "millisecond", "milliseconds"),
    1_000: ("s", "sec", "second", "seconds"),
    60_000: ("m", "min", "minute", "minutes"),
    3_600_000: ("h", "hour", "hours"),
    86_400_000: ("d", "day", "days"),
}
_UNITS = {word: factor for factor, words in _WORDS.items() for word in words}
_PART = re.compile(r"\s*(\d{1,99})\s*([a-z]+)\s*")
_SIGN = re.compile(r"\s*(-?)")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


def to_milliseconds(
    duration: Duration,
    name: str = "duration",
    *,
    minimum: int | None = 0,
    code: str = "CS-210",
    unclear: Unclear = "warn",
) -> int:
    """Converts ``duration``, which an error calls ``name``, to whole milliseconds.

    Units of a string: ms, second, minute, hour, day, singular or plural, also s, m, min, h, d. Parts add up, and a
    leading ``-`` negates the sum. The result is between ``minimum`` ms (None: any) and `LONGEST`. Raises ``code``
    (CS-110 `TopologyError`, CS-210 `ConfigError`) for anything else, also for a bool or a fraction of a millisecond.
    ``unclear``: what to do with a number below `UNCLEAR`; 0 is clear.

    >>> to_milliseconds("1 hour 30 minutes")
    5400000
    """
    milliseconds = _count(duration)
    if milliseconds is None and isinstance(duration, timedelta):
        how = f"round it: timedelta(milliseconds={round(duration / _MILLISECOND)})"
        raise _error(code, f"{name} is finer than one millisecond: {duration!r}", how)
    if milliseconds is None:
        raise _error(code, f"{name} is not a duration: {duration!r}")
    if minimum is not None and milliseconds < minimum:
        raise _error(code, f"{name} must be at least {minimum} ms, not {milliseconds}")
    if abs(milliseconds) > LONGEST:
        raise _error(code, f"{name} is longer than {LONGEST} ms, some 73 million years: {milliseconds} ms")
    if isinstance(duration, int) and 0 < abs(duration) < UNCLEAR and unclear != "take":
        if unclear == "refuse":
            what = f"{name}={duration} does not say its unit: it would be {duration} ms"
            raise _error(code, what, f'write {name}="{duration} seconds" or {name}="{duration} ms"')
        _warn(f"{user_location()}", duration)
    return milliseconds


@lru_cache(maxsize=1_000)
def _warn(line: str, number: int) -> None:
    """Once for each line and number."""
    logger.warning(
        '%s: the duration %d does not say its unit and is taken as %d ms: write "%d seconds" or "%d ms"',
        line,
        *[number] * 4,
    )


def to_timeout(duration: timedelta | float | str) -> float:
    """Converts ``duration`` to seconds to wait; a number means seconds, as in Python's threads.

    The result is at least 0, and at most what a thread can wait. Raises `ConfigError` CS-210 for anything else.

    >>> to_timeout("1 minute"), to_timeout(0.5), to_timeout(timedelta(microseconds=-7))
    (60.0, 0.5, 0.0)
    """
    seconds = _seconds(duration)
    if seconds is None:
        how = (
            'write a number of seconds, a timedelta, or a string such as "10 seconds" or "1 hour 30 minutes"'
        )
        raise _error("CS-210", f"timeout is not a duration: {duration!r}", how)
    return float(min(max(seconds, 0), TIMEOUT_MAX))


def to_timestamp(timestamp: Timestamp, name: str = "timestamp") -> int:
    """Converts to milliseconds since the epoch, rounding a `datetime` down. Raises `ConfigError` CS-201.

    >>> to_timestamp(datetime(1970, 1, 1, 0, 0, 1))
    1000
    """
    if isinstance(timestamp, datetime):
        aware = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=timezone.utc)
        return (aware - _EPOCH) // _MILLISECOND
    if not is_whole(timestamp) or int(timestamp).bit_length() > 63:
        step = "pass an int of milliseconds since the epoch, or a datetime"
        raise refuse("CS-201", f"{name} is not a timestamp: {timestamp!r}", step, **caller_location())
    return int(timestamp)


def to_record_timestamp(timestamp: Timestamp) -> int:
    """As `to_timestamp`, for records: also refuses one later than `LATEST`."""
    milliseconds = to_timestamp(timestamp)
    if milliseconds > LATEST:
        what = f"timestamp is later than {LATEST} ms, some 146 million years from now: {milliseconds}"
        step = "pass milliseconds since the epoch, not a finer unit"
        raise refuse("CS-201", what, step, **caller_location())
    return milliseconds


def in_words(milliseconds: int) -> str:
    """A duration as text, in the largest unit that gives a whole number.

    >>> in_words(2_592_000_000), in_words(90_000), in_words(1), in_words(0)
    ('30 days', '90 seconds', '1 ms', '0 ms')
    """
    factor = max(one for one in _WORDS if milliseconds % one == 0) if milliseconds else 1
    count = milliseconds // factor
    unit = "ms" if factor == 1 else _WORDS[factor][-1 if count != 1 else -2]
    return f"{count} {unit}"


def is_duration(given: object) -> bool:
    """Whether `to_milliseconds` can read it.

    >>> is_duration("10 seconds"), is_duration("views")
    (True, False)
    """
    return _count(given) is not None


def _count(duration: object) -> int | None:
    if isinstance(duration, timedelta):
        return duration // _MILLISECOND if duration % _MILLISECOND == timedelta(0) else None
    if isinstance(duration, str):
        return _parse(duration)
    return duration if isinstance(duration, int) and not isinstance(duration, bool) else None


def _seconds(duration: object) -> float | None:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, str):
        milliseconds = _parse(duration)
        return None if milliseconds is None else milliseconds / 1000
    if isinstance(duration, float):
        return None if math.isnan(duration) else duration
    return duration if is_whole(duration) else None


def _parse(text: str) -> int | None:
    sign = _SIGN.match(text)
    position, total = sign.end() if sign else 0, 0
    if not text[position:].strip():
        return None
    while position < len(text):
        part = _PART.match(text.lower(), position)
        factor = _UNITS.get(part[2]) if part else None
        if part is None or factor is None:
            return None
        total, position = total + int(part[1]) * factor, part.end()
    return -total if sign and sign[1] else total


def _error(code: str, what: str, how: str | None = None) -> CrossStreamError:
    return refuse(code, what, how, **caller_location())
