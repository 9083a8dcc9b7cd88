"""What sinks get when the code changes: rows that differ, all rows of a new one, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from crossstream.error_codes import refuse
from crossstream.evolution.decision import Compared, Result, StoredTable
from crossstream.evolution.old_state import OldState
from crossstream.graph.node import Graph, lineage
from crossstream.storage.noted import NotedNode, NotedTopology


@dataclass(frozen=True, slots=True)
class Sinks:
    """The sinks of the new topology, and the ``gone`` ones of the old: see `Decision`."""

    results: tuple[Result, ...]
    events: tuple[str, ...]
    untouched: tuple[str, ...]
    gone: tuple[str, ...]


def results_of(
    topology: Graph,
    new: Mapping[str, NotedNode],
    old: OldState,
    fresh: frozenset[str],
) -> Sinks:
    """What each sink gets. ``fresh``: sources that are read as at a first start.

    Raises `StateError` CS-755 where rows that are gone could not be deleted.
    """
    before = {place_of(node): node for node in old.noted.nodes if is_sink(node)}
    earlier = {place_of(node): node for node in old.noted.gone}
    results: list[Result] = []
    events: list[str] = []
    untouched: list[str] = []
    met: set[str] = set()
    for node in new.values():
        if not is_sink(node):
            continue
        was = before.get(place_of(node))
        if was is not None:
            met.add(was.name)
        if was is not None and was.meaning == node.meaning:
            untouched.append(node.name)
        elif _sources(topology, node.name) <= fresh:
            continue
        elif not node.rows_of:
            events.append(node.name)
        else:
            last = earlier.get(place_of(node)) if was is None else was
            _check_keys(topology, node, last)
            results.append(_result(node, last, old))
    gone = tuple(node.name for node in before.values() if node.name not in met)
    return Sinks(tuple(results), tuple(events), tuple(untouched), gone)


def _check_keys(topology: Graph, node: NotedNode, was: NotedNode | None) -> None:
    """A partitioner gets the keys of rows that are gone, too: those that another serde wrote cannot be read."""
    if was is None or was.key == node.key or "topic" not in node.settings:
        return
    sink = topology[node.name]
    if not sink.writes_bytes:
        what = (
            f"another serde has written the keys in {place_text(node.settings)}, so {node.name} cannot give its "
            "partitioner the keys of rows that are gone"
        )
        step = "send the result to a new topic"
        raise refuse("CS-755", what, step, **sink.where)


def _result(node: NotedNode, was: NotedNode | None, old: OldState) -> Result:
    place = place_text(node.settings)
    if was is None:
        return Result(node.name, "nothing", table=node.rows_of, place=place)
    stored = _as_sent(was, node, old)
    compared: Compared = "store" if stored is not None else "sink" if place else "nothing"
    return Result(node.name, compared, stored, node.rows_of, was.name, place)


def _as_sent(was: NotedNode, node: NotedNode, old: OldState) -> StoredTable | None:
    """The old store with the rows of a sink, in its serdes; those of the new one must be the same."""
    if not was.rows_of or not was.unchanged or (was.key, was.value) != (node.key, node.value):
        return None
    for name, store in old.holding(was.rows_of):
        if (store.key, store.value) == (was.key, was.value):
            key, value = old.serdes.get(store.key), old.serdes.get(store.value)
            if key is not None and value is not None:
                return old.table(name, key, value)
    return None


def gone_after(old: NotedTopology, new: NotedTopology) -> tuple[NotedNode, ...]:
    """The sinks that an application had and has no more, one for each place: what they wrote is still there.

    No store has that: the tables that it came from may have changed since.
    """
    known = [node for node in (*old.gone, *old.nodes) if is_sink(node)]
    left = {place_of(node): node for node in known if place_text(node.settings)}
    for node in new.nodes:
        if is_sink(node):
            left.pop(place_of(node), None)
    return tuple(structs.replace(node, rows_of="") for node in left.values())


def is_sink(node: NotedNode) -> bool:
    """Whether it writes results: not what a function does with each record."""
    places = {*node.settings, *node.functions}
    return node.shape == "none" and not places.isdisjoint(("topic", "topic_of", "table", "function"))


def place_of(node: NotedNode) -> tuple[str, ...]:
    """Where a sink writes to; one with a function is known by its name."""
    place = place_text(node.settings)
    return (place,) if place else (node.kind, node.name)


def place_text(settings: Mapping[str, str]) -> str:
    """Where a sink writes to, for people; "" for one with a function.

    >>> place_text({"topic": "bills"}), place_text({"form": "delta", "table": "lake/bills"})
    ('topic bills', 'delta table lake/bills')
    """
    if "topic" in settings:
        return f"topic {settings['topic']}"
    return f"{settings.get('form', '')} table {settings['table']}".strip() if "table" in settings else ""


def sink_text(topology: NotedTopology, name: str) -> str:
    """Where a sink of this name writes to, for people; its name if a function decides that."""
    return place_text(topology.node(name).settings) or name


def _sources(topology: Graph, name: str) -> set[str]:
    return {node.name for node in lineage(topology.nodes, [name]) if node.reads_input}
