"""Blobs that stay out of the JVM where all tasks run on one machine.

Spark shuffles blocks. A blob inside one is copied eight times on its way through sockets, the JVM and shuffle
files, which costs more core time than the join. Where driver and workers share a machine, large blobs
therefore lie in files, and the blocks that Spark shuffles say where (decision 0012). The files of a batch go
when the batch has ended; a task that runs again writes files of its own.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
from pyspark import SparkContext, SparkFiles

from crossstream.runtime.round import Outgoing
from crossstream.storage.files import PRIVATE, Written, buffers_of, make_folder, opener
from crossstream.task.shuffle_codec import Block

INLINE_BYTES = 16 << 10
"""Blobs up to that size travel inside their blocks."""

BLOCKS = "crossstream-blocks-"
"""How the names of folders with such files begin."""

_ALIGNMENT = 64


class BlobLocation(NamedTuple):
    path: str
    offset: int
    size: int


def shared_folder(context: SparkContext, run_id: str) -> str | None:
    """The folder for the files of a run, in Spark's own temporary one; None unless all runs on one machine."""
    master = context.master or ""
    if master != "local" and not master.startswith("local["):
        return None
    folder = Path(SparkFiles.getRootDirectory()) / f"{BLOCKS}{run_id}"
    make_folder(folder, PRIVATE)
    return str(folder)


def drop_batch(folder: str | None, batch: int) -> None:
    """Deletes the files of a batch that has ended, however it did."""
    if folder is not None:
        shutil.rmtree(Path(folder) / str(batch), ignore_errors=True)


def spilled(sent: Iterable[Outgoing], folder: str | None, batch: int) -> Iterator[Outgoing]:
    """Blocks as a task sends them, large blobs moved to a file of the task."""
    if folder is None:
        yield from sent
        return
    with _File(Path(folder) / str(batch)) as file:
        for pid, blocks in sent:
            yield pid, [_aside(block, file) for block in blocks]


def _aside(block: Block, file: _File) -> Block:
    blob = block[4]
    if isinstance(blob, BlobLocation) or len(blob) <= INLINE_BYTES:
        return block
    return (*block[:4], file.put(blob))


@dataclass(slots=True)
class _File:
    """The file of one attempt of a task; made when there is something to put into it."""

    folder: Path
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    size: int = 0
    _open: IO[bytes] | None = None

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open.close()

    def put(self, blob: Written) -> BlobLocation:
        if self._open is None:
            make_folder(self.folder, PRIVATE)
            self._open = open(self.folder / self.name, "wb", opener=opener(PRIVATE))  # noqa: SIM115 - closed on leaving
        location = BlobLocation(str(self.folder / self.name), self.size, len(blob))
        for piece in buffers_of(blob):
            self._open.write(piece)
        rest = -len(blob) % _ALIGNMENT
        self._open.write(bytes(rest))
        self.size += len(blob) + rest
        return location


def loaded(blocks: Iterable[Any]) -> Iterator[Block]:
    """Blocks with their blobs, those in files mapped into memory."""
    mapped: dict[str, pa.Buffer] = {}
    for block in blocks:
        location = block[4]
        if not isinstance(location, BlobLocation):
            yield block
            continue
        if location.path not in mapped:
            mapped[location.path] = pa.memory_map(location.path).read_buffer()
        yield (*block[:4], mapped[location.path].slice(location.offset, location.size))


@dataclass(frozen=True, slots=True)
class BlockFiles:
    """Carries blocks with their large blobs in files of ``folder``, if there is one."""

    folder: str | None

    def sent(self, blocks: Iterable[Outgoing], batch: int) -> Iterator[Outgoing]:
        return spilled(blocks, self.folder, batch)

    def arrived(self, blocks: Iterable[Any]) -> Iterator[Block]:
        return loaded(blocks)
