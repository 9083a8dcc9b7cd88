"""What travels between rounds: a handful of Arrow blobs per task and target partition.

A block is (target round, exchange, sender, sequence, blob). Spark shuffles blocks by state partition and never
looks inside. Receivers sort them by exchange, sender and sequence, so the order in which a shuffle
delivers them changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from operator import index
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.evaluate import call_rows
from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import type_and_text
from crossstream.planning.plan import Exchange, Partitioner
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import from_record_batch, take, to_record_batch, valid
from crossstream.storage.files import FEW, BufferList, whole

Block = tuple[int, int, int, int, Any]
"""The blob is bytes, gathered or as a buffer, or, on the way, the place where it lies (`spark/shuffle_spill.py`).

Within a process, few rows go from round to round as `Changes`.
"""

Place = Callable[[int], dict[str, Any]]
"""Operator, line, topic, partition, offset and key of a row, as far as they are known."""

HANDED = 512
"""Rows up to which changes are not packed within a process; more are, to be taken in slices.

Decision 0029.
"""

REPORT = -1
"""Exchange number of a block that holds a task's report."""
FRAME = -2
"""Exchange number of a block for the driver: records of a `FrameSink`."""

NONE = np.empty(0, np.uint64)
"""No hashes."""
_NO_ROWS = np.empty(0, np.int64)

_HEAD = ("key", "value", "ts", "major", "minor")
_DECODED = "decoded"
"""The column with what is decoded of the values."""


def pack(
    changes: Changes, value_serde: EngineSerde | None, key_serde: EngineSerde | None
) -> bytes | BufferList:
    """Changes as a schema and a record batch in Arrow's IPC form; values in wire form, and what is decoded of them."""
    columns = {
        "key": changes.key.wire(key_serde),
        "value": changes.value.wire(value_serde),
        "ts": changes.ts,
        "major": changes.major,
        "minor": changes.minor,
    }
    if changes.headers is not None:
        columns["headers"] = changes.headers
    if changes.old is not None:
        columns["old"] = changes.old.wire(value_serde)
    fields = changes.value.decoded()
    if fields is not None and _can_travel(fields):
        columns[_DECODED] = fields.to_arrow()
    columns.update({f"+{name}": column for name, column in changes.extra.items()})
    batch = to_record_batch(columns)
    schema = batch.schema.serialize()
    size = schema.size.to_bytes(8, "little")
    if batch.num_rows <= FEW:
        return b"".join((size, schema, batch.serialize()))
    blob = BufferList()
    blob.write(size)
    pa.ipc.new_stream(blob, batch.schema).write_batch(batch)
    return blob


def unpack(blobs: Sequence[Any], key: EngineSerde | None, value: EngineSerde | None) -> Changes:
    """The changes of several blobs, one after the other."""
    parts = []
    for blob in blobs:
        if isinstance(blob, Changes):
            parts.append(blob)
            continue
        buffer = pa.py_buffer(whole(blob))
        end = 8 + int.from_bytes(bytes(buffer[:8]), "little")
        batch = pa.ipc.read_record_batch(buffer.slice(end + -end % 8), _schema(bytes(buffer[8:end])))
        parts.append(_changes(from_record_batch(batch), key, value))
    return concat_changes(parts)


def size_of(blob: Any) -> int:
    """Bytes that a blob takes, more or less."""
    return blob.key.wire().nbytes + blob.value.wire().nbytes if isinstance(blob, Changes) else len(blob)


@lru_cache(maxsize=256)
def _schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def _changes(columns: dict[str, Any], key: EngineSerde | None, value: EngineSerde | None) -> Changes:
    wire = {name: columns[name] for name in _HEAD}
    decoded = columns.get(_DECODED)
    series = None if decoded is None else pl.Series(decoded)
    return Changes(
        Values(key, wire=wire["key"]),
        Values(value, wire=wire["value"], fields=series),
        wire["ts"],
        wire["major"],
        wire["minor"],
        columns.get("headers"),
        Values(value, wire=columns["old"]) if "old" in columns else None,
        {name[1:]: column for name, column in columns.items() if name.startswith("+")},
    )


