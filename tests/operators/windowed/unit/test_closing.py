"""When windows of each kind close, beside the rule in words: semantics 3.4."""

from __future__ import annotations

import numpy as np
import pytest

from crossstream.columns.windows import WindowSpec
from crossstream.operators.windowed.closing import Closing
from crossstream.serdes.windowed import NO_END

SIZE, ADVANCE, GRACE = 10, 5, 3
TIME = WindowSpec("time", SIZE, ADVANCE, GRACE)
SLIDING = WindowSpec("sliding", SIZE, 0, GRACE)
SESSION = WindowSpec("session", SIZE, 0, GRACE)
UNLIMITED = WindowSpec("unlimited", 7, 0, 0)


def takes_a_record(windows: WindowSpec, position: int, stream_time: int) -> bool:
    """Whether a window takes a record in time at this stream time. A session's position is its end."""
    if windows == TIME:
        return position + SIZE > stream_time - GRACE
    if windows == SLIDING:
        return position + SIZE >= stream_time - GRACE
    return position + SIZE + GRACE >= stream_time


@pytest.mark.parametrize("windows", [TIME, SLIDING, SESSION], ids=lambda windows: windows.kind)
def test_a_window_has_closed_when_it_takes_no_record_any_more(windows: WindowSpec) -> None:
    closing = Closing.of(windows)
    for stream_time in range(60):
        still_open = [takes_a_record(windows, position, stream_time) for position in range(60)]
        assert closing.close(stream_time) <= 60
        assert still_open == [position >= closing.close(stream_time) for position in range(60)]


@pytest.mark.parametrize("windows", [TIME, SLIDING, SESSION], ids=lambda windows: windows.kind)
def test_the_moment_of_a_window_is_the_first_time_at_which_it_has_closed(windows: WindowSpec) -> None:
    closing, positions = Closing.of(windows), np.arange(30)
    for position, moment in zip(positions.tolist(), closing.notify_at(positions).tolist(), strict=True):
        assert not takes_a_record(windows, position, moment)
        assert takes_a_record(windows, position, moment - 1)


def test_a_window_without_an_end_never_closes() -> None:
    closing = Closing.of(UNLIMITED)
    assert closing.close(10**15) == 0
    assert closing.notify_at(np.array([7])).tolist() == [NO_END]
    assert closing.retention(5) is None


@pytest.mark.parametrize(
    ("windows", "least", "oldest", "remembered"),
    [(TIME, 13, 100 - 13 + 1, 0), (SLIDING, 23, 104 - 10 - 23, 0), (SESSION, 13, 104 - 13 + 1, 11)],
    ids=lambda case: getattr(case, "kind", None),
)
def test_the_store_keeps_what_late_records_may_change(
    windows: WindowSpec, least: int, oldest: int, remembered: int
) -> None:
    closing = Closing.of(windows)
    assert (closing.retention(None), closing.retention(5), closing.retention(50)) == (least, least, 50)
    assert closing.oldest(104, least) == oldest
    assert closing.remembered == remembered


def test_windows_leave_the_store_when_they_close_unless_they_are_kept_or_copied() -> None:
    assert Closing.of(TIME).leave(13)
    assert not Closing.of(TIME).leave(14)
    assert Closing.of(SESSION).leave(13)
    assert not Closing.of(SLIDING).leave(23)


@pytest.mark.parametrize(
    ("windows", "traits", "length", "open_after_end"),
    [
        (TIME, "end take_nulls", SIZE, GRACE),
        (SLIDING, "end move", SIZE, GRACE),
        (SESSION, "end merge move take_nulls", None, SIZE + GRACE),
        (UNLIMITED, "take_nulls", NO_END, 0),
    ],
    ids=lambda case: getattr(case, "kind", None),
)
def test_what_the_kinds_differ_in(
    windows: WindowSpec, traits: str, length: int | None, open_after_end: int
) -> None:
    names = ("end", "merge", "move", "take_nulls")
    assert " ".join(name for name in names if getattr(windows, name)) == traits
    assert (windows.length, windows.open_after_end) == (length, open_after_end)
