"""JSON that asks for more than its bytes: it is read or refused at once, and never ends the process."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crossstream import SerdeError, serdes


@dataclass(frozen=True)
class Tree:
    id: int
    parts: list[Tree] = field(default_factory=list)


@dataclass(frozen=True)
class Price:
    d: Decimal
    note: str | None = None


SERDES = (
    serdes.json(),
    serdes.json(Tree),
    serdes.json(Price),
    serdes.json(Decimal),
    serdes.json(int),
    serdes.json({"d": pl.Decimal(38, 2), "parts": pl.List(pl.Struct({"a": pl.Int64}))}),
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "row",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"id":1,"parts":[' * 20_000,
        b'{"d":1e1000000000}',
        b'{"d":1e-1000000000}',
        b'{"d":"-1e-999999999"}',
        b'{"d":0e-1000000000}',
        b'{"d":1' + b"0" * 100_000 + b"}",
        b"1" * 100_000,
        b"1e999999999",
        b'"1e-999999999"',
    ],
)
@pytest.mark.parametrize("rows", [1, 100])
def test_read_or_refused_at_once(row: bytes, rows: int) -> None:
    begin = time.process_time()
    for serde in SERDES:
        data = pa.array([row] * rows, pa.large_binary())
        for read in (serde.decode_objects, serde.decode_series):
            try:
                found: Any = read(data)  # type: ignore[operator]
            except SerdeError:
                continue
            assert len(found) == rows
    assert time.process_time() - begin < 20
