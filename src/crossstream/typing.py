"""The types of all callables that crossstream accepts.

A callable that requires one parameter more than its values gets the key first; `keyed` says so where the signature
does not (KIP-149's ``…WithKey`` variants).

Values, keys and results are the plain Python objects of the serdes. A missing side of a left or outer join, the
value of a tombstone and a null key are ``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeAlias

import polars as pl

from crossstream.columns.functions import keyed
from crossstream.once import BatchMark

Key: TypeAlias = Any
Value: TypeAlias = Any

Predicate: TypeAlias = Callable[[Value], bool] | Callable[[Key, Value], bool] | keyed | pl.Expr
"""``value → bool`` or ``(key, value) → bool``; or a boolean expression over the value's fields and the
column ``key``."""

KeyValueMapper: TypeAlias = Callable[[Key, Value], tuple[Key, Value]] | Callable[[Value], tuple[Key, Value]]
"""``(key, value) → (key', value')``, or of the value alone."""

KeySelector: TypeAlias = Callable[[Value], Key] | Callable[[Key, Value], Key] | keyed | pl.Expr | str
"""``value → key'`` or ``(key, value) → key'``; or an expression; or the name of a field of the value."""

FlatMapper: TypeAlias = (
    Callable[[Key, Value], Iterable[tuple[Key, Value]]] | Callable[[Value], Iterable[tuple[Key, Value]]]
)
"""``(key, value) → any number of (key', value')``, or of the value alone."""

ValueMapper: TypeAlias = Callable[[Value], Value] | Callable[[Key, Value], Value] | keyed | pl.Expr
"""``value → value'`` or ``(key, value) → value'``; or an expression."""

FlatValueMapper: TypeAlias = (
    Callable[[Value], Iterable[Value]] | Callable[[Key, Value], Iterable[Value]] | keyed | pl.Expr
)
"""``value → any number of values``, also with the key first; or an expression that yields a list."""

Action: TypeAlias = Callable[[Key, Value], object] | Callable[[Value], object] | keyed
"""``(key, value) → ignored`` or ``value → ignored``; called for its side effect."""

ValueJoiner: TypeAlias = (
    Callable[[Value, Value], Value] | Callable[[Key, Value, Value], Value] | keyed | pl.Expr
)
"""``(left, right) → value`` or ``(key, left, right) → value``; or an expression over the struct columns
``left`` and ``right``. Must be pure: it may be called more often than results appear."""

GlobalJoiner: TypeAlias = ValueJoiner | Callable[[Key, Key, Value, Value], Value]
"""As `ValueJoiner`; or ``(key, other_key, left, right) → value`` with the key of the stream and of the global table."""

ManyJoiner: TypeAlias = (
    Callable[[Value, dict[str, Value]], Value]
    | Callable[[Key, Value, dict[str, Value]], Value]
    | keyed
    | pl.Expr
)
"""``(left, rows) → value`` or ``(key, left, rows) → value``, with the rows of the other tables by their names; or
an expression over the struct columns ``left`` and, for each table, one of its name. Must be pure."""

ForeignKeyExtractor: TypeAlias = Callable[[Value], Key] | Callable[[Key, Value], Key] | keyed | pl.Expr | str
"""``left value → key of the other table`` (None: no partner), also with the key first; or an expression; or the
name of a field of the value."""

Partitioner: TypeAlias = Callable[[str, Key, Value, int], int | list[int] | None]
"""``(topic, key, value, number of partitions) → partition``; a list: one copy each, an empty one drops the
record; None: Kafka's default (murmur2 of the serialised key). Source: semantics 3.12."""

KeyPartitioner: TypeAlias = Callable[[Key, int], int]
"""``(key, number of partitions) → partition``, for `TableJoined` (KIP-775). Must look at the key only."""

TopicSelector: TypeAlias = Callable[[Key, Value], str]
"""``(key, value) → topic`` of a sink that chooses the topic for each record."""

TimestampExtractor: TypeAlias = Callable[[Key, Value, int], "int | datetime"] | pl.Expr
"""``(key, value, the record's own timestamp in ms) → timestamp``, in ms since the epoch or as a `datetime`;
or an expression over the value's fields and ``key``, and over ``timestamp``: the record's own, where the value has no
field of that name."""

BatchFunction: TypeAlias = Callable[[Any, int], None] | Callable[[Any, int, BatchMark], None]
"""``(Spark DataFrame, batch id) → None``, or with a `BatchMark` after them; called in the driver."""
