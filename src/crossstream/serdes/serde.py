"""What every serde does: wire bytes to values and back, one by one, as objects, or as a column; and calls of serdes.

A serde may be the user's own: what it raises becomes a `SerdeError`, and what it gives is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError, SerdeError, told
from crossstream.serdes import refusals
from crossstream.serdes import serde as calls

Way = Literal["objects", "series"]
"""The two ways to decode a column: into Python objects, or into a Polars series."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads values, now or later: expressions, of which fields (None: all); and callables, which read all."""

    fields: frozenset[str] | None = None
    callables: bool = True


ANYBODY = Readers()
NOBODY = Readers(frozenset(), callables=False)


@runtime_checkable
class Checking(Protocol):
    """What a serde of structs may have besides: a way to make columns of some fields and yet check all of them."""

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NOBODY
    ) -> pl.Series:
        """A column of at least these fields, as far as there are such.

        Raises `SerdeError` if ``decode_series(data)`` does of them or of those of the ``readers``; or if another field
        is not what Python functions take for its type, whose columns may hold less. What callables cannot be given,
        though it is of the type, counts where there are such, and in fields that are read.
        """


@runtime_checkable
class Passing(Protocol):
    """What a serde may have besides: a way to check values that go on as the bytes they are, and nobody reads."""

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        """Row by row, whether it is a null. Raises `SerdeError` for what is of another type, read or not."""


@runtime_checkable
class Varied(Protocol):
    """What a serde has besides in which a value may be written in several ways, as in JSON with and without spaces.

    Keys that are read are written anew, so that each has one text. Source: semantics 3.1; Kafka Streams deserialises
    keys at its sources, and its stores serialise them.
    """

    @property
    def varied(self) -> bool:
        """Whether there are such values."""


def is_varied(serde: object) -> bool:
    """Whether a serde has values that may be written in several ways (`Varied`)."""
    return isinstance(serde, Varied) and serde.varied


@runtime_checkable
class OfClasses(Protocol):
    """What a serde of declared types has besides: the classes of its values, for two classes may have one name."""

    @property
    def classes(self) -> tuple[type | Comparable, ...]:
        """All of them, those inside others too, in the order of the type; and serdes it is made of."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparable:
    """A serde whose class says which of them are equal, by fields for instance. Its hash need not tell them apart."""

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


def told_apart(one: Serde, other: Serde) -> tuple[str, str]:
    """What two serdes are called in a message that is about their difference."""
    if one.name != other.name:
        return one.name, other.name
    pairs = zip_longest(_behind(one), _behind(other))
    pair = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
    mine, theirs = map(_told, pair)
    if mine == theirs:
        theirs += ", another one" if isinstance(pair[1], Comparable) else ", another class of that name"
    return f"{one.name} ({mine})", f"{other.name} ({theirs})"


def _told(part: type | Comparable | None) -> str:
    if isinstance(part, Comparable):
        return repr(part.serde)
    return "no class" if part is None else f"{part.__module__}.{part.__qualname__}"


@runtime_checkable
class Serde(Protocol):
    """Wire bytes of one key or value, to and fro. Implementations are frozen, picklable and hashable.

    ``None`` is always a null: nothing else is written as null bytes, and a null is never given to the
    format. Both ways of decoding give the same values; where a type is wider as an object than as a
    column (an `int` beyond 64 bits), the column way refuses what it cannot hold.

    A serde of the user may raise anything: it is told as a `SerdeError`, CS-402 while reading and CS-403 while writing
    (`crossstream.serdes.serde`). docs/serdes.md has an example.
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

    def find_invalid(
        self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
    ) -> list[tuple[int, str]]:
        """(row, reason) of the undecodable rows; slow, for the error path.

        ``way`` "objects": the rows `decode_objects` refuses; "series": those ``decode_series(data, fields)``
        refuses; None: those that either refuses (without ``dtype`` and ``fields``: the first).

        Raises `SerdeError` for what is not a matter of single rows, such as a type without column form.
        """


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


def find_invalid(
    serde: Serde, data: pa.LargeBinaryArray, fields: Collection[str] | None, way: Way | None
) -> list[tuple[int, str]]:
    """`Serde.find_invalid` for any serde: halves the rows until the bad ones stand alone."""
    found: dict[int, str] = {}
    if way != "series":
        found.update(bisected(partial(calls.decode_objects, serde), data))
    if way == "series" or (way is None and (serde.dtype is not None or fields is not None)):
        found = {**dict(bisected(lambda part: calls.decode_series(serde, part, fields), data)), **found}
    return sorted(found.items())


