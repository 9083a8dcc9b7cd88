"""The operators that a topology is made of: what the user asked for, and what each of them needs (`node.py`).

A node knows its parents by name, the serdes of what it yields, and the line of the user that made it.
Nothing here runs: `planning` turns the graph into rounds, `describe.py` writes it down. Sources, row-wise operators and
sinks are here; joins in `joins.py`, operators with state in `stateful.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

from crossstream.columns.changes import JoinKind as JoinKind
from crossstream.columns.flat import Format
from crossstream.columns.functions import Function
from crossstream.graph.history import History
from crossstream.graph.joins import ForeignKeyJoin as ForeignKeyJoin
from crossstream.graph.joins import ForeignKeyKind as ForeignKeyKind
from crossstream.graph.joins import GlobalJoin as GlobalJoin
from crossstream.graph.joins import Join as Join
from crossstream.graph.joins import ManyJoin as ManyJoin
from crossstream.graph.joins import StreamGlobalJoin as StreamGlobalJoin
from crossstream.graph.joins import StreamStreamJoin as StreamStreamJoin
from crossstream.graph.joins import StreamTableJoin as StreamTableJoin
from crossstream.graph.joins import TableJoin as TableJoin
from crossstream.graph.lake import LakeTable
from crossstream.graph.node import Clock as Clock
from crossstream.graph.node import Graph as Graph
from crossstream.graph.node import Node as Node
from crossstream.graph.node import Shape as Shape
from crossstream.graph.node import StoreSpec as StoreSpec
from crossstream.graph.node import lineage as lineage
from crossstream.graph.node import readings as readings
from crossstream.graph.stateful import Aggregate as Aggregate
from crossstream.graph.stateful import Deduplicate as Deduplicate
from crossstream.graph.stateful import GroupTable as GroupTable
from crossstream.graph.stateful import Process as Process
from crossstream.graph.stateful import ProcessorStore as ProcessorStore
from crossstream.graph.stateful import Suppress as Suppress
from crossstream.graph.stateful import TransformBatches as TransformBatches
from crossstream.serdes.debezium.settings import Debezium
from crossstream.serdes.plain_columns import PlainRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Node):
    """Records of topics (names, or a pattern), as a stream, a table or a global table.

    ``unwrap``: the records are change events, and the table has the rows in them. ``lake``: the topic is a lake table.
    ``past``: a lake table has its earlier records. ``loads_first``: what the topic holds at the first start is read
    before all other records.
    """

    reads_input: ClassVar[bool] = True
    reads_topics: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    rows_are_records: ClassVar[bool] = True
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    unwrap: Debezium | None = None
    lake: LakeTable | None = None
    past: History | None = None
    timestamp_extractor: Callable[..., Any] | None = None
    offset_reset: Literal["earliest", "latest"] | timedelta | datetime = "earliest"
    loads_first: bool = False
    settings_aside: ClassVar[frozenset[str]] = frozenset({"offset_reset", "loads_first"})

    @property
    def public_name(self) -> str:
        return self.shape

    @property
    def is_of_bytes(self) -> bool:
        read_otherwise = (self.unwrap, self.lake, self.past, self.timestamp_extractor)
        return all(one is None for one in read_otherwise)

    @property
    def described(self) -> dict[str, Any]:
        return {
            "topics": list(self.topics),
            "pattern": None if self.pattern is None else self.pattern.pattern,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSource(Node):
    """Records of a streaming DataFrame; the frame itself is in `Graph.frames` under ``name``.

    ``rows``: which of its columns are the key and the value; None: those of these names. ``timestamp``: the column of
    the times; None: there is none. ``changes``: the rows are changes of a table, in the order of its versions.
    """

    reads_input: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    rows_are_records: ClassVar[bool] = True
    stops_tracing: ClassVar[str] = "the rows of a DataFrame cannot be read again"
    rows: PlainRows | None = None
    timestamp: str | None = None
    changes: bool = False

    @property
    def public_name(self) -> str:
        return self.shape


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWise(Node):
    """Takes records one by one, in the task where they are."""

    row_wise: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(RowWise):
    """Keeps the records (stream) or rows (table) for which the predicate holds; ``negate``: filter_not."""

    keeps_place: ClassVar[bool] = True
    forwards_values: ClassVar[bool] = True
    derives_rows: ClassVar[bool] = True
    may_drop: ClassVar[bool] = True
    forwards_tombstones: ClassVar[bool] = True
    predicate: Function
    negate: bool = False

    @property
    def over_values(self) -> tuple[Function, ...]:
        return (self.predicate,)

    def needs_old(self, is_asked: bool) -> bool:
        return self.shape == "table"

    @property
    def from_rows(self) -> bool:
        return self.shape == "table" and not self.depends_on_time

    @property
    def public_name(self) -> str:
        return "filter_not" if self.negate else "filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValues(RowWise):
    """A new value for each record or row, same key."""

    keeps_place: ClassVar[bool] = True
    derives_rows: ClassVar[bool] = True
    mapper: Function

    @property
    def over_values(self) -> tuple[Function, ...]:
        return (self.mapper,)

    def needs_old(self, is_asked: bool) -> bool:
        return is_asked

    @property
    def from_rows(self) -> bool:
        return self.shape == "table" and not self.depends_on_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(RowWise):
    """(key, value) → (key', value'), one to one."""

    changes_key: ClassVar[bool] = True
    mapper: Function

    @property
    def over_values(self) -> tuple[Function, ...]:
        return (self.mapper,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectKey(RowWise):
    """(key, value) → key', same value."""

    gives_key_alone: ClassVar[bool] = True
    changes_key: ClassVar[bool] = True
    forwards_values: ClassVar[bool] = True
    mapper: Function

    @property
    def over_values(self) -> tuple[Function, ...]:
        return (self.mapper,)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap(RowWise):
    """(key, value) → any number of (key', value')."""

    changes_key: ClassVar[bool] = True
    multiplies: ClassVar[bool] = True
    mapper: Function

    @property
    def over_values(self) -> tuple[Function, ...]:
        return (self.mapper,)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMapValues(RowWise):
    """value → any number of values, same key."""

    multiplies: ClassVar[bool] = True
    may_drop: ClassVar[bool] = True
    mapper: Function

    @property
    def over_values(self) -> tuple[Function, ...]:
        return (self.mapper,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek(RowWise):
    """Calls the action for each record; ``terminal`` for `foreach` and `print`."""

    keeps_place: ClassVar[bool] = True
    forwards_values: ClassVar[bool] = True
    only_acts: ClassVar[bool] = True
    action: Function
    terminal: bool = False

    @property
    def also_reads(self) -> tuple[Function, ...]:
        return (self.action,)

    @property
    def public_name(self) -> str:
        return "foreach" if self.terminal else "peek"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(RowWise):
    """Interleaves several streams."""

    needs_any_parent: ClassVar[bool] = True
    one_for_one: ClassVar[bool] = True
    forwards_values: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(RowWise):
    """Sends each record to the branch of the first predicate that holds (None: always holds)."""

    keeps_place: ClassVar[bool] = True
    forwards_values: ClassVar[bool] = True
    predicates: tuple[Function | None, ...] = ()

    @property
    def also_reads(self) -> tuple[Function, ...]:
        return tuple(function for function in self.predicates if function is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(RowWise):
    """The records that its parent, a `Split`, sent to branch ``index``."""

    keeps_place: ClassVar[bool] = True
    may_drop: ClassVar[bool] = True
    forwards_values: ClassVar[bool] = True
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition(Node):
    """Moves records to the state partition of their key, now. ``partitioner``: (key, count) → partition.

    ``partitions`` is the user's wish, compared between the inputs of a join.
    """

    by_key: ClassVar[bool] = True
    always_moves: ClassVar[bool] = True
    one_for_one: ClassVar[bool] = True
    forwards_values: ClassVar[bool] = True
    partitioner: Callable[[Any, int], int] | None = None
    partitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTable(Node):
    """Reads a stream as upserts and deletes of a table."""

    by_key: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    rows_are_records: ClassVar[bool] = True
    upserts_stream: ClassVar[bool] = True
    forwards_values: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ToStream(Node):
    """The changes of a table as a stream of records; deletes become null values."""

    forwards_values: ClassVar[bool] = True
    mapper: Function | None = None

    @property
    def over_values(self) -> tuple[Function, ...]:
        return () if self.mapper is None else (self.mapper,)

    gives_key_alone: ClassVar[bool] = True

    @property
    def changes_key(self) -> bool:
        return self.mapper is not None

    @property
    def keeps_place(self) -> bool:
        return self.mapper is None

    @property
    def one_for_one(self) -> bool:
        return self.mapper is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Node):
    """Writes a stream to a topic (a name, or a function of key and value that gives one)."""

    forwards_values: ClassVar[bool] = True
    settings_aside: ClassVar[frozenset[str]] = frozenset({"partitioner"})
    topic: str | None = None
    topic_of: Callable[..., str] | None = None
    partitioner: Callable[..., Any] | None = None

    @property
    def public_name(self) -> str:
        return "to"

    @property
    def writes_rows(self) -> bool:
        return self.topic_of is None

    @property
    def writes_bytes(self) -> bool:
        return self.topic_of is None and self.partitioner is None

    @property
    def described(self) -> dict[str, Any]:
        return {"topic": self.topic}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSink(Node):
    """Calls ``function(frame, batch_id)`` in the driver with a Spark DataFrame of each batch's records.

    ``with_mark``: it takes a `BatchMark` after them. ``parallel``: the records do not pass through the driver.
    """

    settings_aside: ClassVar[frozenset[str]] = frozenset({"function", "with_mark", "parallel"})
    function: Callable[..., Any] | None = None
    with_mark: bool = False
    parallel: bool = False

    @property
    def writes_rows(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink(Node):
    """Writes each batch into a table of Delta, Iceberg or Postgres, once: changes by key (``upserts``), or records,
    appended.

    ``table``: a path or URI, an identifier in a catalog, or a name in a database. ``keys``: names for the columns of
    the key; None: its own. ``timestamp``: the column of record times. ``options``: of the storage, the properties of
    the catalog, or the DSN, which may hold secrets.
    """

    parallel: ClassVar[bool] = False
    settings_aside: ClassVar[frozenset[str]] = frozenset({"merges_schema", "partition_by"})
    form: Format
    table: str
    upserts: bool
    keys: tuple[str, ...] | None = None
    timestamp: str | None = None
    merges_schema: bool = False
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def writes_rows(self) -> bool:
        return self.upserts
