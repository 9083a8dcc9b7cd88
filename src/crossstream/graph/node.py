"""What every node of a topology has, and the graph that they make: frozen data, before any engine looks at it.

A node says of itself what its operator needs: whether it changes keys, which rows it keeps, what it reads of a parent.
Planning, names, drawings and recomputing ask the node, never its class, so that a new operator is known everywhere
once its node says what it is (decision 0039). A table of all traits: tests/graph/test_traits.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from crossstream.columns.functions import Function
from crossstream.errors import Location
from crossstream.graph.history import History
from crossstream.graph.lake import LakeTable
from crossstream.graph.lasting import Lasting
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.debezium.settings import Debezium

Shape = Literal["stream", "table", "global", "none"]
"""What a node yields: a KStream, a KTable, a GlobalKTable, or nothing (sinks)."""


Clock = Literal["stream", "wall"]
"""What says how late it is for the rows of a table: the newest records, or the clock on the wall."""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """What `Materialized` asked for. ``name`` None: not queryable.

    ``history_retention``, ``retention``, ``ttl`` in ms; ``clock``: what says that a row is older than ``ttl``.
    """

    name: str | None = None
    key: EngineSerde | None = None
    value: EngineSerde | None = None
    history_retention: int | None = None
    retention: int | None = None
    ttl: int | None = None
    clock: Clock = "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Lasting):
    """What every node has. ``key``, ``value``: the serdes of its output, None where unknown.

    ``key_type``, ``value_type``: where unknown, serdes of the type that an expression gives or a callable is annotated
    with. They stay inside the engine. ``store``: where rows are kept, if `Materialized` was given. ``is_named``: the
    name is the user's own, not a path.
    """

    name: str
    parents: tuple[str, ...] = ()
    shape: Shape = "stream"
    key: EngineSerde | None = None
    value: EngineSerde | None = None
    key_type: EngineSerde | None = None
    value_type: EngineSerde | None = None
    location: Location | None = None
    store: StoreSpec | None = None
    is_named: bool = False

    # -- what comes in

    reads_input: ClassVar[bool] = False
    """Whether it reads records or rows from outside: it has no parents."""
    reads_topics: ClassVar[bool] = False
    """Whether what it reads is in topics, and can be read again."""
    by_key: ClassVar[bool] = False
    """Whether it takes records of streams in the partition of their key, and so moves them where keys are new."""
    looks_up: ClassVar[bool] = False
    """Whether the second parent is a table that records of the first one look up: its changes give no results."""
    as_of_record: ClassVar[bool] = False
    """Whether it looks rows up as they were when a record came, which must not depend on the batches."""
    forwards_tombstones: ClassVar[bool] = False
    """Whether a row of a table with versions that it leaves out becomes a tombstone."""
    takes_every_record: ClassVar[bool] = False
    """Whether results depend on every record, or every change of a table, not on the last one of a batch."""
    row_wise: ClassVar[bool] = False
    """Whether it takes records one by one, in the task where they are."""
    answers_by_key: ClassVar[bool] = False
    """Whether rows of the first parent go to those that they refer to, and results come back to their key."""
    joins_stream: ClassVar[bool] = False
    """Whether it joins a stream with a stream or a table."""
    by_foreign_key: ClassVar[bool] = False
    """Whether it joins by keys that rows of its first parent have, and remembers them."""
    only_acts: ClassVar[bool] = False
    """Whether it calls an action of the user for each record, and forwards it as it came."""
    runs_processor: ClassVar[bool] = False
    """Whether a processor of the user decides what comes out.

    It may read a clock, other services and the number of its state partition (decision 0038).
    """

    # -- what comes out

    multiplies: ClassVar[bool] = False
    """Whether one record may give several."""
    forwards_values: ClassVar[bool] = False
    """Whether it forwards values unchanged."""

    # -- what is kept

    keeps_rows: ClassVar[bool] = False
    """Whether a table counts as kept without being asked (semantics 2.2.1)."""
    rows_are_records: ClassVar[bool] = False
    """Whether the rows of a table are the records that came, not results."""
    upserts_stream: ClassVar[bool] = False
    """Whether the records of a stream become the rows of a table."""
    is_view: ClassVar[bool] = False
    """Whether it is a table that is kept nowhere, and computed when it is asked."""
    derives_rows: ClassVar[bool] = False
    """Whether rows of a table are computed from those of its parent, one by one, where it is not kept by name."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads by name."""
        return ()

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """What the names of the topics match that it reads."""
        return None

    @property
    def lake(self) -> LakeTable | None:
        """The lake table that it reads, as a topic."""
        return None

    @property
    def past(self) -> History | None:
        """What comes before the records of its topic."""
        return None

    @property
    def unwrap(self) -> Debezium | None:
        """How its records are change events, with the rows of a table in them."""
        return None

    @property
    def loads_first(self) -> bool:
        """Whether what its topic holds at the first start is read before all other records."""
        return False

    @property
    def timestamp_extractor(self) -> Callable[..., Any] | None:
        """What gives the times of its records, where they do not have them."""
        return None

    @property
    def joiner(self) -> Function | None:
        """The function of a join."""
        return None

    @property
    def over_values(self) -> tuple[Function, ...]:
        """Its functions of single values, the first to run first; of a join by other keys those that give the keys."""
        return tuple(function for _, function in self.references)

    @property
    def partitions(self) -> int | None:
        """To how many partitions it moves records, where the user says so."""
        return None

    def only_counts(self, value: EngineSerde | None) -> bool:
        """Whether it counts records, and reads no value: it gets them in the serde ``value``."""
        return False

    @property
    def also_reads(self) -> tuple[Function, ...]:
        """Its functions of single values that only look at them."""
        return ()

    @property
    def forwarders(self) -> tuple[str, ...]:
        """The parents that forward records."""
        return self.parents[:1] if self.looks_up else self.parents

    @property
    def always_moves(self) -> bool:
        """Whether it moves records also where their keys are not new."""
        return self.by_other_key

    @property
    def by_other_key(self) -> bool:
        """Whether records move to the partition of something else than their key."""
        return False

    @property
    def changes_key(self) -> bool:
        """Whether it may give records another key."""
        return False

    @property
    def keeps_place(self) -> bool:
        """Whether rows that are in the state partition of their key still are."""
        return False

    @property
    def one_for_one(self) -> bool:
        """Whether each record that comes gives one that is at least as new: not where a function may fail on it."""
        return False

    @property
    def may_drop(self) -> bool:
        """Whether an operator on a stream may drop records, or give them another key."""
        return self.changes_key

    @property
    def depends_on_time(self) -> bool:
        """Whether results depend on stream time."""
        return self.history is not None or self.ttl is not None

    @property
    def needs_any_parent(self) -> bool:
        """Whether a row of any parent gives one."""
        return False

    @property
    def needed_parents(self) -> tuple[str, ...]:
        """The parents without whose rows there is none."""
        return self.parents

    @property
    def gives_key_alone(self) -> bool:
        """Whether its function gives the new key alone, without a value."""
        return False

    @property
    def stops_tracing(self) -> str | None:
        """Why records that made a row cannot be followed through it; None: they can."""
        return None

    @property
    def keys_of_either(self) -> bool:
        """Whether the key of a row is that of the left or of the right one: `LeftOrRight`."""
        return False

    @property
    def references(self) -> tuple[tuple[int, Function], ...]:
        """For each parent whose rows are found by another key than that of the first one: its number, what gives it."""
        return ()

    @property
    def side_names(self) -> tuple[str, ...]:
        """What a joiner knows each parent by."""
        return ("left", "right")

    @property
    def side_labels(self) -> tuple[str, ...]:
        """What the arrow from each parent is called in a drawing."""
        return ("", "looks up") if self.looks_up else ()

    @property
    def computed_from(self) -> tuple[str, ...]:
        """The parents of whose rows a look-up computes its own; empty: its rows are kept (semantics 2.2.1)."""
        return self.parents if self.derives_rows and self.queryable_name is None else ()

    def needs_old(self, is_asked: bool) -> bool:
        """Whether it needs the old rows of its parents. ``is_asked``: its own old rows are needed."""
        return False

    old_of_versions: ClassVar[bool] = False
    """Whether it needs old rows also of a parent with versions, which forwards tombstones of missing rows too."""

    def needs_headers(self, is_asked: bool) -> tuple[str, ...]:
        """The parents of whose rows it needs the headers. ``is_asked``: those of its own rows are needed."""
        return ()

    def keeps(self, side: int) -> bool:
        """Whether it keeps the table that is parent number ``side`` in its own round."""
        return False

    # -- names

    @property
    def public_name(self) -> str:
        """What users call the operator: ``filter_not``, ``left_join``, ``table``, …"""
        return re.sub(r"(?<!^)([A-Z])", r"_\1", type(self).__name__).lower()

    @property
    def described(self) -> dict[str, Any]:
        """Settings that a description of the topology has, by their names there."""
        return {}

    @property
    def queryable_name(self) -> str | None:
        """The name under which the rows can be queried; None if `Materialized` gave none."""
        return None if self.store is None else self.store.name

    @property
    def queryable_names(self) -> tuple[str, ...]:
        """The names under which anything that it keeps can be queried."""
        return () if self.queryable_name is None else (self.queryable_name,)

    @property
    def inner_stores(self) -> tuple[str, ...]:
        """What the stores are called that it keeps for itself, beside its rows."""
        return ()

    @property
    def side_stores(self) -> tuple[StoreSpec, ...]:
        """For each parent the store of its records, where it keeps records instead of rows."""
        return ()

    @property
    def history(self) -> int | None:
        """For how long (ms) the node's own store keeps versions; None: it keeps none."""
        return None if self.store is None else self.store.history_retention

    @property
    def ttl(self) -> int | None:
        """For how long (ms) rows of the table stay that are not written again; None: they do not expire."""
        return None if self.store is None else self.store.ttl

    @property
    def where(self) -> dict[str, str | None]:
        """What an error says of the place: the operator, and the line that made it."""
        return {"operator": self.name, "line": None if self.location is None else str(self.location)}


