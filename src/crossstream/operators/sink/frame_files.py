"""Files with the records of a batch, as columns: tasks write them, and a DataFrame is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from crossstream.storage.files import BufferList, Written

FILE_BYTES = 32 << 20
"""Records that a task keeps in memory before it writes them to a file."""
CHUNK_ROWS = 10_000
"""Rows of a record batch in a file: as many as Spark makes of a table of Arrow's at a time."""


class FrameFiles:
    """The records of one sink in a task. ``put``: writes a file."""

    def __init__(self, put: Callable[[Written], None]) -> None:
        self._put = put
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, columns: dict[str, pa.Array]) -> None:
        rows = pa.RecordBatch.from_pydict(columns)
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > FILE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what is held, if there is anything."""
        if self._held:
            rows = pa.Table.from_batches(self._held)
            self._held, self._bytes = [], 0
            out = BufferList()
            with pa.ipc.new_stream(out, rows.schema) as stream:
                stream.write_table(rows, CHUNK_ROWS)
            self._put(out)


def rows_of(data: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """The records of such a file."""
    return iter(pa.ipc.open_stream(data))
