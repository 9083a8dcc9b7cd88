"""What a batch did about one key: the records that it read, rows of stores before and after, and what it sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.errors import CrossStreamError
from crossstream.planning.plan import StoreDef
from crossstream.query.by_time import ByTime
from crossstream.query.store import StoreReader, reader_of
from crossstream.query.text import parse_key, rows_of_key
from crossstream.recompute.again import Rerun
from crossstream.recompute.inputs import object_of
from crossstream.recompute.parted_records import serdes_of_topic
from crossstream.recompute.partings import name_of
from crossstream.recompute.past_batch import PastBatch
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.store import Version
from crossstream.topics import OffsetRange, RangeReader

_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Line:
    """``step``: read, before, after or sent. ``place``: a topic with partition, and offset; or a store."""

    step: str
    place: str
    key: Any
    value: Any


def records_about(
    past: PastBatch,
    serdes: Mapping[str, tuple[EngineSerde | None, EngineSerde | None]],
    reader: RangeReader,
    text: str,
) -> Iterator[Line]:
    """The records of the batch that have the key. ``serdes``: of each source; ``text``: the key, as it is typed."""
    for span in past.entry.ranges:
        key, value = serdes.get(span.node, (None, None))
        wire = wire_of(key, text)
        if wire is None:
            continue
        for records in reader.read(OffsetRange(span.topic, span.partition, span.start, span.end), _ROWS):
            for row in _rows_with(records, wire):
                offset = records.column("offset")[row].as_py()
                found = object_of(value, records.column("value")[row].as_py())
                yield Line("read", f"{span.topic}, {span.partition} @ {offset}", object_of(key, wire), found)


def rows_about(rerun: Rerun, text: str) -> Iterator[Line]:
    """The rows of the key in each store before and after the batch, where there are some."""
    for store in rerun.plan.stores.values():
        if not _is_readable(store) or wire_of(store.key, text) is None:
            continue
        key = parse_key(store.key, text)
        for step, of in (("before", rerun.before), ("after", rerun.after)):
            versions = _versions(
                rerun, store, key, {pid: of((store.name, pid)) for pid in range(rerun.batch.partitions)}
            )
            with suppress(CrossStreamError):  # rows of a serde that reads no such key
                for shown, value in rows_of_key(_reader(store, versions), key):
                    yield Line(step, name_of(store).name, shown, value)


def sent_about(rerun: Rerun, text: str) -> Iterator[Line]:
    """The results that have the key."""
    for owner, records in rerun.results.records():
        key, value = serdes_of_topic(rerun, owner.topic)
        wire = wire_of(key, text)
        for row in [] if wire is None else _rows_with(records, wire):
            found = object_of(value, records.column("value")[row].as_py())
            yield Line("sent", f"{owner.topic}, {owner.partition}", object_of(key, wire), found)


def wire_of(serde: EngineSerde | None, text: str) -> bytes | None:
    """The bytes of a key; None if the text cannot be a key of the serde."""
    try:
        return None if serde is None else calls.serialize(serde, parse_key(serde, text))
    except CrossStreamError:
        return None


def _rows_with(records: pa.RecordBatch, wire: bytes) -> list[int]:
    keys = records.column("key")
    if not pa.types.is_large_binary(keys.type):
        return []
    same = pc.equal(keys, pa.scalar(wire, pa.large_binary())).fill_null(False)
    return np.flatnonzero(same.to_numpy(zero_copy_only=False)).tolist()


def _is_readable(store: StoreDef) -> bool:
    layout = store.layout
    by_time = ByTime.of(layout, store.window_size) is not None
    return (
        "value" in layout.names
        and not layout.second_key
        and (by_time or layout.versioned or layout.sort is None)
    )


def _reader(store: StoreDef, versions: list[Version]) -> StoreReader:
    return reader_of(store, lambda: versions)


def _versions(rerun: Rerun, store: StoreDef, key: Any, names: Mapping[int, str | None]) -> list[Version]:
    """Its state partitions; where the hash says in which one the key is, the others without their rows."""
    wire = pa.array([calls.serialize(store.key, key)], pa.large_binary())
    home = int(partition_of(hash_keys(wire, 64), len(names))[0])
    is_placed = store.anywhere or store.name in rerun.past.application.placed
    return [
        rerun.version(store, pid, name if is_placed or pid == home else None) for pid, name in names.items()
    ]
