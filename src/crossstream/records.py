"""Records as they cross the edges: Arrow columns of wire bytes, one topic partition at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

RECORDS = pa.schema(
    [
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("timestamp", pa.int64()),
        ("offset", pa.int64()),
        ("headers", pa.large_binary()),
    ]
)
"""key and value: wire bytes or null; timestamp: ms since the epoch; headers: see `encode_headers`."""

PRODUCER_RECORDS = pa.schema([RECORDS.field(name) for name in ("key", "value", "timestamp", "headers")])
"""Records that have no offset yet: to be written, or piped into the test driver."""


AS_ROWS = {b"crossstream.rows": b""}
"""Metadata of records that are the rows of a table, among others that are change events."""


def is_rows(records: pa.RecordBatch) -> bool:
    """Whether records are the rows of a table, and no change events."""
    return bool(records.schema.metadata)


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenates batches of one schema; one batch is not copied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


Header = tuple[str, bytes | None]

REASON = "crossstream.reason"
"""The header of dead letters that holds the error."""

_headers_encoder = msgspec.msgpack.Encoder()
_headers_decoder = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]])


def encode_headers(headers: Iterable[Header] | None) -> bytes | None:
    """One cell of the `headers` column: MessagePack of ``[[name, bytes or nil], …]``; none → null."""
    pairs = [(name, value) for name, value in headers or ()]
    return _headers_encoder.encode(pairs) if pairs else None


def decode_headers(cell: bytes | None) -> tuple[Header, ...]:
    """The pairs that `encode_headers` packed; null → an empty tuple."""
    return () if cell is None else tuple(_headers_decoder.decode(cell))
