"""The statuses of an application, and the ways between them."""

from __future__ import annotations

import threading
from typing import get_args

import pytest

from crossstream.application.lifecycle import Lifecycle, Status
from tests.application.waiting import wait_for

# From each status (rows) to each other: + it may follow, . it may not.
TABLE = """
            created running stopping stopped failed
created        .       +       .        +      +
running        .       .       +        +      +
stopping       .       .       .        +      +
stopped        .       +       .        +      +
failed         .       .       .        .      .
"""
WAYS: dict[str, tuple[Status, ...]] = {
    "created": (),
    "running": ("running",),
    "stopping": ("running", "stopping"),
    "stopped": ("running", "stopped"),
    "failed": ("failed",),
}


def cells() -> list[tuple[str, str, bool]]:
    head, *rows = [line.split() for line in TABLE.strip().splitlines()]
    return [(row[0], to, cell == "+") for row in rows for to, cell in zip(head, row[1:], strict=True)]


def life_in(status: str) -> Lifecycle:
    life = Lifecycle()
    for step in WAYS[status]:
        assert life.move(step)
    assert life.status == status
    return life


@pytest.mark.parametrize(("before", "after", "may_follow"), cells())
def test_each_way_is_legal_or_changes_nothing(before: str, after: Status, may_follow: bool) -> None:
    life = life_in(before)
    assert life.move(after) is may_follow
    assert life.status == (after if may_follow else before)


def test_the_table_has_every_status() -> None:
    assert {before for before, _, _ in cells()} == set(get_args(Status)) - {"paused"}


@pytest.mark.parametrize("status", WAYS)
def test_only_an_application_that_runs_is_called_paused(status: str) -> None:
    life = life_in(status)
    life.pause()
    assert life.is_paused
    assert life.status == ("paused" if status == "running" else status)
    assert life.is_in(status)  # type: ignore[arg-type]
    life.resume()
    assert life.status == status


def test_the_first_failure_counts_and_is_raised_once() -> None:
    life, first = life_in("running"), ValueError("first")
    life.fail(first)
    life.fail(ValueError("second"))
    assert (life.status, life.failure) == ("failed", "first")
    assert (life.take_error(), life.take_error()) == (first, None)


def test_a_halt_ends_what_runs_and_not_what_begins_later() -> None:
    life = Lifecycle()
    earlier = life.stop
    life.halt()
    assert earlier.is_set()
    assert not life.stop.is_set()


def test_only_the_thread_that_runs_batches_is_inside() -> None:
    life, seen = Lifecycle(), []
    with life.running_batches():
        other = threading.Thread(target=lambda: seen.append(life.is_inside))
        other.start()
        other.join()
        assert life.is_inside
    assert not life.is_inside
    assert seen == [False]


def test_who_waits_is_counted_and_woken() -> None:
    life, done = Lifecycle(), threading.Event()
    waiting = threading.Thread(target=lambda: life.wait_for(done.is_set))
    waiting.start()
    wait_for(lambda: life.waiters == 1)
    done.set()
    life.wake()
    waiting.join(10)
    assert (waiting.is_alive(), life.waiters) == (False, 0)
