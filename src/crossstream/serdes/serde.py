"""What a serde does: wire bytes to values and back, one by one, as objects, or as a column; and calls of serdes.

A serde may be the user's own: what it raises becomes a `SerdeError`, and what it gives is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError, SerdeError, type_and_text
from crossstream.serdes import arrays, errors

Way = Literal["objects", "series"]
"""The two ways to decode a column: into Python objects, or into a Polars series."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads values, now or later: expressions, of these ``fields`` (None: all); and callables, which read all."""

    fields: frozenset[str] | None = None
    callables: bool = True


ANY_READER = Readers()
NO_READER = Readers(frozenset(), callables=False)


@runtime_checkable
class Checking(Protocol):
    """A serde of structs that makes columns of some fields, and checks all of them."""

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NO_READER
    ) -> pl.Series:
        """A column of at least these fields, as far as the type has them.

        Raises `SerdeError` if ``decode_series(data)`` does for these fields or those of the ``readers``; or if another
        field is not what Python functions take for its type, whose columns may hold less. What is of the type, and yet
        cannot be given to callables, counts where there are such readers, and in fields that are read.
        """


@runtime_checkable
class Passing(Protocol):
    """A serde that can check values which pass as the bytes they are, because no function reads them."""

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        """Row by row, whether it is a null. Raises `SerdeError` for what is of another type, read or not."""


@runtime_checkable
class Varied(Protocol):
    """A serde in which one value may have several texts, as in JSON with and without spaces.

    Keys that are read are written again, so that each has one text. Source: semantics 3.1; Kafka Streams deserialises
    keys at its sources, and its stores serialise them.
    """

    @property
    def varied(self) -> bool:
        """Whether there are such values."""


def is_varied(serde: object) -> bool:
    """Whether one value may have several texts (`Varied`)."""
    return isinstance(serde, Varied) and serde.varied


def key_fault(serde: object) -> str | None:
    """Why a serde may write equal objects in several ways, as it says in ``unfit_for_keys``; None: it does not."""
    fault: str | None = getattr(serde, "unfit_for_keys", None)
    return fault


def check_key_serde(serde: object) -> None:
    """Raises `SerdeError` (CS-404) for a serde that cannot serve keys, because keys are equal by their bytes."""
    fault = key_fault(serde)
    if isinstance(serde, Serde) and fault is not None:
        raise errors.unfit_for_keys(serde.name, fault)


@runtime_checkable
class OfClasses(Protocol):
    """A serde of declared types: it has the classes of its values, because two classes may have one name."""

    @property
    def classes(self) -> tuple[type | Comparable, ...]:
        """All of them, those inside others too, in the order of the type; and serdes it is made of."""


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


Identity: TypeAlias = tuple[str, tuple[type | Comparable, ...]]
"""The name of a serde, and what is behind it."""


def identity(serde: Serde) -> Identity:
    """What two serdes of one process have in common if they mean the same: their name, and what is behind it.

    That is the classes of their values, or the serde, if its class has an ``__eq__``. Two of a class that has none are
    never equal, and it is usual to make two for one topology.
    """
    return serde.name, _behind(serde)


def _behind(serde: Serde) -> tuple[type | Comparable, ...]:
    if isinstance(serde, OfClasses):
        return serde.classes
    return () if type(serde).__eq__ is object.__eq__ else (Comparable(serde),)


def alike(one: Serde, other: Serde) -> bool:
    """Whether two serdes of one process mean the same."""
    return identity(one) == identity(other)


def names_apart(one: Serde, other: Serde) -> tuple[str, str]:
    """The names of two serdes in a message about their difference."""
    if one.name != other.name:
        return one.name, other.name
    pairs = zip_longest(_behind(one), _behind(other))
    pair = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
    mine, theirs = map(_part_name, pair)
    if mine == theirs:
        theirs += ", another one" if isinstance(pair[1], Comparable) else ", another class of that name"
    return f"{one.name} ({mine})", f"{other.name} ({theirs})"


def _part_name(part: type | Comparable | None) -> str:
    if isinstance(part, Comparable):
        return repr(part.serde)
    return "no class" if part is None else f"{part.__module__}.{part.__qualname__}"


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


class ByColumns:
    """Single values of serdes that work on many at once."""

    __slots__ = ()

    def serialize(self, value: Any) -> bytes | None:
        data: bytes | None = self.encode_objects([value])[0].as_py()  # type: ignore[attr-defined]
        return data

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else self.decode_objects(arrays.binary_rows([data]))[0]  # type: ignore[attr-defined]


class OneByOne:
    """Many values of serdes that work on single ones."""

    __slots__ = ()

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        return arrays.binary_rows(list(map(self.serialize, values)))  # type: ignore[attr-defined]

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return list(map(self.deserialize, data.to_pylist()))  # type: ignore[attr-defined]


@runtime_checkable
class SomeColumns(Protocol):
    """A serde of a class that may have fields without a column form, which are for callables only."""

    @property
    def some_columns(self) -> pl.DataType | None:
        """The type of the other fields; None if it is no class."""


def columns_in(serde: Serde | None) -> pl.DataType | None:
    """The type of the columns that expressions can read; None: none is declared."""
    if serde is None or serde.dtype is not None:
        return None if serde is None else serde.dtype
    return serde.some_columns if isinstance(serde, SomeColumns) else None