NodeType = TypeVar("NodeType", bound=Node)


def lineage(nodes: Mapping[str, Node], names: Iterable[str]) -> Iterator[Node]:
    """The nodes of these names and all above them, each once."""
    waiting, met = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in met:
            met.add(name)
            waiting += nodes[name].parents
            yield nodes[name]


def readings(topology: Graph, name: str, forwards: Callable[[str, Node], bool]) -> Iterator[tuple[str, Node]]:
    """The readers of a node, and of the nodes that forward it: (name of what is read, reader)."""
    waiting, met = [name], set[str]()
    while waiting:
        parent = waiting.pop()
        for child in topology.children(parent):
            yield parent, child
            if forwards(parent, child) and child.name not in met:
                met.add(child.name)
                waiting.append(child.name)


@dataclass(frozen=True, slots=True)
class Graph:
    """A finished graph: nodes by name, parents before children.

    ``frames`` holds what the driver reads for sources that are DataFrames, by node name: the streaming ones of
    `FrameSource` nodes, and tables that are read again.
    """

    nodes: Mapping[str, Node]
    frames: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def each(self, kind: type[NodeType]) -> Iterator[NodeType]:
        """The nodes of a class, such as all sources, parents before children."""
        return (node for node in self if isinstance(node, kind))

    def children(self, name: str) -> list[Node]:
        """The nodes that read ``name``, in the order they were built.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", Consumed(key=serdes.string(), value=serdes.json())).to("out")
        >>> [node.name for node in builder.build().children("in")]
        ['in.to(out)']
        """
        return [node for node in self if name in node.parents]
