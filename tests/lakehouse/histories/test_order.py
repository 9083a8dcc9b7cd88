"""The rows of a history come in the order of offsets, each once, whatever the files of the table are like.

> read(ranges) = the rows of the ranges, by partition in order of offsets, without doubles

Random rows in random pieces, whose bounds are known or not. Nothing is kept in memory longer than its order needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream.errors import SourceError
from crossstream.graph.history import History
from crossstream.graph.lake import LakeTable
from crossstream.lakehouse.history_order import InOrder
from crossstream.lakehouse.seams import found_seam
from crossstream.lakehouse.versions import Piece
from tests.laws.effort import cases

SCHEMA = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("name", pa.large_string())])
HISTORY = History(LakeTable("delta", "t", SCHEMA, (), ("name",)), ("partition", "offset"))
Rows = list[tuple[Any, Any]]


@dataclass
class Versions:
    """A table of pieces in memory. ``known``: whether the bounds of each piece are; ``parts``: rows of its parts."""

    pieces_: list[Rows]
    known: list[bool]
    parts: int = 3
    most: int = 0
    held: int = 0

    def table_id(self) -> str:
        return "t"

    def newest(self) -> int:
        return 4

    def pieces(self, version: int, numbers: Sequence[str]) -> list[Piece]:
        assert version == 4
        return [self._piece(rows, known) for rows, known in zip(self.pieces_, self.known, strict=True)]

    def finer(self, version: int, piece: Piece, numbers: Sequence[str]) -> list[Piece]:
        known = bool(piece.low)
        rows = piece.place
        return [
            self._piece(rows[start : start + self.parts], known) for start in range(0, len(rows), self.parts)
        ]

    def rows_of(self, version: int, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.held += len(piece.place)
        self.most = max(self.most, self.held)
        partitions, offsets = zip(*piece.place, strict=True)
        names = [None if None in row else f"{row[0]}/{row[1]}" for row in piece.place]
        found = pa.RecordBatch.from_arrays([pa.array(c) for c in (partitions, offsets, names)], schema=SCHEMA)
        yield found.select([name for name in SCHEMA.names if name in columns])

    def _piece(self, rows: Rows, known: bool) -> Piece:
        if not known or not rows:
            return Piece(rows, len(rows))
        partitions, offsets = zip(*rows, strict=True)
        columns = {"partition": partitions, "offset": offsets}
        low, high = ({name: int(best(column)) for name, column in columns.items()} for best in (min, max))
        return Piece(rows, len(rows), low, high)


places = st.tuples(st.integers(0, 2), st.integers(0, 30))
tables = st.lists(st.lists(places, min_size=1, max_size=8), max_size=6)
ranges = st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 30), st.integers(0, 32)), max_size=4)


@given(pieces=tables, known=st.booleans(), wanted=ranges, most=st.integers(1, 9))
@cases(10)
def test_rows_are_in_order_and_come_once(
    pieces: list[Rows], known: bool, wanted: dict[int, tuple[int, int]], most: int
) -> None:
    versions: Any = Versions(pieces, [known] * len(pieces))
    found: dict[int, list[int]] = {number: [] for number in wanted}
    for number, offsets, rows in InOrder(versions, HISTORY, 4, wanted, ("name",), most).read():
        assert 0 < rows.num_rows <= most
        assert rows.column("name").to_pylist() == [f"{number}/{offset}" for offset in offsets]
        found[number] += offsets.tolist()
    there = {row for piece in pieces for row in piece}
    assert found == {
        number: [offset for offset in range(start, end) if (number, offset) in there]
        for number, (start, end) in wanted.items()
    }


@given(pieces=tables, known=st.booleans())
@cases(3)
def test_a_seam_is_after_the_last_row(pieces: list[Rows], known: bool) -> None:
    versions: Any = Versions(pieces, [known] * len(pieces))
    seam = found_seam(HISTORY, versions)
    rows = [row for piece in pieces for row in piece]
    partitions = sorted({number for number, _ in rows})
    assert seam.begins == {n: min(at for one, at in rows if one == n) for n in partitions}
    assert seam.ends == {n: max(at for one, at in rows if one == n) + 1 for n in partitions}
    assert (seam.table_id, seam.version) == ("t", 4)


def test_a_table_that_is_written_as_its_topic_is_has_few_rows_in_memory() -> None:
    pieces: list[Rows] = [[(0, at) for at in range(start, start + 10)] for start in range(0, 1_000, 10)]
    versions: Any = Versions(pieces, [True] * len(pieces), parts=10)
    for _, offsets, _ in InOrder(versions, HISTORY, 4, {0: (0, 1_000)}, ("name",), 20).read():
        versions.held -= len(offsets)
    assert versions.most <= 60


@pytest.mark.parametrize("row", [(None, 3), (0, None), (-1, 3), (0, -3)])
def test_a_row_without_a_place_is_refused(row: tuple[int | None, int | None]) -> None:
    versions: Any = Versions([[(0, 1), row]], [False])
    with pytest.raises(SourceError, match="no place before the topic") as caught:
        list(InOrder(versions, HISTORY, 4, {0: (0, 9)}, ("name",), 9).read())
    assert caught.value.code == "CS-631"


def test_offsets_are_whole_numbers_of_64_bits() -> None:
    big = 2**53 + 1
    versions: Any = Versions([[(0, big), (0, big + 1)]], [True])
    ((_, offsets, _),) = InOrder(versions, HISTORY, 4, {0: (0, 2**62)}, ("name",), 9).read()
    assert offsets.tolist() == [big, big + 1]
    assert offsets.dtype == np.int64
