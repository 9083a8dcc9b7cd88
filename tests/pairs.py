"""A serde as a user writes one, and ways to spoil what its methods give."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

WORDS = pl.List(pl.String)


def as_it_is(answer: Any) -> Any:
    return answer


@dataclass(frozen=True)
class Pair:
    """Two words, with a comma between them; raises what Python raises. ``bent``: what becomes of answers."""

    bent: tuple[tuple[str, Callable[[Any], Any]], ...] = ()
    name: str = "pair"
    dtype: pl.DataType | None = WORDS

    def _answer(self, method: str, answer: Any) -> Any:
        return dict(self.bent).get(method, as_it_is)(answer)

    def serialize(self, value: Any) -> Any:
        if value is None:
            return None
        left, right = value
        return self._answer("serialize", f"{left},{right}".encode())

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        left, right = data.decode().split(",")
        return [left, right]

    def encode_objects(self, values: Sequence[Any]) -> Any:
        rows = pa.array(
            [None if v is None else ",".join(map(str, v)).encode() for v in values], pa.large_binary()
        )
        for value in values:
            self.serialize(value)
        return self._answer("encode_objects", rows)

    def decode_objects(self, data: pa.LargeBinaryArray) -> Any:
        return self._answer("decode_objects", [self.deserialize(row) for row in data.to_pylist()])

    def encode_series(self, values: pl.Series) -> Any:
        return self._answer("encode_series", self.encode_objects(values.to_list()))

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> Any:
        rows = pl.Series([self.deserialize(row) for row in data.to_pylist()], dtype=pl.List(pl.String))
        return self._answer("decode_series", rows)


def raises(error: Exception) -> Callable[[Any], Any]:
    def bend(answer: Any) -> Any:
        raise error

    return bend


def bent(**answers: Callable[[Any], Any]) -> Pair:
    return Pair(tuple(answers.items()))