def route(
    changes: Changes,
    exchange: Exchange,
    partitions: int,
    bits: int,
    sender: int,
    place: Callable[[Changes, int], dict[str, Any]],
    near: bool = False,
    hot: np.ndarray = NONE,
) -> Iterator[tuple[int, bytes | BufferList | Changes]]:
    """(state partition, blob) for every partition that gets rows. ``sender``: the one they come from.

    ``place``: where a row is from. ``near``: the receiver is in this process. ``hot``: see `Exchange.spread`.
    """
    if exchange.copies:
        changes = of_hot_keys(changes, exchange.key, hot, bits)
    if not changes.rows:
        return
    key, value, partitioner = exchange.key, exchange.value, exchange.partitioner
    changes = _in_wire_form(changes, key, value, exchange)
    unpacked = near and changes.rows <= HANDED
    if exchange.copies:
        blob = changes if unpacked else pack(changes, value, key)
        yield from ((pid, blob) for pid in range(partitions))
        return
    if exchange.stays or (partitions == 1 and partitioner is None):
        yield 0 if partitions == 1 else sender, changes if unpacked else pack(changes, value, key)
        return
    if exchange.partition_column is not None:
        pids = np.asarray(changes.extra[exchange.partition_column])
    elif partitioner is None:
        hashes = changes.hashes(bits)
        pids = partition_of(hashes, partitions)
        if len(hot) and exchange.second is not None:
            spread = np.flatnonzero(np.isin(hashes, hot))
            second = hash_keys(take(changes.extra[exchange.second], spread), bits)
            pids[spread] = partition_of(second, partitions)
    else:
        pids = chosen_partitions(partitioner, changes.key, partitions, partial(place, changes))
    order = np.argsort(pids.astype(np.uint16 if partitions <= 65535 else np.int64), kind="stable")
    bounds = np.searchsorted(pids[order], np.arange(partitions + 1))
    for pid in range(partitions):
        start, stop = int(bounds[pid]), int(bounds[pid + 1])
        if stop > start:
            rows = changes.take(order[start:stop])
            yield pid, rows if unpacked else pack(rows, value, key)


def of_hot_keys(changes: Changes, key: EngineSerde | None, hot: np.ndarray, bits: int) -> Changes:
    """The rows of keys with these hashes."""
    if not len(hot):
        return changes.take(_NO_ROWS)
    keys = changes.key.wire(key)
    return changes.where(np.isin(hash_keys(keys, bits), hot) & valid(keys))


def _in_wire_form(
    changes: Changes, key: EngineSerde | None, value: EngineSerde | None, exchange: Exchange
) -> Changes:
    """Encoded once, before the rows are spread over the partitions; with columns that travel, if they are decoded."""
    fields = changes.value.decoded(exchange.columns) if exchange.columns else None
    own = (
        changes.value.as_wire(value)
        if fields is None
        else Values(value, wire=changes.value.wire(value), fields=fields)
    )
    old = Values(value, wire=changes.old.wire(value)) if exchange.old and changes.old is not None else None
    return replace(changes, key=Values(key, wire=changes.key.wire(key)), value=own, old=old)


def _can_travel(series: pl.Series) -> bool:
    """Whether columns come out of a block as they go in."""
    arrow = series[:0].to_arrow()
    return _has_no_dictionary(arrow.type) and pl.Series(arrow).dtype == series.dtype


def _has_no_dictionary(kind: pa.DataType) -> bool:
    """Whether all of a column is in its record batch; dictionaries are not."""
    if pa.types.is_dictionary(kind):
        return False
    return all(_has_no_dictionary(kind.field(place).type) for place in range(kind.num_fields))


def chosen_partitions(partitioner: Partitioner, key: Values, partitions: int, place: Place) -> np.ndarray:
    """Where a partitioner of the user (KIP-775) puts each key; null keys: partition 0.

    ``place``: where a row is from, for the error. Raises `ProcessingError` CS-505.
    """
    keys = key.objects()
    given, failures = call_rows(lambda k: 0 if k is None else partitioner(k, partitions), [keys])
    for failure in failures:
        what = f"a partitioner raised {type_and_text(failure.error)}"
        step = "a partitioner takes (key, number of partitions) and returns an int"
        raise refuse("CS-505", what, step, **place(failure.row)) from failure.error
    pids, failures = call_rows(lambda pid: _existing(pid, partitions), [given])
    for failure in failures:
        row = failure.row
        what = (
            f"a partitioner gave {given[row]!r} for the key {keys[row]!r}; there are {partitions} partitions"
        )
        raise refuse("CS-505", what, **place(row))
    return np.array(pids, np.int64)


