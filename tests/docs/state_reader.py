"""A reader of state folders that knows docs/spec/state-format.md and nothing of crossstream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import xxhash

COLUMNS = {
    "key-value": {"h": "uint64", "key": "bytes", "value": "bytes?", "ts": "int64", "gone": "uint8"},
    "versioned": {"h": "uint64", "s": "int64", "key": "bytes", "value": "bytes?", "gone": "uint8"},
    "references": {"h": "uint64", "key": "bytes", "reference": "bytes?", "ts": "int64", "gone": "uint8"},
    "subscriptions": {
        "h": "uint64", "s": "uint64", "key": "bytes", "key2": "bytes", "value": "bytes?", "ts": "int64",
        "gone": "uint8",
    },
    "referrers": {"h": "uint64", "key": "bytes", "count": "int64", "gone": "uint8"},
    "references(other)": {"h": "uint64", "key": "bytes", "reference other": "bytes?", "gone": "uint8"},
    "rows(other)": {
        "h": "uint64", "key": "bytes", "value": "bytes?", "ts": "int64", "reference other": "bytes?",
        "gone": "uint8",
    },
    "index": {"h": "uint64", "s": "uint64", "key": "bytes", "key2": "bytes", "gone": "uint8"},
    "interested": {"h": "uint64", "s": "uint64", "key": "bytes", "key2": "bytes", "gone": "uint8"},
    "windowed": {
        "h": "uint64", "s": "int64", "key": "bytes", "value": "bytes?", "ts": "int64", "gone": "uint8",
    },
    "windowed-sessions": {
        "h": "uint64", "s": "int64", "key": "bytes", "value": "bytes?", "ts": "int64", "start": "int64",
        "gone": "uint8",
    },
    "window": {
        "h": "uint64", "s": "int64", "key": "bytes", "n": "uint64", "value": "bytes?", "headers": "bytes?",
        "alone": "uint8", "gone": "uint8",
    },
    "waiting": {"h": "uint64", "s": "int64", "key": "bytes", "n": "uint64", "side": "uint8", "gone": "uint8"},
    "buffer": {
        "h": "uint64", "s": "int64", "key": "bytes", "n": "uint64", "value": "bytes?", "headers": "bytes?",
        "gone": "uint8",
    },
    "suppressed": {
        "h": "uint64", "s": "int64", "key": "bytes", "key2": "bytes", "value": "bytes?", "old": "bytes?",
        "ts": "int64", "size": "int64", "headers": "bytes?", "gone": "uint8",
    },
    "deduplicated": {"h": "uint64", "s": "int64", "key": "bytes", "gone": "uint8"},
}  # fmt: skip
TYPES = {
    "uint64": pa.uint64(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "bytes": pa.large_binary(),
    "bytes?": pa.large_binary(),
}
IDENTITY = {
    "key-value": ("key",),
    "versioned": ("key", "s"),
    "references": ("key",),
    "subscriptions": ("key", "key2"),
    "referrers": ("key",),
    "references(other)": ("key",),
    "rows(other)": ("key",),
    "index": ("key", "key2"),
    "interested": ("key", "key2"),
    "windowed": ("key", "s"),
    "windowed-sessions": ("key", "s"),
    "window": ("key", "s", "n"),
    "waiting": ("key", "s", "n"),
    "buffer": ("key", "s", "n"),
    "suppressed": ("key", "key2", "s"),
    "deduplicated": ("key", "s"),
}
EXPIRING = ("windowed", "windowed-sessions", "window", "waiting", "buffer", "suppressed", "deduplicated")

Row = dict[str, Any]


class Damaged(Exception):
    """A file that is missing or fails its check."""


def hash_of(key: bytes) -> int:
    return xxhash.xxh64_intdigest(key, seed=42)


def checksum(data: bytes) -> str:
    return f"{xxhash.xxh3_64_intdigest(data):016x}"


def read_sealed(path: Path) -> dict[str, Any]:
    """The content of a file of the batch log."""
    data = path.read_bytes()
    head, digest, middle, content, end = data[:13], data[13:29], data[29:41], data[41:-1], data[-1:]
    if (head, middle, end) != (b'{"checksum":"', b'","content":', b"}") or digest.decode() != checksum(
        content
    ):
        raise Damaged(path.name)
    found: dict[str, Any] = json.loads(content)
    return found


@dataclass
class StateFolder:
    """A state folder, read as the page says."""

    root: Path
    application: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.application = read_sealed(self.root / "application.json")
        assert self.application["format"] == 2

    def partitions(self, batch: int) -> int:
        """The number of state partitions after a batch."""
        return self.commit(batch)["partitions"]

    def batches(self) -> list[int]:
        names = (path.name for path in (self.root / "commits").iterdir())
        return sorted(int(name[:12]) for name in names if not name.endswith(".tmp"))

    def commit(self, batch: int) -> dict[str, Any]:
        found = read_sealed(self.root / "commits" / f"{batch:012d}.json")
        assert found["id"] == batch
        return found

    def kind(self, store: str) -> str:
        return self.application["stores"][store].split("/")[0]

    def rows(self, store: str, batch: int) -> Iterator[tuple[int, Row]]:
        """Partition and row, of all rows there are after a batch."""
        versions = self.commit(batch)["versions"].get(store, {})
        for partition, name in versions.items():
            folder = self.root / "stores" / quote(store, safe="") / partition
            for row in read_partition(folder, name, self.kind(store)):
                yield int(partition), row

    def table(self, store: str, batch: int) -> dict[bytes, bytes]:
        """A key-value store, or the newest versions of a versioned one."""
        newest: dict[bytes, Row] = {}
        for _, row in self.rows(store, batch):
            known = newest.get(row["key"])
            if known is None or row.get("s", 0) >= known.get("s", 0):
                newest[row["key"]] = row
        return {key: row["value"] for key, row in newest.items() if row["value"] is not None}


def read_partition(folder: Path, name: str, kind: str) -> Iterator[Row]:
    manifest = read_manifest(folder / name)
    assert manifest["kind"] == kind
    seen: set[tuple[Any, ...]] = set()
    for pieces, *_ in manifest["slots"]:
        above = (-1, 0)
        in_slot: set[tuple[Any, ...]] = set()
        for file, start, stop, low, high, size, digest, times, *_ in pieces:
            rows = read_run(folder / file, kind, size, digest)[start:stop]
            assert (times is not None) == (COLUMNS[kind].get("s") == "int64")
            assert times is None or all(times[0] <= row["s"] <= times[1] for row in rows)
            assert (rows[0]["h"], rows[-1]["h"]) == (low, high)
            assert above < place_of(rows[0]) <= place_of(rows[-1])
            above = place_of(rows[-1])
            for row in rows:
                identity = tuple(row[name] for name in IDENTITY[kind])
                assert identity not in in_slot
                in_slot.add(identity)
                expired = kind in EXPIRING and row["s"] < manifest["horizon"]
                if identity not in seen and row["gone"] == 0 and not expired:
                    yield row
        seen |= in_slot


def place_of(row: Row) -> tuple[int, int]:
    return row["h"], row.get("s", 0)


def read_manifest(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise Damaged(path.name)
    first, _, rest = path.read_bytes().partition(b"\n")
    if first.decode("ascii", "replace") != checksum(rest):
        raise Damaged(path.name)
    manifest: dict[str, Any] = json.loads(rest)
    assert (manifest["format"], manifest["name"]) == (2, path.name)
    return manifest


def read_run(path: Path, kind: str, size: int, digest: str) -> list[Row]:
    if not path.exists():
        raise Damaged(path.name)
    data = path.read_bytes()
    if len(data) != size or checksum(data) != digest:
        raise Damaged(path.name)
    with pa.ipc.open_file(data) as reader:
        assert reader.num_record_batches == 1
        batch = reader.get_batch(0)
    wanted = COLUMNS[kind]
    assert batch.schema.names == list(wanted)
    assert batch.schema.types == [TYPES[column] for column in wanted.values()]
    assert all(batch.column(name).null_count == 0 for name, column in wanted.items() if column != "bytes?")
    rows: list[Row] = batch.to_pylist()
    assert all(row["h"] == hash_of(row["key"]) for row in rows)
    assert kind != "subscriptions" or all(row["s"] == hash_of(row["key2"]) for row in rows)
    order = [place_of(row) for row in rows]
    assert order == sorted(order)
    return rows
