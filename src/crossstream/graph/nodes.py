"""The graph of a topology as frozen data: what the user built, before any engine looks at it.

A node knows its parents by name, the serdes of what it yields, and the line of the user that made it.
Nothing here runs: `planning` turns the graph into rounds, `describe.py` writes it down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

from crossstream.columns.aggregates import Aggregates
from crossstream.columns.changes import Headers
from crossstream.columns.flat import Format
from crossstream.columns.functions import Function
from crossstream.errors import Location
from crossstream.serdes import Serde
from crossstream.serdes.debezium.settings import Debezium

Shape = Literal["stream", "table", "global", "none"]
"""What a node yields: a KStream, a KTable, a GlobalKTable, or nothing (sinks)."""

JoinKind = Literal["inner", "left", "outer"]

ForeignKeyKind = Literal["inner", "left", "right", "outer"]


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """What `Materialized` asked for. ``name`` None: not queryable. ``history_retention``, ``retention`` in ms."""

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    history_retention: int | None = None
    retention: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What every node has. ``key``, ``value``: the serdes of its output, None where unknown.

    ``key_type``, ``value_type``: where unknown, serdes of the type that an expression gives or a callable is annotated
    with. They stay inside the engine. ``store``: where rows are kept, if `Materialized` was given.
    """

    name: str
    parents: tuple[str, ...] = ()
    shape: Shape = "stream"
    key: Serde | None = None
    value: Serde | None = None
    key_type: Serde | None = None
    value_type: Serde | None = None
    location: Location | None = None
    store: StoreSpec | None = None

    by_key: ClassVar[bool] = False
    """Whether it takes records of streams in the partition of their key, and so moves them where keys are new."""
    looks_up: ClassVar[bool] = False
    """Whether the second parent is a table that records of the first one look up: its changes give no results."""

    @property
    def forwarders(self) -> tuple[str, ...]:
        """The parents that forward records."""
        return self.parents[:1] if self.looks_up else self.parents

    @property
    def queryable_name(self) -> str | None:
        """The name under which the rows can be queried; None if `Materialized` gave none."""
        return None if self.store is None else self.store.name

    @property
    def history(self) -> int | None:
        """For how long (ms) the node's own store keeps versions; None: it keeps none."""
        return None if self.store is None else self.store.history_retention

    @property
    def where(self) -> dict[str, str | None]:
        """What an error says of the place: the operator, and the line that made it."""
        return {"operator": self.name, "line": None if self.location is None else str(self.location)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Node):
    """Records of topics (names, or a pattern), as a stream, a table or a global table.

    ``unwrap``: the records are change events, and the table has the rows in them.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    unwrap: Debezium | None = None
    timestamp_extractor: Callable[..., Any] | None = None
    offset_reset: Literal["earliest", "latest"] | timedelta | datetime = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSource(Node):
    """Records of a streaming DataFrame; the frame itself is in `Graph.frames` under ``name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWise(Node):
    """Takes records one by one, in the task where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(RowWise):
    """Keeps the records (stream) or rows (table) for which the predicate holds; ``negate``: filter_not."""

    predicate: Function
    negate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValues(RowWise):
    """A new value for each record or row, same key."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(RowWise):
    """(key, value) → (key', value'), one to one."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectKey(RowWise):
    """(key, value) → key', same value."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap(RowWise):
    """(key, value) → any number of (key', value')."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMapValues(RowWise):
    """value → any number of values, same key."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek(RowWise):
    """Calls the action for each record; ``terminal`` for `foreach` and `print`."""

    action: Function
    terminal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(RowWise):
    """Interleaves several streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(RowWise):
    """Sends each record to the branch of the first predicate that holds (None: always holds)."""

    predicates: tuple[Function | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(RowWise):
    """The records that its parent, a `Split`, sent to branch ``index``."""

    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition(Node):
    """Moves records to the state partition of their key, now. ``partitioner``: (key, count) → partition.

    ``partitions`` is the user's wish, compared between the inputs of a join.
    """

    by_key: ClassVar[bool] = True
    partitioner: Callable[[Any, int], int] | None = None
    partitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTable(Node):
    """Reads a stream as upserts and deletes of a table."""

    by_key: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ToStream(Node):
    """The changes of a table as a stream of records; deletes become null values."""

    mapper: Function | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    """Joins two parents, (left, right). ``headers``: whose headers a result has; None: those of what triggers it."""

    joiner: Function
    headers: Headers | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin(Join):
    """KTable–KTable by primary key."""

    kind: JoinKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyJoin(Join):
    """KTable–KTable by foreign key. Partitioners: KIP-775, (key, count) → int."""

    kind: ForeignKeyKind
    foreign_key: Function
    partitioner: Callable[[Any, int], int] | None = None
    other_partitioner: Callable[[Any, int], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGlobalJoin(Join):
    """KStream–GlobalKTable. ``key_selector``: (key, value) → key of the table.

    ``both_keys``: the joiner takes the key of the stream and that of the table before the values.
    """

    looks_up: ClassVar[bool] = True
    kind: Literal["inner", "left"]
    key_selector: Function
    both_keys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalJoin(Node):
    """A view over two global tables, kept nowhere; parents are (left, right).

    ``key_selector``: (key, value) of a left row → key of the right table.
    """

    kind: Literal["inner", "left"]
    key_selector: Function
    joiner: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTableJoin(Join):
    """KStream–KTable. ``stream_value``: serde of the stream's values, if known.

    ``grace``: how long records wait for the table, ms; None: they do not. Only over a versioned table.
    """

    by_key: ClassVar[bool] = True
    looks_up: ClassVar[bool] = True
    kind: Literal["inner", "left"]
    stream_value: Serde | None = None
    grace: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStreamJoin(Join):
    """KStream–KStream; both may be the same. Bounds of the window and grace in ms.

    ``store``, ``other_store``: of the left and of the right records, with the serdes they are kept in.
    """

    by_key: ClassVar[bool] = True
    kind: JoinKind
    before: int
    after: int
    store: StoreSpec
    other_store: StoreSpec
    grace: int = 0
    eager: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyJoin(Node):
    """KTable with several tables by a foreign key each; parents are (left, the others in order of ``names``).

    ``names``: what the joiner knows the others by, sorted; ``foreign_keys``: for each of them.
    """

    kind: Literal["inner", "left"]
    names: tuple[str, ...]
    foreign_keys: tuple[Function, ...]
    joiner: Function


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows, in ms. ``size``: of time windows; the difference of sliding ones, the gap of sessions, or the start of
    the one unlimited window. ``advance``: from the start of one time window to the next.
    """

    kind: Literal["time", "sliding", "session", "unlimited"]
    size: int
    advance: int
    grace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable(Node):
    """The rows of a table under other keys, to be aggregated: each change takes its old row away and adds its new one.

    ``mapper``: (key, value) → (key', value'), or with ``selects`` → key' alone.
    """

    mapper: Function
    selects: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Node):
    """A table with one row for each group (of each window): parents are the grouped streams, or one `GroupTable`.

    ``operator``: "count", "reduce", "aggregate" or "agg". ``adders``: one for each parent; ``subtractor``: of a grouped
    table. ``initializer``: makes the first aggregate. ``merger``: of two sessions. ``columns``: of "agg".
    ``group_key``, ``group_values``: the serdes of what is aggregated. ``emit_final``: each window comes out once, when
    it has closed.
    """

    operator: Literal["count", "reduce", "aggregate", "agg"]
    group_key: Serde
    group_values: tuple[Serde | None, ...] = ()
    adders: tuple[Function, ...] = ()
    subtractor: Function | None = None
    initializer: Callable[[], Any] | None = None
    merger: Function | None = None
    columns: Aggregates | None = None
    windows: WindowSpec | None = None
    emit_final: bool = False

    by_key: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate(Node):
    """The first record of each identity in every ``within`` ms of stream time.

    ``identity``: gives that of a record; None: it is the key.
    """

    by_key: ClassVar[bool] = True
    within: int
    identity: Function | None = None