def _existing(pid: Any, partitions: int) -> int:
    found = index(pid)
    if not 0 <= found < partitions:
        raise ValueError(found)
    return found


def in_order(blocks: Iterable[Block]) -> dict[int, list[Any]]:
    """Blobs of each exchange in order of their senders."""
    found: dict[int, list[Any]] = {}
    for _, exchange, _, _, blob in sorted(blocks, key=lambda block: block[1:4]):
        found.setdefault(exchange, []).append(blob)
    return found


WHOLE_BYTES = 16 << 20
"""Blocks of up to that size are taken all at once."""
SLICE_BYTES = 8 << 20
"""About how much of larger ones is taken at a time."""

Arrived = dict[int, Changes]
"""Changes by the number of the exchange that they come through."""

Hashes = tuple[np.uint64, np.uint64] | None
"""The hashes of the keys in a slice: the least one, and the last one; None: it has all keys."""


def all_at_once(
    blobs: dict[int, list[bytes]], exchanges: Sequence[Exchange]
) -> Iterator[tuple[Hashes, Arrived]]:
    """What arrives in a state partition. ``blobs``: by number of the exchange; they are taken out."""
    yield None, {number: _unpacked(blobs.pop(number), exchanges[number]) for number in sorted(blobs)}


def in_slices(
    blobs: dict[int, list[bytes]], exchanges: Sequence[Exchange], bits: int
) -> Iterator[tuple[Hashes, Arrived]]:
    """In slices with ascending hashes, all rows of a key in one; in one slice if it is not too large.

    A right row with two million subscribers makes two million results in one batch. Where these are kept or joined
    further they meet again in the partitions of their own keys, and a task that took them all at once would hold all
    of them several times over. Steps that look at single keys give the same rows in the same order: they answer in
    order of the hash.
    """
    size = sum(map(size_of, chain.from_iterable(blobs.values())))
    if size <= WHOLE_BYTES:
        yield from all_at_once(blobs, exchanges)
        return
    opened = [
        (number, _unpacked([blob], exchanges[number]))
        for number in sorted(blobs)
        for blob in blobs.pop(number)
    ]
    hashes = [changes.hashes(bits) for _, changes in opened]
    bounds = _bounds(hashes, -(-size // SLICE_BYTES))
    pieces = [
        (number, changes, np.searchsorted(bounds, h, "right").astype(np.uint16))
        for (number, changes), h in zip(opened, hashes, strict=True)
    ]
    del opened, hashes
    every = np.iinfo(np.uint64)
    firsts, lasts = [np.uint64(every.min), *bounds], [*(bounds - np.uint64(1)), np.uint64(every.max)]
    for place in range(len(bounds) + 1):
        yield (firsts[place], lasts[place]), _slice(pieces, place)
        pieces = [piece for piece in pieces if piece[2].max() > place]


def _unpacked(blobs: list[bytes], exchange: Exchange) -> Changes:
    return unpack(blobs, exchange.key, exchange.value)


def _bounds(hashes: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The least hash of each slice but the first, where there are about ``count`` of one size."""
    ordered = np.sort(np.concatenate(hashes))
    bounds = np.unique(ordered[np.arange(1, count) * len(ordered) // count])
    return np.asarray(bounds[bounds > ordered[0]])


def _slice(pieces: Sequence[tuple[int, Changes, np.ndarray]], place: int) -> Arrived:
    """``pieces``: exchange and rows of a block, and the slice that each row belongs to."""
    found: dict[int, list[Changes]] = {}
    for exchange, changes, slices in pieces:
        rows = np.flatnonzero(slices == place)
        if len(rows):
            found.setdefault(exchange, []).append(changes.take(rows))
    return {number: concat_changes(parts) for number, parts in found.items()}
