"""Names of operators, topics, stores and flows, and checks that no two share one.

An operator has the user's name, or its path in the graph. So a name outlives changes elsewhere in the code, and with
it the state that is kept under it (decision 0004). Each check raises `TopologyError` in the user's line. Source:
semantics 5.1 (``InternalTopologyBuilder.addSource``, ``InternalStreamsBuilder.mergeDuplicateSourceNodes``).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.graph import nodes as graph
from crossstream.topics import is_elsewhere, is_internal


def unique(name: str, taken: Container[str]) -> str:
    """``name``, or the first of ``name-2``, ``name-3``, … that is not taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def matches(pattern: re.Pattern[str] | None, topic: str) -> bool:
    """Whether a source with this pattern reads the topic; internal topics and tables never match."""
    if pattern is None or is_internal(topic) or is_elsewhere(topic):
        return False
    return pattern.fullmatch(topic) is not None


def inner(name: str, part: str) -> str:
    """The name of a flow inside an operator, or of what is kept under ``name``.

    The blank keeps it apart from the flows that operators give: no topic and no operator has one in its name.
    """
    return f"{name} {part}"


_UNSAFE = re.compile(r"[^A-Za-z0-9._()+,*^$|?{}\[\]-]")
_LONGEST = 200


@dataclass(slots=True)
class Paths:
    """Gives out path names, counting siblings of a kind under one parent; None is the root."""

    _siblings: Counter[tuple[str | None, str]] = field(default_factory=Counter)

    def name(self, parent: str | None, kind: str) -> str:
        """The name of the next child of a kind. It stays the next until `count` counts it.

        >>> paths = Paths()
        >>> paths.count("orders", "filter")
        >>> paths.name("orders", "filter"), paths.name("bills", "filter")
        ('orders.filter-2', 'bills.filter')
        """
        before = self._siblings[parent, kind]
        path = kind if parent is None else f"{parent}.{kind}"
        return shorten(path if before == 0 else f"{path}-{before + 1}")

    def count(self, parent: str | None, kind: str) -> None:
        """One more child of a kind, whatever its name."""
        self._siblings[parent, kind] += 1


def source_kind(topics: tuple[str, ...], pattern: re.Pattern[str] | None) -> str:
    """The path name of a source: its topics joined by ``+``, or its pattern.

    >>> source_kind(("orders", "bills"), None), source_kind((), re.compile("orders-.*"))
    ('orders+bills', 'pattern(orders-.*)')
    """
    if pattern is None:
        return "+".join(topics)
    return f"pattern({_safe(pattern.pattern)})"


def _safe(text: str) -> str:
    """``text`` fit for a path name; a short hash keeps texts different that would become equal."""
    clean = _UNSAFE.sub("_", text)
    return clean if clean == text else f"{clean}~{_digest(text)}"


def shorten(name: str) -> str:
    """``name``, or its beginning and a hash if it is too long for a folder of its own."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 13]}~{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=6).hexdigest()


def store_name(node: graph.Node) -> str | None:
    """The name of the store that ``node`` itself keeps, for people; None if it keeps none.

    A table read from a topic, a DataFrame or a stream always counts as kept, a join's result where any
    `Materialized` was given, a filter or `map_values` only where it was named (semantics 2.2.1). A store
    without a name of its own is called after its node.
    """
    is_kept = node.keeps_rows or (node.store is not None and not node.derives_rows)
    return node.queryable_name or (node.name if is_kept and node.shape in ("table", "global") else None)


def store_names(nodes: Mapping[str, graph.Node], node: graph.Node) -> list[str]:
    """The names of all stores that ``node`` itself keeps, for people; a join of streams keeps two."""
    named = [spec.name for spec in node.side_stores] or [None for _ in node.inner_stores]
    if node.inner_stores:
        parts = zip(named, node.inner_stores, strict=True)
        return [name or inner_store(nodes, node, part) for name, part in parts]
    if node.runs_processor:
        return list(node.queryable_names)
    name = store_name(node)
    return [] if name is None else [name]


def keepers(nodes: Mapping[str, graph.Node], name: str) -> list[str]:
    """The nodes whose stores a look-up in a table reads: its own, or those it is computed from (semantics 2.2.1)."""
    parents = nodes[name].computed_from
    if not parents:
        return [name]
    return list(dict.fromkeys(keeper for parent in parents for keeper in keepers(nodes, parent)))


def inner_store(nodes: Mapping[str, graph.Node], node: graph.Node, part: str) -> str:
    """The name of a store that ``node`` keeps for itself: names that users gave come first."""
    return unique(f"{node.name}.{part}", {store for one in nodes.values() for store in one.queryable_names})


def history_of(nodes: Mapping[str, graph.Node], name: str) -> int | None:
    """For how long (ms) a table keeps versions; None: it keeps none.

    What is derived row by row from a versioned table is versioned too, unless it has a store of its own (semantics
    2.2.6).
    """
    node = nodes[name]
    if node.history is not None or node.queryable_name is not None:
        return node.history
    if node.derives_rows and node.shape == "table":
        return history_of(nodes, node.parents[0])
    return None


def check_new_name(nodes: Mapping[str, graph.Node], name: str) -> None:
    """Refuses (CS-120) two operators of one name."""
    if name in nodes:
        what = f"there is already an operator named {name!r}"
        raise refuse("CS-120", what, **caller_location(name), **{"first used at": str(nodes[name].location)})


def check_new_store(nodes: Mapping[str, graph.Node], stores: Mapping[str, str], node: graph.Node) -> None:
    """Refuses (CS-120) two stores of one name. ``stores``: the user's name of a store → the node that keeps it."""
    for store in node.queryable_names:
        if store not in stores:
            continue
        owner = stores[store]
        raise refuse(
            "CS-120",
            f"there is already a store named {store!r}, kept by {owner}",
            'give this one another name: store="…"',
            **caller_location(node.name),
            **{"first used at": str(nodes[owner].location)},
        )


