"""Record batches out of files that others may have written: nothing in them is followed beyond their bytes.

Arrow trusts a file: offsets past its end crash the process when a row is read, and compressed columns take any memory.
So a batch is read as the spec has it, not compressed and of four types, and its offsets are checked.
"""

from __future__ import annotations

import struct

import pyarrow as pa

NO_BATCH = (pa.ArrowException, ValueError, TypeError, OSError, EOFError, struct.error)
"""What is raised for bytes that are no batch."""
TYPES = (pa.uint64(), pa.int64(), pa.uint8(), pa.large_binary())
"""Types of the columns of runs."""

_HEAD = 8
"""Bytes before the first message of a file."""
_HEADER, _COMPRESSION = 2, 3
"""Fields in Arrow's Message.fbs: the header of a `Message`, the compression of a `RecordBatch`."""


def batch_of_file(data: pa.Buffer) -> pa.RecordBatch:
    """The one batch of a run file, without copying. Raises one of `NO_BATCH`.

    The messages are taken one after the other: the places in the footer may be any.
    """
    if data.size < _HEAD:
        raise ValueError("it is too short")
    try:
        reader = pa.ipc.MessageReader.open_stream(data.slice(_HEAD))
        schema = pa.ipc.read_schema(reader.read_next_message())
        message = reader.read_next_message()
    except StopIteration as error:
        raise ValueError("it ends early") from error
    if not set(schema.types) <= set(TYPES):
        raise ValueError("it has columns of other types than a run")
    return _checked(message, schema)


def batch_of_message(data: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of a message alone, without copying. Raises one of `NO_BATCH`."""
    return _checked(pa.ipc.read_message(data), schema)


def _checked(message: pa.Message, schema: pa.Schema) -> pa.RecordBatch:
    if message.type != "record batch":
        raise ValueError(f"there is a {message.type} in the place of rows")
    if _is_compressed(message.metadata.to_pybytes()):
        raise ValueError("its columns are compressed")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    return batch


def _is_compressed(metadata: bytes) -> bool:
    """Whether a message that Arrow has verified says so: it is a flatbuffer."""
    (message,) = struct.unpack_from("<I", metadata)
    header = message + _field(metadata, message, _HEADER)
    (batch,) = struct.unpack_from("<I", metadata, header)
    return _field(metadata, header + batch, _COMPRESSION) != 0


def _field(metadata: bytes, table: int, number: int) -> int:
    """The place of a field after the begin of its table; 0: it is not there."""
    (back,) = struct.unpack_from("<i", metadata, table)
    (size,) = struct.unpack_from("<H", metadata, table - back)
    place = 4 + 2 * number
    return int(struct.unpack_from("<H", metadata, table - back + place)[0]) if place < size else 0
