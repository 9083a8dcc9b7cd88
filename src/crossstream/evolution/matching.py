"""Which operator of the old topology a new one continues: by its name, its store, its meaning, or its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from crossstream.evolution.decision import Match
from crossstream.evolution.results import place_text
from crossstream.storage.noted import NotedNode, NotedTopology

_SURE = 1_000
"""More than any operator has parents."""


def family(kind: str) -> str:
    """What is the same of joins, or of filters, of several kinds.

    >>> family("left_join"), family("filter_not"), family("left_join_many")
    ('join', 'filter', 'join_many')
    """
    first, _, rest = kind.partition("_")
    if first in ("left", "right", "outer"):
        return rest
    return "filter" if kind == "filter_not" else kind


def matched(old: NotedTopology, new: Mapping[str, NotedNode]) -> dict[str, Match]:
    """The operators of the new topology that continue one before, each from another."""
    found: dict[str, Match] = {}
    taken: set[str] = set()
    for pairs in (_by_name, _by_store, _by_meaning, _by_place):
        for match in pairs(old, new, found):
            if match.new not in found and match.old not in taken:
                found[match.new] = match
                taken.add(match.old)
    return {name: found[name] for name in new if name in found}


def _by_name(old: NotedTopology, new: Mapping[str, NotedNode], found: Mapping[str, Match]) -> Iterator[Match]:
    known = {node.name: node for node in old.nodes if node.is_named}
    for node in new.values():
        before = known.get(node.name)
        if node.is_named and before is not None and before.shape == node.shape:
            yield Match(node.name, before.name, "its name")


def _by_store(
    old: NotedTopology, new: Mapping[str, NotedNode], found: Mapping[str, Match]
) -> Iterator[Match]:
    known = {node.store: node for node in old.nodes if node.store}
    for node in new.values():
        before = known.get(node.store)
        if before is not None and before.shape == node.shape:
            yield Match(node.name, before.name, "its store")


def _by_meaning(
    old: NotedTopology, new: Mapping[str, NotedNode], found: Mapping[str, Match]
) -> Iterator[Match]:
    """Of several that mean the same the one of the same name comes first."""
    for same_name in (True, False):
        for node in new.values():
            for before in old.nodes:
                if before.meaning == node.meaning and (not same_name or before.name == node.name):
                    yield Match(node.name, before.name, "the same meaning")


def _by_place(
    old: NotedTopology, new: Mapping[str, NotedNode], found: Mapping[str, Match]
) -> Iterator[Match]:
    """Operators of one kind at the same place: of the same topics, or below parents that match.

    What is between an operator and such a parent, and has no match, is passed over: a filter that is new, or gone.
    """
    above = {name: match.old for name, match in found.items()}
    taken = set(above.values())
    before = {node.name: node for node in old.nodes}
    for node in new.values():
        if node.name in above:
            continue
        free = [
            one
            for one in old.nodes
            if one.name not in taken and one.shape == node.shape and family(one.kind) == family(node.kind)
        ]
        wanted = Counter(above.get(_known(name, new, above), "") for name in node.parents)
        scored = [(_likeness(one, node, wanted, before, taken), one) for one in free]
        likely = max(scored, key=lambda each: (each[0], each[1].name == node.name), default=None)
        if likely is not None and likely[0] > 0:
            above[node.name] = likely[1].name
            taken.add(likely[1].name)
            yield Match(node.name, likely[1].name, "its place in the graph")


def _likeness(
    old: NotedNode,
    new: NotedNode,
    parents: Counter[str],
    before: Mapping[str, NotedNode],
    taken: Collection[str],
) -> int:
    """How many topics or parents two operators have in common; where both write to one place, that says it."""
    place = place_text(new.settings)
    if place:
        return _SURE if place_text(old.settings) == place else 0
    if not new.parents:
        return 0 if old.parents else len(set(old.topics) & set(new.topics))
    shared = sum((Counter(old.parents) & parents).values())
    return 2 * shared or sum(
        (Counter(_known(name, before, taken) for name in old.parents) & parents).values()
    )


def _known(name: str, nodes: Mapping[str, NotedNode], known: Collection[str]) -> str:
    """An operator that has a match, or the nearest one above it that has, along one parent."""
    while name not in known and len(nodes[name].parents) == 1:
        name = nodes[name].parents[0]
    return name
