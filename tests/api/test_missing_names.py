"""A name that a class does not have, but another class, Java or Spark has: the error says where it is."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream.missing_names import _OTHER_NAMES, _WAYS
from crossstream.spark import SparkStreams
from tests.refusing import check_refused

FILE = __file__


def handles() -> dict[str, Any]:
    """One object of each class that builds or tests a topology, by the name that advice gives it."""
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("clicks"), builder.table("orders")
    grouped = stream.group_by_key()
    split = cs.StreamsBuilder().stream("clicks").split().branch(lambda click: True, "a")
    made = {
        "builder": builder,
        "stream": stream,
        "table": table,
        "global_table": builder.global_table("shops"),
        "grouped": grouped,
        "windowed": grouped.windowed_by("1 hour"),
        "cogrouped": grouped.cogroup(lambda count, click: count),
        "grouped_table": table.group_by("customer"),
        "split": split,
    }
    other = cs.StreamsBuilder()
    other.table("a", store="a")
    other.stream("b").to("a")
    topology = other.build()
    return {**made, "topology": topology, "driver": cs.TopologyTestDriver(topology)}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


KINDS = {name: type(one) for name, one in handles().items()}
DSL = [name for name in KINDS if name not in ("topology", "driver")]
BUILDS = {name for one in DSL[1:] for name in public(KINDS[one])} | public(cs.KTable)


def answer(found_in: object, name: str) -> str:
    with pytest.raises(AttributeError) as caught:
        getattr(found_in, name)
    assert isinstance(caught.value, cs.TopologyError)
    assert (caught.value.code, caught.value.what.split()[0]) == ("CS-101", type(found_in).__name__)
    return str(caught.value.next)


def check_leads_to_names(step: str) -> None:
    """Each chain of calls in the advice can be written: all but its last name is called here."""
    roots = handles()
    for root, chain in re.findall(rf"\b({'|'.join(roots)})((?:\.\w+(?:\([^()]*\))?(?:\[[^]]*\])?)+)", step):
        before, last = re.match(r"(.*)\.(\w+)[^.]*$", root + chain).groups()  # type: ignore[union-attr]
        for given, written in (("cogroup(…)", "cogroup(max)"), ("(…)", '("a")'), ('"…"', '"a"')):
            before = before.replace(given, written)
        found = eval(before, dict(roots))
        assert last in public(type(found)), step


@pytest.mark.parametrize("kind", DSL)
def test_a_method_of_another_class_says_where_it_is(kind: str) -> None:
    found_in = handles()[kind]
    missing = BUILDS - public(KINDS[kind]) - {"outer_join", "right_join"}
    assert len(missing) >= 10
    for name in sorted(missing):
        step = answer(found_in, name)
        assert not step.startswith(("it has", "did you mean")), (kind, name, step)
        check_leads_to_names(step)


@pytest.mark.parametrize(
    ("kind", "name", "step"),
    [
        ("table", "map", "make it a stream of its changes first: table.to_stream().map(…)"),
        ("table", "groupByKey", "make it a stream of its changes first: table.to_stream().group_by_key(…)"),
        ("stream", "count", "group the records first: stream.group_by_key().count(…)"),
        ("stream", "windowedBy", "group the records first: stream.group_by_key().windowed_by(…)"),
        ("stream", "mapValues", "here it is called map_values"),
        ("table", "queryableStoreName", "here it is called queryable_store_name"),
        ("stream", "where", "here it is called filter"),
        ("stream", "sum", "group the records first: stream.group_by_key().agg(…)"),
        ("stream", "filterx", "did you mean filter or filter_not?"),
        ("stream", "get", "it is a method of a store: app.store(name), or open_store(state_dir, name)"),
        (
            "grouped_table",
            "windowed_by",
            "only streams have it: table.to_stream().group_by(…).windowed_by(…)",
        ),
        ("builder", "globalTable", "here it is called global_table"),
        ("builder", "to_mermaid", "the topology has it: builder.build().to_mermaid()"),
        ("builder", "addStateStore", "a processor names its stores: stream.process(supplier, stores=[…])"),
        ("topology", "stream", "it is built: builder.stream(…) comes before builder.build()"),
        ("driver", "pipeInput", 'pipe into a topic: driver.create_input_topic("…").pipe_input(…)'),
        ("driver", "createInputTopic", "here it is called create_input_topic"),
        ("driver", "getStateStore", "here it is called get_key_value_store"),
    ],
)
def test_a_slip_is_answered(kind: str, name: str, step: str) -> None:
    assert answer(handles()[kind], name) == step


def test_what_the_tables_name_exists() -> None:
    classes = [*KINDS.values(), SparkStreams, cs.TestInputTopic, cs.TestOutputTopic]
    known = {name for kind in classes for name in public(kind)}
    assert {name: ours for name, ours in _OTHER_NAMES.items() if ours not in known} == {}
    named = {kind.__name__ for kind in classes} | {"Materialized", "Named", "JoinWindows"}
    assert _WAYS.keys() <= named
    for ways in _WAYS.values():
        for names, step in ways:
            for name in names.split():
                check_leads_to_names(step.format(name))


def test_the_error_is_placed_like_any_other() -> None:
    table = cs.StreamsBuilder().table("orders")
    check_refused(cs.TopologyError, FILE, "CS-101", lambda: table.map, "operator orders", "KTable", "'map'")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("option", "name", "step"),
    [
        (
            cs.TimeWindows,
            "ofSizeWithNoGrace",
            "settings are arguments: TimeWindows(size=…, advance=…, grace=…)",
        ),
        (cs.Suppressed, "untilWindowCloses", "here it is called until_window_closes"),
        (cs.Materialized, "as_", 'write Materialized(store="…", key=…, value=…)'),
        (cs.Named("a"), "withName", "settings are arguments: Named(name=…)"),
    ],
)
def test_javas_static_methods_of_options_are_arguments(option: object, name: str, step: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(option, name)
    assert getattr(caught.value, "next", None) == step


@pytest.mark.parametrize("kind", KINDS)
def test_what_programs_look_for_is_missing_as_always(kind: str) -> None:
    """Copies, pickles, notebooks and checks ask for names, and get plain answers."""
    found_in = handles()[kind]
    assert not hasattr(found_in, "no_such_name")
    assert getattr(found_in, "no_such_name", 7) == 7
    for name in ("_ipython_display_", "_repr_png_", "__deepcopy__", "__array_interface__", "_jdf"):
        with pytest.raises(AttributeError) as caught:
            getattr(found_in, name)
        assert not isinstance(caught.value, cs.CrossStreamError)
    blank = object.__new__(type(found_in))  # as copies and pickles begin
    with pytest.raises(AttributeError):
        blank.no_such_name  # noqa: B018


def test_options_are_copied_and_pickled() -> None:
    for option in (cs.TimeWindows(size="1 hour"), cs.Named("a"), cs.Materialized(store="s")):
        assert copy.copy(option) == copy.deepcopy(option) == option
    assert pickle.loads(pickle.dumps(cs.Named("a"))) == cs.Named("a")


def test_the_error_survives_a_pickle() -> None:
    act: Callable[[], object] = lambda: cs.StreamsBuilder().stream("s").count  # type: ignore[attr-defined]  # noqa: E731
    with pytest.raises(cs.TopologyError) as caught:
        act()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
