"""What a serde does: wire bytes to values and back, one by one, as objects, or as a column.

`Serde` is all that a user writes. `EngineSerde` is what the engine asks: its questions have the answers of a simple
serde, and the serdes of crossstream give others where they know better. `own.OwnSerde` asks for a user's serde.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays
from crossstream.serdes.description import Described

S = TypeVar("S", bound="EngineSerde")


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads values, now or later: expressions, of these ``fields`` (None: all); and callables, which read all."""

    fields: frozenset[str] | None = None
    callables: bool = True


ANY_READER = Readers()
NO_READER = Readers(frozenset(), callables=False)


@runtime_checkable
class Serde(Protocol):
    """Wire bytes of a key or value, both ways. Implementations are frozen, picklable and hashable.

    ``None`` is always a null: nothing else is written as null bytes, and a null is never given to the
    format. Both ways of decoding give the same values; where a type is wider as an object than as a
    column (an `int` beyond 64 bits), the column refuses what it cannot hold.

    A serde may raise anything: it becomes a `SerdeError`, CS-402 while reading and CS-403 while writing.
    docs/serdes.md has an example.
    """

    @property
    def name(self) -> str:
        """``string``, ``json[Order]``, …: the same in every process, part of a state's fingerprint."""

    @property
    def dtype(self) -> pl.DataType | None:
        """Polars type of a decoded column; None: known only from the values, or there is no column form."""

    def serialize(self, value: Any) -> bytes | None:
        """Bytes of one value. Raises `SerdeError`."""

    def deserialize(self, data: bytes | None) -> Any:
        """The value of some bytes. Raises `SerdeError`."""

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        """Bytes of many objects, None → null. Raises `SerdeError` if any has none."""

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        """An object for every row, null → None. Raises `SerdeError` if any row is undecodable."""

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        """Bytes of a column, null → null. Raises `SerdeError` if the type or any row does not fit."""

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        """A column. ``fields``: only these fields of a struct are needed, and only they are looked at.

        Raises `SerdeError` if any row is undecodable, or there is no column form.
        """


if TYPE_CHECKING:
    _Contract = Serde
else:  # names of a protocol would be defaults of a dataclass's fields
    _Contract = object


class EngineSerde(_Contract):
    """A serde as the engine asks it."""

    __slots__ = ()

    @property
    def varied(self) -> bool:
        """Whether one value may have several texts, as in JSON with and without spaces.

        Keys that are read are written again, so that each has one text. Source: semantics 3.1; Kafka Streams
        deserialises keys at its sources, and its stores serialise them.
        """
        return False

    @property
    def is_text(self) -> bool:
        """Whether its bytes are text in UTF-8, which says what the value is."""
        return False

    @property
    def unfit_for_keys(self) -> str | None:
        """Why it may write equal objects in several ways; None: it does not. Keys are equal by their bytes."""
        return None

    @property
    def classes(self) -> tuple[type | Comparable, ...]:
        """The classes of its values, in the order of the type, because two may have one name; and serdes in it.

        Without such classes it is the serde itself, if its class has an ``__eq__``.
        """
        return () if type(self).__eq__ is object.__eq__ else (Comparable(self),)

    @property
    def some_columns(self) -> pl.DataType | None:
        """Of a class with fields that only callables can read: the type of the other fields."""
        return None

    @property
    def columns(self) -> pl.DataType | None:
        """The type of the columns that expressions can read; None: none is declared."""
        return self.some_columns if self.dtype is None else self.dtype

    @property
    def stays_inside(self) -> bool:
        """Whether its bytes are read by the engine alone."""
        return False

    @property
    def public(self) -> EngineSerde:
        """The serde that a user would name for the same bytes."""
        return self

    @property
    def window_size(self) -> int | None:
        """Of `Windowed` keys of windows of one size: that size in ms."""
        return None

    @property
    def has_windows(self) -> bool:
        """Whether its values are `Windowed` keys."""
        return False

    @property
    def knows_topics(self) -> bool:
        """Whether `read_from` and `written_to` may give another serde."""
        return False

    def described(self) -> Described:
        """What a state folder says of it. Of a user's it is the name: who opens the folder passes the serde."""
        return Described(self.name, "own")

    def read_from(self: S, topic: str | None, is_key: bool) -> S:
        """The serde for records that a source reads; a schema may depend on the topic. None: a pattern of topics."""
        return self

    def written_to(self: S, topic: str | None, is_key: bool) -> S:
        """The serde for records that leave the application. None: a function names the topic.

        Without a topic (in stores, between partitions) a serde of a registry writes `registry.serde.INTERNAL_ID`.
        """
        return self

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NO_READER
    ) -> pl.Series:
        """A column of at least these fields, as far as the type has them; all fields are checked.

        Raises `SerdeError` if ``decode_series(data)`` does for these fields or those of the ``readers``; or if another
        field is not what Python functions take for its type, whose columns may hold less. What is of the type, and yet
        cannot be given to callables, counts where there are such readers, and in fields that are read.
        """
        return self.decode_series(data)

    def fitted(self, values: pl.Series) -> pl.Series | None:
        """A column in exactly the type of the serde, whose rows `encode_series` takes; None: that has to say it.

        Raises `SerdeError` if the type or any row does not fit.
        """
        return None

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        """Row by row, whether it is a null, of values that pass as the bytes they are.

        Raises `SerdeError` for what is of another type, read or not.
        """
        return [value is None for value in self.decode_objects(data)]


class ByColumns(EngineSerde):
    """Single values of serdes that work on many at once."""

    __slots__ = ()

    def serialize(self, value: Any) -> bytes | None:
        data: bytes | None = self.encode_objects([value])[0].as_py()
        return data

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else self.decode_objects(arrays.binary_rows([data]))[0]


class OneByOne(EngineSerde):
    """Many values of serdes that work on single ones."""

    __slots__ = ()

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        return arrays.binary_rows(list(map(self.serialize, values)))

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return list(map(self.deserialize, data.to_pylist()))


@dataclass(frozen=True, slots=True, eq=False)
class Comparable:
    """A serde whose class says which of them are equal, by fields for instance. Its hash may be that of another one."""

    serde: Serde

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparable) and (
            self.serde is other.serde or bool(self.serde == other.serde)
        )

    def __hash__(self) -> int:
        return hash(self.serde.name)