@dataclass(frozen=True, slots=True)
class ProcessorStore:
    """A store of a processor. ``retention``: of windows, or of the history of versions, in ms."""

    kind: Literal["key-value", "window", "versioned"]
    name: str
    key: Serde
    value: Serde
    retention: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Node):
    """A processor that the user wrote. ``supplier`` makes one for each state partition.

    ``keeps_key``: it forwards records under their own keys (`process_values`).
    """

    by_key: ClassVar[bool] = True
    supplier: Callable[[], Any]
    keeps_key: bool = False
    stores: tuple[ProcessorStore, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformBatches(Node):
    """A function of Arrow record batches.

    ``columns``: the types of what it returns, by name. ``with_context``: it takes the context after the batch.
    """

    by_key: ClassVar[bool] = True
    function: Callable[..., Any]
    columns: tuple[tuple[str, Any], ...]
    with_context: bool = False
    stores: tuple[ProcessorStore, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppress(Node):
    """Holds the changes of a table back: ``until`` windows close, or for some time after the first change of a row.

    ``duration``: that time, or the grace period of the windows, in ms. ``stops``: a full buffer stops the application;
    else its oldest rows come out early.
    """

    until: Literal["window-closes", "time-limit"]
    duration: int
    max_records: int | None = None
    max_bytes: int | None = None
    stops: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Node):
    """Writes a stream to a topic (a name, or a function of key and value that gives one)."""

    topic: str | None = None
    topic_of: Callable[..., str] | None = None
    partitioner: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSink(Node):
    """Calls ``function(frame, batch_id)`` in the driver with a Spark DataFrame of each batch's records.

    ``with_mark``: it takes a `BatchMark` after them.
    """

    function: Callable[..., Any] | None = None
    with_mark: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink(Node):
    """Writes each batch into a Delta or Iceberg table, once: changes by key (``upserts``), or records, appended.

    ``table``: a path or URI, or an identifier in a catalog. ``keys``: names for the columns of the key; None: its own.
    ``timestamp``: the column of record times. ``options``: of the storage, or the properties of the catalog, which may
    hold secrets.
    """

    form: Format
    table: str
    upserts: bool
    keys: tuple[str, ...] | None = None
    timestamp: str | None = None
    merges_schema: bool = False
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


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


def changes_key(node: Node) -> bool:
    """Whether a node may give records another key."""
    if isinstance(node, Process):
        return not node.keeps_key
    return isinstance(node, Map | FlatMap | SelectKey | GroupTable | TransformBatches) or (
        isinstance(node, ToStream) and node.mapper is not None
    )


def sorts_out(node: Node) -> bool:
    """Whether an operator on a stream may drop records, or give them another key."""
    return changes_key(node) or isinstance(node, Filter | Branch | FlatMapValues | Deduplicate | Process)


def is_stream_join(node: Node) -> bool:
    """Whether a node joins a stream with a stream or a table."""
    return node.shape == "stream" and hasattr(node, "joiner")


@dataclass(frozen=True, slots=True)
class Graph:
    """A finished graph: nodes by name, parents before children.

    ``frames`` holds the streaming DataFrames of `FrameSource` nodes, by node name.
    """

    nodes: Mapping[str, Node]
    frames: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def children(self, name: str) -> list[Node]:
        """The nodes that read ``name``, in the order they were built.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", Consumed(key=serdes.string(), value=serdes.json())).to("out")
        >>> [node.name for node in builder.build().children("in")]
        ['in.to(out)']
        """
        return [node for node in self if name in node.parents]