def check_new_source(nodes: Iterable[graph.Node], source: graph.Source) -> None:
    """Refuses (CS-122) topics of another source, and overlapping sets of topics or patterns."""
    for other in nodes:
        if not isinstance(other, graph.Source):
            continue
        shared = sorted(set(source.topics) & set(other.topics))
        if shared and source.shape == other.shape == "stream":
            raise _clash(
                source,
                other,
                f"the topics of two streams overlap ({', '.join(shared)}) without being the same",
                "read each set of topics by a stream of its own, and merge() the streams",
            )
        if shared:
            noun = "global table" if other.shape == "global" else other.shape
            raise _clash(
                source,
                other,
                f"topic {shared[0]!r} is already read as a {noun}; a second source cannot read it",
                "read it once and use the result twice: a table may be joined with itself, to_stream() and to_table()"
                " turn one into the other",
            )
        _check_patterns(source, other)


def check_matched_once(topic: str, readers: Sequence[graph.Source]) -> None:
    """Refuses (CS-122) an existing topic that two patterns match."""
    if len(readers) < 2:
        return
    first, second = readers[:2]
    raise refuse(
        "CS-122",
        f"topic {topic!r} is matched by two sources: {first.name} and {second.name}",
        f"make one pattern exclude {topic!r}",
        operator=second.name,
        line=str(second.location),
        **{"first read at": str(first.location)},
    )


def check_partitions(nodes: Mapping[str, graph.Node], operator: str, parents: Iterable[str]) -> None:
    """Refuses (CS-128) inputs of a join that are repartitioned to different counts."""
    counts = {name: explicit_partitions(nodes, name) for name in parents}
    wanted = {name: count for name, count in counts.items() if count is not None}
    if len(set(wanted.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in wanted.items())
        what = f"the inputs of {operator} are repartitioned to different numbers of partitions: {listed}"
        raise refuse("CS-128", what, **caller_location(operator))


def explicit_partitions(nodes: Mapping[str, graph.Node], name: str) -> int | None:
    """The count that the nearest `Repartitioned(partitions=…)` above ``name`` asked for, itself included.

    Where keys have changed since then the join repartitions once more, to the count of its other input.
    """
    above, seen = [name], {name}
    while above:
        node = nodes[above.pop()]
        if node.partitions is not None:
            return node.partitions
        if not (isinstance(node, graph.Repartition) or node.changes_key):
            parents = node.parents[:1] if node.references else node.parents
            above += reversed([parent for parent in parents if parent not in seen])
            seen.update(parents)
    return None


def _check_patterns(source: graph.Source, other: graph.Source) -> None:
    for pattern, topics in ((source.pattern, other.topics), (other.pattern, source.topics)):
        for topic in topics:
            if pattern is not None and matches(pattern, topic):
                raise _clash(
                    source,
                    other,
                    f"pattern {pattern.pattern!r} matches topic {topic!r}, which another source reads",
                    f"make the pattern exclude {topic!r}",
                )


def _clash(source: graph.Source, other: graph.Source, what: str, next: str) -> CrossStreamError:
    where = {**caller_location(source.name), "first read at": str(other.location)}
    return refuse("CS-122", what, next, **where)