def invalid_rows(
    serde: Serde, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
) -> list[tuple[int, str]]:
    """`Serde.find_invalid`; where that raises what is no refusal, or finds nothing, as for any serde."""
    try:
        found = list(serde.find_invalid(data, fields, way))
    except Exception as error:
        refusal = calls.unread(serde, error)
        if not isinstance(refusal, SerdeError) or refusal.code != refusals.UNDECODABLE:
            raise
        found = []
    return found or find_invalid(serde, data, fields, way)


def bisected(
    decode: Callable[[pa.LargeBinaryArray], object], data: pa.LargeBinaryArray, first: int = 0
) -> list[tuple[int, str]]:
    """(row, reason) of the rows that ``decode`` refuses as undecodable. ``first``: the number of the first row."""
    try:
        decode(data)
    except SerdeError as error:
        if error.code != refusals.UNDECODABLE:
            raise
        if len(data) <= 1:
            return [(first, error.what)]
        middle = len(data) // 2
        return bisected(decode, data[:middle], first) + bisected(decode, data[middle:], first + middle)
    return []


_BYTES = "a pyarrow.LargeBinaryArray, as pa.array(rows, pa.large_binary()) gives"


def unread(serde: Serde, error: Exception) -> Exception:
    """What the serde raised while it read, as a `SerdeError`: CS-402, if it does not say otherwise."""
    return error if _is_told(error) else _caused(refusals.undecodable(serde.name, _reason(error)), error)


def _unwritten(serde: Serde, error: Exception) -> Exception:
    """What the serde raised while it wrote, as a `SerdeError`: CS-403, if it does not say otherwise."""
    return error if _is_told(error) else _caused(refusals.unencodable(serde.name, _reason(error)), error)


def _caused(refusal: SerdeError, error: Exception) -> SerdeError:
    refusal.__cause__ = error
    return refusal


def serialize(serde: Serde, value: Any) -> bytes | None:
    try:
        data: Any = serde.serialize(value)
    except Exception as error:
        refusal = _unwritten(serde, error)
        raise refusal from refusal.__cause__
    if data is None or isinstance(data, bytes):
        return data
    if not isinstance(data, bytearray | memoryview):
        raise refusals.wrong_answer(serde.name, "serialize", "bytes or None", data)
    return bytes(data)


def encode_objects(serde: Serde, values: Sequence[Any]) -> pa.LargeBinaryArray:
    try:
        data = serde.encode_objects(values)
    except Exception as error:
        refusal = _unwritten(serde, error)
        raise refusal from refusal.__cause__
    return _checked(serde, "encode_objects", data, pa.LargeBinaryArray, _BYTES, len(values))


def encode_series(serde: Serde, values: pl.Series) -> pa.LargeBinaryArray:
    try:
        data = serde.encode_series(values)
    except Exception as error:
        refusal = _unwritten(serde, error)
        raise refusal from refusal.__cause__
    return _checked(serde, "encode_series", data, pa.LargeBinaryArray, _BYTES, len(values))


def decode_objects(serde: Serde, data: pa.LargeBinaryArray) -> list[Any]:
    try:
        values = serde.decode_objects(data)
    except Exception as error:
        refusal = unread(serde, error)
        raise refusal from refusal.__cause__
    found: list[Any] = _checked(serde, "decode_objects", values, list, "a list", len(data))
    return found


def decode_series(
    serde: Serde, data: pa.LargeBinaryArray, fields: Collection[str] | None = None
) -> pl.Series:
    try:
        series = serde.decode_series(data, fields)
    except Exception as error:
        refusal = unread(serde, error)
        raise refusal from refusal.__cause__
    found: pl.Series = _checked(serde, "decode_series", series, pl.Series, "a polars.Series", len(data))
    return found


def _is_told(error: Exception) -> bool:
    """Whether it says what is wrong as our own serdes do; or is not about the values at all."""
    if isinstance(error, SerdeError):
        return error.code != SerdeError.default_code
    return isinstance(error, MemoryError)


def _reason(error: Exception) -> str:
    return error.what if isinstance(error, CrossStreamError) else told(error)


def _checked(serde: Serde, method: str, given: Any, kind: type, wanted: str, rows: int) -> Any:
    """What the method gave, if it is of this kind and has so many rows; else CS-412."""
    if not isinstance(given, kind):
        raise refusals.wrong_answer(serde.name, method, wanted, given)
    if len(given) != rows:  # type: ignore[arg-type]
        raise refusals.wrong_count(serde.name, method, rows, len(given))  # type: ignore[arg-type]
    return given
