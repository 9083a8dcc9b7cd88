"""Aggregations and the other operators with state of their own that join nothing, and what each of them needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crossstream.columns.aggregates import Aggregates
from crossstream.columns.functions import Function
from crossstream.columns.windows import WindowSpec
from crossstream.graph.node import Node
from crossstream.serdes.contract import EngineSerde


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable(Node):
    """The rows of a table under other keys, to be aggregated: each change takes its old row away and adds its new one.

    ``mapper``: (key, value) → (key', value'), or with ``selects`` → key' alone.
    """

    changes_key: ClassVar[bool] = True
    takes_every_record: ClassVar[bool] = True
    mapper: Function
    selects: bool = False
    result_settings: ClassVar[frozenset[str]] = frozenset({"mapper", "selects"})

    @property
    def from_rows(self) -> bool:
        return True

    def holds(self, part: str) -> str | None:
        return self.parents[0] if part == "latest" else None

    @property
    def over_values(self) -> tuple[Function, ...]:
        return (self.mapper,)

    @property
    def gives_key_alone(self) -> bool:
        return self.selects

    def needs_old(self, is_asked: bool) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Node):
    """A table with one row for each group (of each window): parents are the grouped streams, or one `GroupTable`.

    ``operator``: "count", "reduce", "aggregate" or "agg". ``adders``: one for each parent; ``subtractor``: of a grouped
    table. ``initializer``: makes the first aggregate. ``merger``: of two sessions. ``columns``: of "agg".
    ``group_key``, ``group_values``: the serdes of what is aggregated. ``emit_final``: each window comes out once, when
    it has closed.
    """

    operator: Literal["count", "reduce", "aggregate", "agg"]
    group_key: EngineSerde
    group_values: tuple[EngineSerde | None, ...] = ()
    adders: tuple[Function, ...] = ()
    subtractor: Function | None = None
    initializer: Callable[[], Any] | None = None
    merger: Function | None = None
    columns: Aggregates | None = None
    windows: WindowSpec | None = None
    emit_final: bool = False

    by_key: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    takes_every_record: ClassVar[bool] = True
    needs_any_parent: ClassVar[bool] = True

    @property
    def over_values(self) -> tuple[Function, ...]:
        of_fields = self.columns is not None and self.group_values[0] is None
        return tuple(self.columns.fields) if self.columns is not None and of_fields else ()

    def only_counts(self, value: EngineSerde | None) -> bool:
        is_count = self.operator == "count" or (self.columns is not None and not self.columns.fields)
        return is_count and all(serde in (None, value) for serde in self.group_values)

    @property
    def depends_on_time(self) -> bool:
        return self.windows is not None

    @property
    def from_rows(self) -> bool:
        any_order = self.operator == "count" or (self.columns is not None and not self.columns.in_order)
        return any_order and self.windows is None and self.history is None

    @property
    def words(self) -> Mapping[str, str]:
        return {} if self.columns is None else self.columns.words

    @property
    def takes_nulls(self) -> bool:
        """Whether it aggregates records without a value (Kafka's rule for most windows)."""
        return self.windows is not None and self.windows.take_nulls and self.columns is None

    @property
    def public_name(self) -> str:
        return self.operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate(Node):
    """The first record of each identity in every ``within`` ms of stream time.

    ``identity``: gives that of a record; None: it is the key.
    """

    by_key: ClassVar[bool] = True
    takes_every_record: ClassVar[bool] = True
    may_drop: ClassVar[bool] = True
    depends_on_time: ClassVar[bool] = True
    within: int
    identity: Function | None = None

    @property
    def by_other_key(self) -> bool:
        return self.identity is not None

    @property
    def inner_stores(self) -> tuple[str, ...]:
        return ("seen",)


@dataclass(frozen=True, slots=True)
class ProcessorStore:
    """A store of a processor. ``retention``: of windows, or of the history of versions, in ms."""

    kind: Literal["key-value", "window", "versioned"]
    name: str
    key: EngineSerde
    value: EngineSerde
    retention: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Node):
    """A processor that the user wrote. ``supplier`` makes one for each state partition.

    ``keeps_key``: it forwards records under their own keys (`process_values`).
    """

    by_key: ClassVar[bool] = True
    takes_every_record: ClassVar[bool] = True
    multiplies: ClassVar[bool] = True
    runs_processor: ClassVar[bool] = True
    depends_on_time: ClassVar[bool] = True
    stops_tracing: ClassVar[str] = "a processor cannot be traced: what it keeps may come from any record"
    may_drop: ClassVar[bool] = True
    supplier: Callable[[], Any]
    keeps_key: bool = False
    stores: tuple[ProcessorStore, ...] = ()

    @property
    def changes_key(self) -> bool:
        return not self.keeps_key

    @property
    def public_name(self) -> str:
        return "process_values" if self.keeps_key else "process"

    @property
    def queryable_names(self) -> tuple[str, ...]:
        return tuple(store.name for store in self.stores)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformBatches(Node):
    """A function of Arrow record batches.

    ``columns``: the types of what it returns, by name. ``with_context``: it takes the context after the batch.
    """

    by_key: ClassVar[bool] = True
    changes_key: ClassVar[bool] = True
    takes_every_record: ClassVar[bool] = True
    multiplies: ClassVar[bool] = True
    runs_processor: ClassVar[bool] = True
    depends_on_time: ClassVar[bool] = True
    stops_tracing: ClassVar[str] = (
        "a function of record batches cannot be traced: what it gives may come from any record"
    )
    function: Callable[..., Any]
    columns: tuple[tuple[str, Any], ...]
    with_context: bool = False
    stores: tuple[ProcessorStore, ...] = ()

    @property
    def queryable_names(self) -> tuple[str, ...]:
        return tuple(store.name for store in self.stores)


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

    takes_every_record: ClassVar[bool] = True
    depends_on_time: ClassVar[bool] = True
    old_of_versions: ClassVar[bool] = True

    def needs_old(self, is_asked: bool) -> bool:
        return is_asked or self.max_bytes is not None

    @property
    def inner_stores(self) -> tuple[str, ...]:
        return ("buffer",)
