"""Keys made of keys of other serdes; and those of either of two tables, for right and outer joins by foreign key.

    00 <bytes of the left key>      the row of a left key
    01 <bytes of the right key>     the row of a right key that no left row refers to

So all rows of left keys come before all rows of right keys, each in the order of its own serialised keys. Source:
decision 0018.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.serdes import arrays, errors
from crossstream.serdes.contract import Comparable, EngineSerde, OneByOne
from crossstream.serdes.description import Described

LEFT, RIGHT = 0, 1
_WANTED = "LeftOrRight(left=…) or LeftOrRight(right=…), exactly one of them set"

C = TypeVar("C", bound="Composite")


class Composite(EngineSerde, ABC):
    """Keys made of keys of other serdes (``inner_serdes``): what these say of their classes, texts and topics."""

    __slots__ = ()

    @property
    @abstractmethod
    def inner_serdes(self) -> tuple[EngineSerde, ...]:
        """The other serdes."""

    @abstractmethod
    def made_of(self: C, *inner: EngineSerde) -> C:
        """The same, of others."""

    @property
    def varied(self) -> bool:
        return any(one.varied for one in self.inner_serdes)

    @property
    def classes(self) -> tuple[type | Comparable, ...]:
        return tuple(chain.from_iterable(one.classes for one in self.inner_serdes))

    @property
    def unfit_for_keys(self) -> str | None:
        return next(filter(None, (one.unfit_for_keys for one in self.inner_serdes)), None)

    @property
    def knows_topics(self) -> bool:
        return True

    def read_from(self: C, topic: str | None, is_key: bool) -> C:
        return self.made_of(*(one.read_from(topic, is_key) for one in self.inner_serdes))

    def written_to(self: C, topic: str | None, is_key: bool) -> C:
        return self.made_of(*(one.written_to(topic, is_key) for one in self.inner_serdes))


class LeftOrRight(NamedTuple):
    """A key of one of two tables; the other one is None. Equal to the plain pair ``(left, right)``.

    >>> LeftOrRight(left="o1")
    LeftOrRight(left='o1', right=None)
    >>> LeftOrRight(left="o1") == ("o1", None)
    True
    """

    left: Any = None
    right: Any = None


@dataclass(frozen=True, slots=True)
class LeftOrRightSerde(Composite, OneByOne):
    """`LeftOrRight` keys: a byte for the table, and the key in the key serde of that table."""

    left: EngineSerde
    right: EngineSerde

    @property
    def name(self) -> str:
        return f"left_or_right[{self.left.name}, {self.right.name}]"

    @property
    def dtype(self) -> pl.DataType | None:
        left, right = self.left.dtype, self.right.dtype
        return None if left is None or right is None else pl.Struct({"left": left, "right": right})

    @property
    def inner_serdes(self) -> tuple[EngineSerde, ...]:
        return self.left, self.right

    def made_of(self, *inner: EngineSerde) -> LeftOrRightSerde:
        left, right = inner
        return LeftOrRightSerde(left, right)

    def described(self) -> Described:
        return Described(self.name, "left_or_right", sides=(self.left.described(), self.right.described()))

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        left, right = self._sides(value)
        tag = LEFT if right is None else RIGHT
        data = self.left.serialize(left) if right is None else self.right.serialize(right)
        if data is None:
            raise errors.wrong_type(self.name, value, _WANTED, "set the key of one of the two tables")
        return bytes([tag]) + data

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        tag = data[:1]
        if tag == b"\x00":
            return LeftOrRight(left=self.left.deserialize(data[1:]))
        if tag == b"\x01":
            return LeftOrRight(right=self.right.deserialize(data[1:]))
        raise errors.undecodable(self.name, "the first byte is neither 0 nor 1", data)

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        there, is_left, keys = self._split(data)
        lefts = iter(self.left.decode_objects(keys.filter(pa.array(is_left))))
        rights = iter(self.right.decode_objects(keys.filter(pa.array(~is_left))))
        sides = iter(is_left.tolist())
        return [
            (LeftOrRight(left=next(lefts)) if next(sides) else LeftOrRight(right=next(rights)))
            if row
            else None
            for row in there.tolist()
        ]

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        names = (
            {field.name for field in values.dtype.fields} if isinstance(values.dtype, pl.Struct) else set()
        )
        if names != {"left", "right"}:
            wanted, next = (
                "structs with the fields left and right",
                "make one with pl.struct(left=…, right=…)",
            )
            raise errors.wrong_column(self.name, values.dtype, wanted, next)
        left, right = values.struct.field("left"), values.struct.field("right")
        wrong = values.is_not_null() & (left.is_null() == right.is_null())
        if wrong.any():
            self._sides(tuple(values.filter(wrong)[0].values()))
        lefts, rights = self.left.encode_series(left), self.right.encode_series(right)
        return pc.coalesce(arrays.with_first_byte(LEFT, lefts), arrays.with_first_byte(RIGHT, rights))

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        there, is_left, keys = self._split(data)
        sides = []
        for name, serde, mine in (("left", self.left, is_left), ("right", self.right, ~is_left)):
            rows = there.copy()
            rows[there] = mine
            decoded = serde.decode_series(keys.filter(pa.array(mine)))
            sides.append(arrays.series_with_nulls(decoded, rows).alias(name))
        struct = pl.DataFrame(sides).to_struct("key")
        if there.all():
            return struct
        return pl.select(pl.when(pl.Series(there)).then(struct).alias("key")).to_series()

    def _sides(self, value: Any) -> tuple[Any, Any]:
        pair = tuple(value) if isinstance(value, tuple | list) else ()
        if len(pair) != 2 or (pair[0] is None) == (pair[1] is None):
            raise errors.wrong_type(self.name, value, _WANTED, "set the key of one of the two tables")
        return pair

    def _split(self, data: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray, pa.LargeBinaryArray]:
        """Which rows are not null; of these, which belong to the left table, and their bytes without the tag."""
        there = arrays.validity(data)
        split = arrays.without_first_byte(data if there is None else data.drop_null())
        if split is None or (split[0] > RIGHT).any():
            raise errors.undecodable(self.name, "the first byte is neither 0 nor 1")
        return np.ones(len(data), bool) if there is None else there, split[0] == LEFT, split[1]
