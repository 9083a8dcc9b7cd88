"""Rows of stores made of plain values, for the tests of the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import hash_keys
from crossstream.storage.files import Written, whole
from crossstream.storage.sorted_run import Run

KEYS = [b"%d" % n for n in range(6)]


def binary(values: Sequence[bytes | None]) -> pa.LargeBinaryArray:
    return pa.array(list(values), pa.large_binary())


def key_value_rows(rows: Mapping[bytes, bytes | None], bits: int = 64) -> dict[str, Any]:
    """Rows of a key-value store; None deletes."""
    keys = binary(list(rows))
    return {
        "h": hash_keys(keys, bits),
        "key": keys,
        "value": binary(list(rows.values())),
        "ts": np.full(len(rows), 7),
        "gone": np.array([value is None for value in rows.values()], np.uint8),
    }


def subscription_rows(rows: Mapping[tuple[bytes, bytes], bytes | None], bits: int = 64) -> dict[str, Any]:
    """Rows by (foreign key, primary key)."""
    keys, seconds = (binary([pair[n] for pair in rows]) for n in (0, 1))
    return {
        "h": hash_keys(keys, bits),
        "s": hash_keys(seconds, bits),
        "key": keys,
        "key2": seconds,
        "value": binary(list(rows.values())),
        "ts": np.full(len(rows), 7),
        "gone": np.array([value is None for value in rows.values()], np.uint8),
    }


def version_rows(rows: Mapping[tuple[bytes, int], bytes | None], bits: int = 64) -> dict[str, Any]:
    """Rows by (key, timestamp); a null value is a version too."""
    keys = binary([key for key, _ in rows])
    return {
        "h": hash_keys(keys, bits),
        "s": np.array([ts for _, ts in rows], np.int64),
        "key": keys,
        "value": binary(list(rows.values())),
        "gone": np.zeros(len(rows), np.uint8),
    }


def window_rows(rows: Sequence[tuple[bytes, int]], first: int, bits: int = 64) -> dict[str, Any]:
    """Records by (key, timestamp), which nothing replaces, numbered from ``first`` on."""
    keys = binary([key for key, _ in rows])
    return {
        "h": hash_keys(keys, bits),
        "s": np.array([ts for _, ts in rows], np.int64),
        "key": keys,
        "n": np.arange(first, first + len(rows), dtype=np.uint64),
        "value": keys,
        "headers": binary([None] * len(rows)),
        "alone": np.zeros(len(rows), np.uint8),
        "gone": np.zeros(len(rows), np.uint8),
    }


def keys_of(run: Run) -> list[bytes]:
    found: list[bytes] = run["key"].to_pylist()
    return found


@dataclass(frozen=True, slots=True)
class Memory:
    """A `Storage` whose files live as long as the process."""

    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, name: str, data: Written) -> None:
        self.files[name] = bytes(whole(data))

    def read(self, name: str, *, original: bool = False) -> pa.Buffer:
        if name not in self.files:
            raise FileNotFoundError(name)
        return pa.py_buffer(self.files[name])
