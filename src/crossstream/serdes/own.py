"""A user's serde: wrapped once, where it is given, so that the engine asks every serde alike. What it gives is checked.

What a serde may say beyond `Serde` (``varied``, ``decode_checked``, …) is looked for here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from crossstream.serdes import errors
from crossstream.serdes.contract import NO_READER, Comparable, EngineSerde, Readers, Serde

_BYTES = "a pyarrow.LargeBinaryArray, as pa.array(rows, pa.large_binary()) gives"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OwnSerde(EngineSerde):
    """A serde that is not of crossstream. It is equal to what was ``given``, and has its other attributes too."""

    given: Any

    def __eq__(self, other: object) -> bool:
        theirs = other.given if isinstance(other, OwnSerde) else other
        return self.given is theirs or bool(self.given == theirs)

    def __hash__(self) -> int:
        return hash(self.given)

    def __repr__(self) -> str:
        return repr(self.given)

    def __getattr__(self, name: str) -> Any:
        if name == "given" or name.startswith("__"):  # while it is unpickled or copied
            raise AttributeError(name)
        return getattr(self.given, name)

    @property
    def name(self) -> str:
        name: str = self.given.name
        return name

    @property
    def dtype(self) -> pl.DataType | None:
        dtype: pl.DataType | None = self.given.dtype
        return dtype

    @property
    def varied(self) -> bool:
        return bool(getattr(self.given, "varied", False))

    @property
    def unfit_for_keys(self) -> str | None:
        fault = getattr(self.given, "unfit_for_keys", None)
        return fault if isinstance(fault, str) else None

    @property
    def classes(self) -> tuple[type | Comparable, ...]:
        given: object = self.given
        plain = () if type(given).__eq__ is object.__eq__ else (Comparable(self),)
        classes: tuple[type | Comparable, ...] = getattr(given, "classes", plain)
        return classes

    @property
    def some_columns(self) -> pl.DataType | None:
        columns: pl.DataType | None = getattr(self.given, "some_columns", None)
        return columns

    @property
    def knows_topics(self) -> bool:
        return None not in (_offered(self.given, "read_from"), _offered(self.given, "written_to"))

    def read_from(self, topic: str | None, is_key: bool) -> EngineSerde:  # type: ignore[override]
        return self._bound("read_from", topic, is_key)

    def written_to(self, topic: str | None, is_key: bool) -> EngineSerde:  # type: ignore[override]
        return self._bound("written_to", topic, is_key)

    def _bound(self, way: str, topic: str | None, is_key: bool) -> EngineSerde:
        return known(getattr(self.given, way)(topic, is_key)) if self.knows_topics else self

    def serialize(self, value: Any) -> bytes | None:
        data = self.given.serialize(value)
        if data is None or isinstance(data, bytes):
            return data
        if not isinstance(data, bytearray | memoryview):
            raise errors.wrong_answer(self.name, "serialize", "bytes or None", data)
        return bytes(data)

    def deserialize(self, data: bytes | None) -> Any:
        return self.given.deserialize(data)

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        data = self.given.encode_objects(values)
        return self._checked("encode_objects", data, pa.LargeBinaryArray, _BYTES, len(values))

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        data = self.given.encode_series(values)
        return self._checked("encode_series", data, pa.LargeBinaryArray, _BYTES, len(values))

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        values = self.given.decode_objects(data)
        found: list[Any] = self._checked("decode_objects", values, list, "a list", len(data))
        return found

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        series = self.given.decode_series(data, fields)
        return self._checked_series("decode_series", series, len(data))

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NO_READER
    ) -> pl.Series:
        decode = _offered(self.given, "decode_checked")
        if decode is None:
            return self.decode_series(data)
        return self._checked_series("decode_checked", decode(data, fields, readers), len(data))

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        find = _offered(self.given, "nulls")
        if find is None:
            return [value is None for value in self.decode_objects(data)]
        nulls: Sequence[bool] = find(data)
        return nulls

    def _checked_series(self, method: str, series: Any, rows: int) -> pl.Series:
        found: pl.Series = self._checked(method, series, pl.Series, "a polars.Series", rows)
        return found

    def _checked(self, method: str, given: Any, kind: type, wanted: str, rows: int) -> Any:
        """What the method gave, if it is of this kind and has so many rows; else CS-412."""
        if not isinstance(given, kind):
            raise errors.wrong_answer(self.name, method, wanted, given)
        if len(given) != rows:  # type: ignore[arg-type]
            raise errors.wrong_count(self.name, method, rows, len(given))  # type: ignore[arg-type]
        return given


def _offered(given: Any, name: str) -> Any:
    """An optional method of a serde; None if it has not one, or has only a default that one of our serdes lends it."""
    method = getattr(given, name, None)
    lent = getattr(method, "__func__", None) is getattr(EngineSerde, name)
    return None if lent else method


def known(serde: Serde) -> EngineSerde:
    """The serde as the engine asks it: one of crossstream, or a user's, wrapped."""
    return serde if isinstance(serde, EngineSerde) else OwnSerde(serde)


def check_key_serde(serde: Serde | None) -> None:
    """Raises `SerdeError` (CS-404) for a serde that cannot serve keys, because keys are equal by their bytes."""
    fault = None if serde is None else known(serde).unfit_for_keys
    if serde is not None and fault is not None:
        raise errors.unfit_for_keys(serde.name, fault)


def columns_in(serde: Serde | None) -> pl.DataType | None:
    """The type of the columns that expressions can read; None: none is declared."""
    return None if serde is None else known(serde).columns


Identity: TypeAlias = tuple[str, tuple[type | Comparable, ...]]
"""The name of a serde, and what is behind it."""


def identity(serde: Serde) -> Identity:
    """What two serdes of one process have in common if they mean the same: their name, and what is behind it.

    That is the classes of their values, or the serde, if its class has an ``__eq__``. Two of a class that has none are
    never equal, and it is usual to make two for one topology.
    """
    return serde.name, known(serde).classes


def alike(one: Serde, other: Serde) -> bool:
    """Whether two serdes of one process mean the same."""
    return identity(one) == identity(other)


def names_apart(one: Serde, other: Serde) -> tuple[str, str]:
    """The names of two serdes in a message about their difference."""
    if one.name != other.name:
        return one.name, other.name
    pairs = zip_longest(known(one).classes, known(other).classes)
    pair = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
    mine, theirs = map(_part_name, pair)
    if mine == theirs:
        theirs += ", another one" if isinstance(pair[1], Comparable) else ", another class of that name"
    return f"{one.name} ({mine})", f"{other.name} ({theirs})"


def _part_name(part: type | Comparable | None) -> str:
    if isinstance(part, Comparable):
        return repr(part.serde)
    return "no class" if part is None else f"{part.__module__}.{part.__qualname__}"
