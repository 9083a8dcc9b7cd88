"""The joins of a topology, and what each of them needs (`node.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crossstream.columns.changes import Headers, JoinKind
from crossstream.columns.functions import Function
from crossstream.graph.node import Node, StoreSpec
from crossstream.serdes.contract import EngineSerde

ForeignKeyKind = Literal["inner", "left", "right", "outer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    """Joins its parents: (left, right), or the left one and several others."""

    kind: ForeignKeyKind
    joiner: Function
    result_settings: ClassVar[frozenset[str]] = frozenset({"kind", "joiner", "headers"})

    @property
    def from_rows(self) -> bool:
        return self.shape != "stream" and not self.depends_on_time

    @property
    def needs_any_parent(self) -> bool:
        return self.kind == "outer"

    @property
    def needed_parents(self) -> tuple[str, ...]:
        return self.parents if self.kind == "inner" else self.parents[:1]

    @property
    def public_name(self) -> str:
        return "join" if self.kind == "inner" else f"{self.kind}_join"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJoin(Join):
    """Joins two parents, (left, right). ``headers``: whose headers a result has; None: those of what triggers it."""

    headers: Headers | None = None

    @property
    def rows_with_headers(self) -> tuple[str, ...]:
        sides = {"left": self.parents[:1], "right": self.parents[1:], "both": self.parents}
        return () if self.headers is None else sides[self.headers]

    def needs_headers(self, is_asked: bool) -> tuple[str, ...]:
        return self.parents[1:] if self.headers in ("right", "both") else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin(PairJoin):
    """KTable–KTable by primary key."""

    kind: JoinKind

    @property
    def computed_from(self) -> tuple[str, ...]:
        return self.parents if self.store is None else ()

    def needs_headers(self, is_asked: bool) -> tuple[str, ...]:
        return () if self.headers is None else self.parents

    def keeps(self, side: int) -> bool:
        return True

    @property
    def side_labels(self) -> tuple[str, ...]:
        return self.side_names

    @property
    def described(self) -> dict[str, Any]:
        return {"foreign_key": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyJoin(PairJoin):
    """KTable–KTable by foreign key. Partitioners: KIP-775, (key, count) → int."""

    by_foreign_key: ClassVar[bool] = True
    answers_by_key: ClassVar[bool] = True
    kind: ForeignKeyKind
    foreign_key: Function
    partitioner: Callable[[Any, int], int] | None = None
    other_partitioner: Callable[[Any, int], int] | None = None

    @property
    def references(self) -> tuple[tuple[int, Function], ...]:
        return ((1, self.foreign_key),)

    def fills(self, part: str) -> tuple[str, ...]:
        return self.parents[:1]

    def holds(self, part: str) -> str | None:
        return self.parents[0] if part == "subscriptions" else None

    @property
    def keys_of_either(self) -> bool:
        return self.kind in ("right", "outer")

    def keeps(self, side: int) -> bool:
        return side == 1 and self.other_partitioner is None

    @property
    def side_labels(self) -> tuple[str, ...]:
        return ("foreign key", "right")

    @property
    def described(self) -> dict[str, Any]:
        return {"foreign_key": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGlobalJoin(PairJoin):
    """KStream–GlobalKTable. ``key_selector``: (key, value) → key of the table.

    ``both_keys``: the joiner takes the key of the stream and that of the table before the values.
    """

    looks_up: ClassVar[bool] = True
    joins_stream: ClassVar[bool] = True
    kind: Literal["inner", "left"]
    key_selector: Function
    both_keys: bool = False

    @property
    def references(self) -> tuple[tuple[int, Function], ...]:
        return ((1, self.key_selector),)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalJoin(Join):
    """A view over two global tables, kept nowhere; parents are (left, right).

    ``key_selector``: (key, value) of a left row → key of the right table.
    """

    is_view: ClassVar[bool] = True
    kind: Literal["inner", "left"]
    key_selector: Function

    @property
    def references(self) -> tuple[tuple[int, Function], ...]:
        return ((1, self.key_selector),)

    @property
    def computed_from(self) -> tuple[str, ...]:
        return self.parents

    def needs_headers(self, is_asked: bool) -> tuple[str, ...]:
        return self.parents[:1] if is_asked else ()

    @property
    def side_labels(self) -> tuple[str, ...]:
        return self.side_names


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTableJoin(PairJoin):
    """KStream–KTable. ``stream_value``: serde of the stream's values, if known.

    ``grace``: how long records wait for the table, ms; None: they do not. Only over a versioned table.
    """

    by_key: ClassVar[bool] = True
    looks_up: ClassVar[bool] = True
    as_of_record: ClassVar[bool] = True
    joins_stream: ClassVar[bool] = True
    kind: Literal["inner", "left"]
    stream_value: EngineSerde | None = None
    grace: int | None = None

    @property
    def depends_on_time(self) -> bool:
        return self.grace is not None or self.history is not None

    @property
    def inner_stores(self) -> tuple[str, ...]:
        return () if self.grace is None else ("buffer",)

    def keeps(self, side: int) -> bool:
        return side == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStreamJoin(PairJoin):
    """KStream–KStream; both may be the same. Bounds of the window and grace in ms.

    ``store``, ``other_store``: of the left and of the right records, with the serdes they are kept in.
    """

    by_key: ClassVar[bool] = True
    joins_stream: ClassVar[bool] = True
    multiplies: ClassVar[bool] = True
    depends_on_time: ClassVar[bool] = True
    kind: JoinKind
    before: int
    after: int
    store: StoreSpec
    other_store: StoreSpec
    grace: int = 0
    eager: bool = False
    result_settings: ClassVar[frozenset[str]] = frozenset({"joiner", "headers"})

    @property
    def side_stores(self) -> tuple[StoreSpec, ...]:
        return (self.store, self.other_store)

    @property
    def inner_stores(self) -> tuple[str, ...]:
        return self.side_names

    @property
    def queryable_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.side_stores if spec.name is not None)

    @property
    def side_labels(self) -> tuple[str, ...]:
        return self.side_names

    @property
    def described(self) -> dict[str, Any]:
        return {"window": {name: getattr(self, name) for name in ("before", "after", "grace", "eager")}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyJoin(Join):
    """KTable with several tables by a foreign key each; parents are (left, the others in order of ``names``).

    ``names``: what the joiner knows the others by, sorted; ``foreign_keys``: for each of them.
    """

    kind: Literal["inner", "left"]
    by_foreign_key: ClassVar[bool] = True
    names: tuple[str, ...]
    foreign_keys: tuple[Function, ...]

    @property
    def part_names(self) -> Mapping[str, tuple[str, ...]]:
        return {"foreign_keys": self.names}

    @property
    def public_name(self) -> str:
        return "join_many" if self.kind == "inner" else f"{self.kind}_join_many"

    @property
    def references(self) -> tuple[tuple[int, Function], ...]:
        return tuple(enumerate(self.foreign_keys, 1))

    @property
    def side_names(self) -> tuple[str, ...]:
        return ("left", *self.names)

    def keeps(self, side: int) -> bool:
        return side > 0

    def fills(self, part: str) -> tuple[str, ...]:
        return self.parents if part == "partners" else self.parents[:1]

    def holds(self, part: str) -> str | None:
        return self.parents[0] if part == "rows" else None

    @property
    def side_labels(self) -> tuple[str, ...]:
        return ("foreign keys", *self.names)

    @property
    def described(self) -> dict[str, Any]:
        return {"foreign_keys": list(self.names)}