@runtime_checkable
class ForTopic(Protocol):
    """A serde that needs to know its topic, for the subject of its schema. The builder asks for the bound serde.

    Without a topic (in stores, between partitions) such a serde writes `registry_serde.INTERNAL_ID`.
    """

    def read_from(self, topic: str | None, is_key: bool) -> Serde:
        """The serde for records that a source reads. None: a pattern of topics."""

    def written_to(self, topic: str | None, is_key: bool) -> Serde:
        """The serde for records that leave the application. None: a function names the topic."""


def read_from(serde: Serde, topic: str | None, is_key: bool) -> Serde:
    """As `ForTopic.read_from`, for any serde."""
    return serde.read_from(topic, is_key) if isinstance(serde, ForTopic) else serde


def written_to(serde: Serde, topic: str | None, is_key: bool) -> Serde:
    """As `ForTopic.written_to`, for any serde."""
    return serde.written_to(topic, is_key) if isinstance(serde, ForTopic) else serde


def find_invalid(
    serde: Serde, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
) -> list[tuple[int, str]]:
    """(row, reason) of the undecodable rows: halves the rows until the bad ones stand alone. For the error path.

    ``way`` "objects": the rows `decode_objects` refuses; "series": those ``decode_series(data, fields)`` refuses;
    None: those that either refuses (without ``dtype`` and ``fields``: the first).

    Raises `SerdeError` for what is not a matter of single rows, such as a type without column form.
    """
    found: dict[int, str] = {}
    if way != "series":
        found.update(bisected(partial(decode_objects, serde), data))
    if way == "series" or (way is None and (serde.dtype is not None or fields is not None)):
        found = {**dict(bisected(lambda part: decode_series(serde, part, fields), data)), **found}
    return sorted(found.items())


def bisected(
    decode: Callable[[pa.LargeBinaryArray], object], data: pa.LargeBinaryArray, first: int = 0
) -> list[tuple[int, str]]:
    """(row, reason) of the rows that ``decode`` refuses as undecodable. ``first``: the number of the first row."""
    try:
        decode(data)
    except SerdeError as error:
        if error.code != errors.UNDECODABLE:
            raise
        if isinstance(error, errors.UndecodableRows) and error.rows:
            wrong = np.zeros(len(data), np.bool_)
            wrong[list(error.rows)] = True
            others = arrays.nulled(data, wrong)
            known = [(first + row, reason) for row, reason in error.rows.items()]
            return sorted(known + bisected(decode, others, first))
        if len(data) <= 1:
            return [(first, error.what)]
        middle = len(data) // 2
        return bisected(decode, data[:middle], first) + bisected(decode, data[middle:], first + middle)
    return []


def serialize(serde: Serde, value: Any) -> bytes | None:
    data: Any = _called(serde, errors.unencodable, serde.serialize, value)
    if data is None or isinstance(data, bytes):
        return data
    if not isinstance(data, bytearray | memoryview):
        raise errors.wrong_answer(serde.name, "serialize", "bytes or None", data)
    return bytes(data)


def deserialize(serde: Serde, data: bytes) -> Any:
    return _called(serde, errors.undecodable, serde.deserialize, data)


def encode_objects(serde: Serde, values: Sequence[Any]) -> pa.LargeBinaryArray:
    data = _called(serde, errors.unencodable, serde.encode_objects, values)
    return _checked(serde, "encode_objects", data, pa.LargeBinaryArray, _BYTES, len(values))


def encode_series(serde: Serde, values: pl.Series) -> pa.LargeBinaryArray:
    data = _called(serde, errors.unencodable, serde.encode_series, values)
    return _checked(serde, "encode_series", data, pa.LargeBinaryArray, _BYTES, len(values))


def decode_objects(serde: Serde, data: pa.LargeBinaryArray) -> list[Any]:
    values = _called(serde, errors.undecodable, serde.decode_objects, data)
    found: list[Any] = _checked(serde, "decode_objects", values, list, "a list", len(data))
    return found


def decode_series(
    serde: Serde, data: pa.LargeBinaryArray, fields: Collection[str] | None = None
) -> pl.Series:
    series = _called(serde, errors.undecodable, serde.decode_series, data, fields)
    found: pl.Series = _checked(serde, "decode_series", series, pl.Series, "a polars.Series", len(data))
    return found


def _error(serde: Serde, error: Exception, build: Callable[[str, str], CrossStreamError]) -> Exception:
    """What a serde raised, as a `SerdeError`, with the code of ``build`` if it does not say otherwise."""
    if isinstance(error, MemoryError):  # not about the values at all
        return error
    if isinstance(error, SerdeError) and error.code != SerdeError.default_code:
        return error
    refusal = build(serde.name, error.what if isinstance(error, CrossStreamError) else type_and_text(error))
    refusal.__cause__ = error
    return refusal


def _called(
    serde: Serde, build: Callable[[str, str], CrossStreamError], method: Callable[..., Any], *arguments: Any
) -> Any:
    try:
        return method(*arguments)
    except Exception as error:
        refusal = _error(serde, error, build)
        raise refusal from refusal.__cause__


def _checked(serde: Serde, method: str, given: Any, kind: type, wanted: str, rows: int) -> Any:
    """What the method gave, if it is of this kind and has so many rows; else CS-412."""
    if not isinstance(given, kind):
        raise errors.wrong_answer(serde.name, method, wanted, given)
    if len(given) != rows:  # type: ignore[arg-type]
        raise errors.wrong_count(serde.name, method, rows, len(given))  # type: ignore[arg-type]
    return given


_BYTES = "a pyarrow.LargeBinaryArray, as pa.array(rows, pa.large_binary()) gives"
