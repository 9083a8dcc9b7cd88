"""The values that move through the reference: records, changes of tables, outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Side = Literal["left", "right"]
Headers = tuple[tuple[str, bytes | None], ...]
Case = Mapping[str, Any]
PartitionOf = Callable[[Any], int]

NULL_KEY = "null-key"
NULL_VALUE = "null-value"
NULL_FOREIGN_KEY = "null-foreign-key"
OUT_OF_ORDER = "out-of-order"
EXPIRED = "expired-version"


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a stream. ``ts``: ms."""

    key: Any
    value: Any
    ts: int
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Change:
    """Row ``key`` of a table went from ``old`` to ``new``; None is no row.

    ``latest`` is False when the update went into a versioned table behind a newer version of the key.
    """

    key: Any
    new: Any
    old: Any
    ts: int
    latest: bool = True


@dataclass(frozen=True, slots=True)
class Output:
    """One result record. ``old``: the row before it, for table joins; no part of equality."""

    key: Any
    value: Any
    ts: int
    headers: Headers = ()
    old: Any = field(default=None, compare=False)

    @classmethod
    def of(cls, event: Record | Change) -> Output:
        if isinstance(event, Change):
            return cls(event.key, event.new, event.ts, old=event.old)
        return cls(event.key, event.value, event.ts, event.headers)

    def __str__(self) -> str:
        return f"{shown(self.key)}={shown(self.value)}@{self.ts}"


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gives. ``outputs[i]`` are the results of input ``i``; ``table`` is their fold."""

    outputs: list[list[Output]]
    table: dict[Any, tuple[Any, int]]
    dropped: Counter[str]

    @property
    def changelog(self) -> list[Output]:
        """All outputs, in order."""
        return [output for outputs in self.outputs for output in outputs]

    @property
    def rows(self) -> dict[Any, Any]:
        """The final table without timestamps."""
        return {key: value for key, (value, _) in self.table.items()}


Event = Record | Change


class Join(Protocol):
    """One join: what reached it because of one input record, to what it emits."""

    def receive(self, events: list[tuple[Side, Event]]) -> list[Event]: ...


def fold(changelog: Iterable[Output]) -> dict[Any, tuple[Any, int]]:
    """The table that a changelog describes: key → (value, timestamp)."""
    table: dict[Any, tuple[Any, int]] = {}
    for output in changelog:
        if output.value is None:
            table.pop(output.key, None)
        else:
            table[output.key] = (output.value, output.ts)
    return table


def key_bytes(key: Any) -> bytes:
    """The key as the built-in serdes write it; gives the order of several results of one input."""
    if key is None:
        return b""
    if isinstance(key, tuple):  # (left key, None) or (None, right key)
        return b"\1" + key_bytes(key[1]) if key[0] is None else b"\0" + key_bytes(key[0])
    return key.encode() if isinstance(key, str) else int(key).to_bytes(8, "big", signed=True)


def shown(value: Any) -> str:
    return "∅" if value is None else str(value)
