"""Views and clicks of "Crossing the Streams" as streams: every figure of its stream–stream joins.

Views and clicks are partners if they are at most ten seconds apart. Each test is a figure: what comes out, in order.
The same tests run on Spark in tests/spark.
"""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from tests.conformance.figure import CONSUMED, FIGURE, LATER, Driver, Engine, both

TEN = cs.JoinWindows.of("10 seconds")
EAGER = cs.JoinWindows.of("10 seconds", grace="1 day", eager=True)


@pytest.fixture
def engine() -> Engine:
    return Driver()


def play(engine: Engine, kind: str, windows: cs.JoinWindows, figure: str) -> list[str]:
    def join(builder: cs.StreamsBuilder) -> Any:
        views, clicks = (builder.stream(topic, CONSUMED) for topic in ("views", "clicks"))
        return getattr(views, kind)(clicks, both, windows)

    return engine.play(join, figure)


# A: the click comes after the view          B: the click comes too late
# C: the view comes after the click          D: nobody clicks      E: nobody viewed
# F: two views, one click                    G: one view, two clicks


def test_inner_join(engine: Engine) -> None:
    assert play(engine, "join", TEN, FIGURE) == [
        "A,A@1", "C,C@3", "F.1,F@7", "F.2,F@7", "G,G.1@9", "G,G.2@9.5",
    ]  # fmt: skip


def test_left_join_eager_as_in_the_article(engine: Engine) -> None:
    """A, F.1, F.2 and G come out alone although their clicks follow: the surprising rows of the article."""
    assert play(engine, "left_join", EAGER, FIGURE) == [
        "A,∅@0", "B,∅@1", "A,A@1", "C,C@3", "D,∅@4", "F.1,∅@6", "F.2,∅@6.5",
        "F.1,F@7", "F.2,F@7", "G,∅@8", "G,G.1@9", "G,G.2@9.5",
    ]  # fmt: skip


def test_outer_join_eager_as_in_the_article(engine: Engine) -> None:
    assert play(engine, "outer_join", EAGER, FIGURE) == [
        "A,∅@0", "B,∅@1", "A,A@1", "∅,C@2", "C,C@3", "D,∅@4", "∅,E@5", "F.1,∅@6", "F.2,∅@6.5",
        "F.1,F@7", "F.2,F@7", "G,∅@8", "G,G.1@9", "G,G.2@9.5", "∅,B@12",
    ]  # fmt: skip


def test_left_join_waits_for_the_window_to_close(engine: Engine) -> None:
    """View B comes out at 12, when its window [1, 11] has closed, by the very click that is too late; D needs more."""
    assert play(engine, "left_join", TEN, FIGURE) == [
        "A,A@1", "C,C@3", "F.1,F@7", "F.2,F@7", "G,G.1@9", "G,G.2@9.5", "B,∅@1",
    ]  # fmt: skip


def test_left_join_later(engine: Engine) -> None:
    assert play(engine, "left_join", TEN, FIGURE + LATER) == [
        "A,A@1", "C,C@3", "F.1,F@7", "F.2,F@7", "G,G.1@9", "G,G.2@9.5", "B,∅@1",
        "D,∅@4", "Z,Z@25",
    ]  # fmt: skip


def test_outer_join_waits_for_the_window_to_close(engine: Engine) -> None:
    """D, E and click B wait: their windows are open up to 14, 15 and 22."""
    assert play(engine, "outer_join", TEN, FIGURE) == [
        "A,A@1", "C,C@3", "F.1,F@7", "F.2,F@7", "G,G.1@9", "G,G.2@9.5", "B,∅@1",
    ]  # fmt: skip


def test_outer_join_later(engine: Engine) -> None:
    assert play(engine, "outer_join", TEN, FIGURE + LATER) == [
        "A,A@1", "C,C@3", "F.1,F@7", "F.2,F@7", "G,G.1@9", "G,G.2@9.5", "B,∅@1",
        "D,∅@4", "∅,E@5", "∅,B@12", "Z,Z@25",
    ]  # fmt: skip


def test_grace_of_five_seconds(engine: Engine) -> None:
    """Nothing is late here, so grace only lets everything wait longer: view B until 16, click B until 27."""
    windows = cs.JoinWindows.of("10 seconds", grace="5 seconds")
    assert play(engine, "outer_join", windows, FIGURE + LATER) == [
        "A,A@1", "C,C@3", "F.1,F@7", "F.2,F@7", "G,G.1@9", "G,G.2@9.5",
        "B,∅@1", "D,∅@4", "∅,E@5", "Z,Z@25",
    ]  # fmt: skip


def test_clicks_up_to_ten_seconds_after_the_view(engine: Engine) -> None:
    """``before=0``: C's view comes after its click, and they are no partners any more.

    A click waits for nobody then: it is alone as soon as time has passed it.
    """
    windows = cs.JoinWindows(before=0, after="10 seconds")
    assert play(engine, "outer_join", windows, FIGURE + LATER) == [
        "A,A@1", "∅,C@2", "∅,E@5", "F.1,F@7", "F.2,F@7", "G,G.1@9", "G,G.2@9.5",
        "B,∅@1", "C,∅@3", "D,∅@4", "∅,B@12", "Z,Z@25",
    ]  # fmt: skip


def test_right_join_is_the_left_join_of_flipped_streams(engine: Engine) -> None:
    """Every click, with its view if there is one; a window of other bounds is flipped, too."""

    def join(builder: cs.StreamsBuilder) -> Any:
        views, clicks = (builder.stream(topic, CONSUMED) for topic in ("views", "clicks"))
        return clicks.left_join(views, lambda click, view: both(view, click), TEN)

    assert engine.play(join, FIGURE + LATER) == [
        "A,A@1", "C,C@3", "F.1,F@7", "F.2,F@7", "G,G.1@9", "G,G.2@9.5",
        "∅,E@5", "∅,B@12", "Z,Z@25",
    ]  # fmt: skip


def test_views_with_views(engine: Engine) -> None:
    """A stream joined with itself: each view with itself, and F with the other F."""

    def join(builder: cs.StreamsBuilder) -> Any:
        views = builder.stream("views", CONSUMED)
        builder.stream("clicks", CONSUMED).foreach(len)
        return views.join(views, both, TEN)

    assert engine.play(join, FIGURE) == [
        "A,A@0", "B,B@1", "C,C@3", "D,D@4", "F.1,F.1@6",
        "F.2,F.1@6.5", "F.1,F.2@6.5", "F.2,F.2@6.5", "G,G@8",
    ]  # fmt: skip
