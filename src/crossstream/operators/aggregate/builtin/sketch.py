"""About how many different values there are: HyperLogLog with 2,048 registers.

The standard error is 1.04 / √2048, or 2.3 %. Up to some hundred values the number is nearly always exact, for then
empty registers are counted (linear counting). A register that is not empty is 16 bits of state: eleven for its
number, five for the longest run of zeros that it has seen. Source: Flajolet et al., 2007.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.hashing import hash_keys
from crossstream.operators.aggregate.builtin.cells import to_cells
from crossstream.operators.aggregate.builtin.parts import PartRows, State
from crossstream.serdes import arrays
from crossstream.storage.sorted_run import begins_of

_BITS = 11
_REGISTERS = 1 << _BITS
_RANK_BITS = 5
_MOST = (1 << _RANK_BITS) - 1
_ALPHA = 0.7213 / (1 + 1.079 / _REGISTERS)


@dataclass(frozen=True, slots=True)
class Sketched:
    """About how many different values there are."""

    kinds: tuple[str, ...] = ("bytes",)

    def run(self, items: pl.Series | None, rows: PartRows, before: State) -> tuple[pl.Series, State]:
        assert items is not None
        kept = np.flatnonzero(items.is_not_null().to_numpy())
        return self._run(hashed(to_cells(items.gather(kept))), kept, rows, before)

    def _run(
        self, entries: np.ndarray, places: np.ndarray, rows: PartRows, before: State
    ) -> tuple[pl.Series, State]:
        held, owner = entries_of(before[0])
        registers = running_registers(
            np.concatenate([owner, rows.group[places]]),
            np.concatenate([held, entries]),
            np.concatenate([rows.starts[owner], places]),
        )
        numbers = np.zeros((2, len(rows.begins)), np.int64)
        np.add.at(numbers[0], registers.places, registers.weights)
        np.add.at(numbers[1], registers.places, registers.filled)
        none = np.zeros(len(rows.starts), np.int64)
        weights, filled = (rows.so_far(one, none)[rows.picked] for one in numbers)
        return pl.Series(estimate(weights, filled)), [packed(registers, len(rows.starts))]

    def result(self, state: State) -> pl.Series:
        begins = np.ones(len(state[0]), bool)
        nothing = np.empty(0, np.int64)
        return self._run(nothing.astype(np.uint16), nothing, PartRows.of(begins), state)[0]

    def merged(self, left: State, right: State) -> State:
        entries, owner = entries_of(right[0])
        rows = PartRows.of(np.ones(len(left[0]), bool))
        return self._run(entries, owner, rows, left)[1]


@dataclass(frozen=True, slots=True)
class Registers:
    """How entries change the registers of their groups.

    ``places``: where a register changes; ``weights``: by how much the sum of 2**(31 − rank) changes there; ``filled``:
    1 where it was empty. ``groups``, ``last``: the registers at the end, as entries in order of their groups.
    """

    places: np.ndarray
    weights: np.ndarray
    filled: np.ndarray
    groups: np.ndarray
    last: np.ndarray


def hashed(cells: pa.LargeBinaryArray) -> np.ndarray:
    """The entry of each value: the number of its register, and its rank."""
    hashes = hash_keys(cells)
    register = hashes >> np.uint64(64 - _BITS)
    rest = hashes << np.uint64(_BITS) >> np.uint64(_BITS)  # 53 bits, so a float holds it
    zeros = 64 - _BITS - np.frexp(rest.astype(np.float64))[1]
    rank = np.minimum(zeros + 1, _MOST).astype(np.uint64)
    return np.asarray(register << np.uint64(_RANK_BITS) | rank, np.uint16)


def running_registers(groups: np.ndarray, entries: np.ndarray, places: np.ndarray) -> Registers:
    """What entries change, one after the other; of one group in order of their places."""
    register, rank = (entries >> _RANK_BITS).astype(np.int64), (entries & _MOST).astype(np.int64)
    code = groups * _REGISTERS + register
    order = np.lexsort((np.arange(len(code)), places, code))
    code, rank, places = code[order], rank[order], places[order]
    begins = begins_of(code)
    lift = np.cumsum(begins) * (_MOST + 1)
    best = np.maximum.accumulate(rank + lift) - lift
    before = np.where(begins, 0, np.append(0, best[:-1])[: len(best)])
    ends = np.flatnonzero(np.append(begins[1:], True)[: len(code)])
    changed = np.flatnonzero(best > before)
    return Registers(
        places[changed],
        (1 << (_MOST - best[changed])) - (1 << (_MOST - before[changed])),
        (before[changed] == 0).astype(np.int64),
        code[ends] // _REGISTERS,
        ((code[ends] % _REGISTERS) << _RANK_BITS | best[ends]).astype(np.uint16),
    )


def estimate(weights: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """The numbers of different values. ``weights``, ``filled``: the sums of those columns of `Registers` so far."""
    total = (weights + (_REGISTERS << _MOST)) / float(1 << _MOST)
    raw = _ALPHA * _REGISTERS * _REGISTERS / total
    empty = _REGISTERS - filled
    counted = _REGISTERS * np.log(_REGISTERS / np.maximum(empty, 1))
    return np.asarray(np.rint(np.where((raw <= 2.5 * _REGISTERS) & (empty > 0), counted, raw)), np.int64)


def packed(registers: Registers, groups: int) -> pa.LargeBinaryArray:
    """The registers of each group as bytes."""
    positions = np.searchsorted(registers.groups, np.arange(groups + 1)) * 2
    return arrays.binary_array(
        positions.astype(np.int64), np.ascontiguousarray(registers.last).view(np.uint8)
    )


def entries_of(cells: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """The entries of all groups, and the number of the group of each."""
    dense = cells.fill_null(b"") if cells.null_count else cells
    positions = arrays.offsets(dense)
    counts = np.diff(positions) // 2
    rows = arrays.content(dense)[positions[0] : positions[-1]]
    return np.frombuffer(rows.tobytes(), np.uint16), np.repeat(np.arange(len(counts)), counts)
