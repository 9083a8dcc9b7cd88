"""The next step of an error, followed to the letter, cures what the error was about."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()
BOTH = cs.Consumed(key=TEXT, value=JSON)
NAMES = {name: getattr(cs, name) for name in cs.__all__ if name != "__version__"} | {"serdes": serdes}


def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def error_of(code: str, act: Callable[[], Any], *words: str) -> cs.TopologyError:
    with pytest.raises(cs.TopologyError) as caught:
        act()
    assert caught.value.code == code, caught.value
    assert caught.value.next
    assert all(word in str(caught.value) for word in words)
    return caught.value


class World:
    """A builder with what the cases need."""

    def __init__(self) -> None:
        self.builder = cs.StreamsBuilder()
        self.views, self.clicks = (self.builder.stream(topic, BOTH) for topic in ("views", "clicks"))
        self.users, self.shops = (self.builder.table(topic, BOTH) for topic in ("users", "shops"))


def argument(error: cs.TopologyError) -> dict[str, Any]:
    """The keyword argument that the step says to write."""
    assert error.next is not None
    setting, _, value = error.next.removeprefix("write ").partition("=")
    return {setting: eval(value, dict(NAMES))}


# -- options in the place of their names ----------------------------------------------------------------

OPTIONS: dict[str, Callable[..., Any]] = {
    "windows": lambda w, **given: w.views.join(w.clicks, pair, **({"windows": "10 seconds"} | given)),
    "windows, a number": lambda w, **given: w.views.join(w.clicks, pair, **({"windows": 10_000} | given)),
    "windows, a word": lambda w, **given: w.views.join(w.clicks, pair, **({"windows": "short"} | given)),
    "stream_joined": lambda w, **given: w.views.join(
        w.clicks, pair, cs.JoinWindows.of("1 second"), **({"stream_joined": "seen"} | given)
    ),
    "joined": lambda w, **given: w.views.join(w.users, pair, **({"joined": "known"} | given)),
    "materialized": lambda w, **given: w.users.filter(bool, **({"materialized": "kept"} | given)),
    "table_joined": lambda w, **given: w.users.join(
        w.shops, pair, foreign_key=lambda user: user["shop"], **({"table_joined": "promo"} | given)
    ),
    "repartitioned": lambda w, **given: w.views.repartition(**({"repartitioned": "by"} | given)),
    "named": lambda w, **given: w.views.filter(bool, **({"named": "some"} | given)),
    "produced": lambda w, **given: w.views.to("out", **({"produced": JSON} | given)),
    "consumed": lambda w, **given: w.builder.stream("more", **({"consumed": JSON} | given)),
}


@pytest.mark.parametrize("call", OPTIONS.values(), ids=OPTIONS)
def test_the_object_of_an_option_is_written_out(call: Callable[..., Any]) -> None:
    world = World()
    before = list(world.builder.build().nodes)
    error = error_of("CS-101", lambda: call(world))
    assert list(world.builder.build().nodes) == before
    call(world, **argument(error))
    world.builder.build()


def test_a_name_that_cannot_be_one_is_not_proposed() -> None:
    world = World()
    error = error_of("CS-101", lambda: world.views.repartition("by customer"))
    assert error.next == 'write repartitioned=Repartitioned(name="…")'


@pytest.mark.parametrize(
    ("java", "python"),
    [
        (
            lambda w: w.users.filter(bool, cs.Materialized(store="x")),
            lambda w, **given: w.users.filter(bool, **given),
        ),
        (
            lambda w: w.users.map_values(str, cs.Materialized(store="x")),
            lambda w, **given: w.users.map_values(str, **given),
        ),
        (
            lambda w: w.views.to_table(cs.Materialized(store="x")),
            lambda w, **given: w.views.to_table(**given),
        ),
    ],
)
def test_options_that_java_takes_in_other_places(
    java: Callable[..., Any], python: Callable[..., Any]
) -> None:
    error = error_of("CS-101", lambda: java(World()), "name the argument")
    setting = re.fullmatch(r"name the argument: (\w+)=.*", error.next)[1]
    kind = {"materialized": cs.Materialized(store="x"), "named": cs.Named("x")}
    world = World()
    made = python(world, **{setting: kind[setting]})
    assert "x" in (getattr(made, "queryable_store_name", None), next(reversed(world.builder.build().nodes)))


def test_retention_is_a_duration() -> None:
    error_of("CS-110", lambda: cs.Materialized(retention="an hour"), "retention", "an hour")
    assert cs.Materialized(store="x", retention="1 hour").retention == 3_600_000
    error_of("CS-101", lambda: cs.Materialized(history_retentoin="1 hour"), "did you mean history_retention")


# -- serdes of what a batch is given ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "lost",
    [
        lambda w: w.views.map_values(str),
        lambda w: w.views.select_key(str),
        lambda w: w.views.map(lambda key, value: (key, value)),
        lambda w: w.views.join(w.users, pair),
        lambda w: w.views.join(w.clicks, pair, cs.JoinWindows.of("1 second")),
        lambda w: w.users.join(w.shops, pair).to_stream(),
    ],
)
def test_serdes_that_for_each_batch_does_not_know(lost: Callable[..., Any]) -> None:
    stream = lost(World())
    error = error_of("CS-140", lambda: stream.for_each_batch(lambda frame, batch: None))
    step = re.fullmatch(r"put (repartition\(.*\)) before it", error.next)[1]
    made = eval(f"stream.{step}", {"stream": stream, **NAMES})
    made.for_each_batch(lambda frame, batch: None)


# -- splits ----------------------------------------------------------------------------------------------


def test_a_split_of_a_name_that_is_taken_is_refused_at_once() -> None:
    world = World()
    before = list(world.builder.build().nodes)
    error_of("CS-120", lambda: world.views.split(cs.Named("users")), "give one of them another name")
    assert list(world.builder.build().nodes) == before
    found = world.views.split(cs.Named("mine-")).branch(bool, "a").default_branch()
    assert list(found) == ["mine-a", "mine-0"]
    world.builder.build()


def test_a_branch_of_a_name_that_is_taken_is_refused_and_the_split_goes_on() -> None:
    world = World()
    world.views.filter(bool, named=cs.Named("by-a"))
    world.views.filter(bool, named=cs.Named("by-0"))
    split = world.views.split(cs.Named("by-"))
    error_of("CS-120", lambda: split.branch(bool, "a"))
    error_of("CS-120", lambda: split.default_branch())
    error_of("CS-120", lambda: split.branch(bool, "b").default_branch("b"))
    assert list(split.default_branch("rest")) == ["by-b", "by-rest"]
    assert list(world.builder.build().nodes)[-3:] == ["by-", "by-b", "by-rest"]
