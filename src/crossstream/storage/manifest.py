"""The manifest: which runs, in which order, make up one partition of one store after one batch.

Format and requirements: `docs/spec/state-format.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.storage.arrow_file import NO_BATCH, batch_of_file
from crossstream.storage.columns import from_record_batch, to_record_batch
from crossstream.storage.door import Batch, Count, FileName, Int64, Size
from crossstream.storage.files import FEW, BufferList, Storage, Written, buffers_of
from crossstream.storage.sorted_run import Run

T = TypeVar("T")

FORMAT = 2


class SegmentRef(msgspec.Struct, frozen=True, array_like=True):
    """Rows ``start`` to ``stop`` of a run file; hashes from ``low`` to ``high``, both inclusive.

    ``times``: no row of the file has a timestamp outside of these; None for rows that are not by time.
    """

    file: FileName
    start: Count
    stop: Count
    low: int
    high: int
    size: Size
    checksum: str
    times: tuple[Int64, Int64] | None = None


class LevelRef(msgspec.Struct, frozen=True, array_like=True):
    """Pieces of one sorted run, in its order. ``job``: the merge it takes part in, 0 none."""

    segments: tuple[SegmentRef, ...]
    job: Count = 0
    output: bool = False


class OfFormat(msgspec.Struct, frozen=True):
    """What every format has, of a manifest and of `Application`."""

    format: int


class Manifest(msgspec.Struct, frozen=True):
    """One partition of one store after ``batch``; ``levels`` newest first. Stream time in ms. ``name``: its file's.

    ``sources``, ``marks``: see `Version`.
    """

    name: FileName
    kind: str
    batch: Batch
    levels: tuple[LevelRef, ...] = msgspec.field(default=(), name="slots")
    stream_time: Int64 = -1
    credit: Int64 = 0
    format: int = FORMAT
    horizon: Int64 = 0
    clock: Int64 = 0
    sources: dict[int, tuple[Int64, Int64]] = {}
    marks: dict[int, tuple[Int64, Int64, Int64]] = {}

    def files(self) -> set[str]:
        return {segment.file for segment in self.segments()}

    def segments(self) -> Iterator[SegmentRef]:
        """Those of all levels, newest first."""
        return (segment for level in self.levels for segment in level.segments)

    @property
    def rows(self) -> int:
        return sum(segment.stop - segment.start for segment in self.segments())

    @property
    def size(self) -> int:
        """Bytes of the run files in use."""
        return sum({segment.file: segment.size for segment in self.segments()}.values())


_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (OfFormat, Manifest)
}
"""Made here and not when first needed: msgspec crashes when one thread makes the first and another decodes."""


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    body = msgspec.json.encode(manifest)
    storage.write(manifest.name, _digest(body).encode() + b"\n" + body)


def read_version(storage: Storage, name: str, kind: str | None = None) -> Manifest:
    """`read_manifest` of a version whose rows are read next."""
    manifest = read_manifest(storage, name, kind)
    if twice := overlap_of(manifest):
        raise _damaged(f"{name}: {twice}")
    return manifest


def read_manifest(storage: Storage, name: str, kind: str | None = None) -> Manifest:
    """Reads and checks a manifest; `StateError` if it is missing, damaged or of another kind."""
    body = _sound(storage, name, "manifest", _body)
    found = _decoded(body, name, OfFormat)
    if found.format != FORMAT:
        what = f"the manifest {name} has format {found.format}, this version reads {FORMAT}"
        raise refuse("CS-704", what, "run the version of crossstream that wrote it")
    manifest = _decoded(body, name, Manifest)
    if manifest.name != name:
        raise _damaged(f"the file {name} is the manifest {manifest.name}")
    if kind is not None and manifest.kind != kind:
        raise lost(f"the manifest {name} is of a {manifest.kind} store, not of a {kind} store")
    return manifest


def overlap_of(manifest: Manifest) -> str | None:
    """What is wrong if segments share rows, for then few bytes would be any number of rows; else None."""
    spans = sorted((one.file, one.start, one.stop) for one in manifest.segments())
    for (file, _, stop), (other, start, _) in pairwise(spans):
        if file == other and start < stop:
            return f"the manifest takes row {start} of {file} twice"
    return None


def _decoded(body: bytes, name: str, kind: type[T]) -> T:
    try:
        return _DECODERS[kind].decode(body)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _damaged(f"the file {name} is no manifest: {error}") from error


def write_run(storage: Storage, name: str, run: Run) -> SegmentRef:
    """Writes a run as one Arrow IPC file and returns its reference."""
    batch = to_record_batch(run.columns)
    file = _run_file(batch)
    storage.write(name, file)
    h = run["h"]
    return SegmentRef(name, 0, run.rows, int(h[0]), int(h[-1]), file.size, _digest(file), _times(run))


def _run_file(batch: pa.RecordBatch) -> pa.Buffer | BufferList:
    file = pa.BufferOutputStream() if batch.num_rows <= FEW else BufferList()
    with pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return file if isinstance(file, BufferList) else file.getvalue()


def _times(run: Run) -> tuple[int, int] | None:
    s = run.columns.get("s")
    return None if s is None or s.dtype != np.int64 else run.times


def read_run(storage: Storage, ref: SegmentRef) -> Run:
    """Opens a run file, whole; `StateError` if it is missing, not byte for byte what was written, or no run."""
    data = checked_run(storage, ref)
    try:
        return _run(batch_of_file(data), ref)
    except NO_BATCH as error:
        raise _damaged(f"the file {ref.file} is no run: {error}") from error


def checked_run(storage: Storage, ref: SegmentRef) -> pa.Buffer:
    """The bytes of a run file; `StateError` if it is missing or not byte for byte what was written."""

    def whole(data: pa.Buffer) -> pa.Buffer | None:
        return data if data.size == ref.size and _digest(data) == ref.checksum else None

    return _sound(storage, ref.file, "run file", whole)


def staged_name(prefix: str, data: Written) -> str:
    """A name for a file that waits to be published. It ends with the checksum of the file."""
    return f"{prefix}-{uuid4().hex[:8]}-{_digest(data)}.arrow"


def checked_staged(storage: Storage, name: str) -> pa.Buffer:
    """The bytes of such a file; `StateError` if it is missing or not byte for byte what was written."""
    checksum = name.removesuffix(".arrow").rpartition("-")[2]
    return _sound(storage, name, "staged file", lambda data: data if _digest(data) == checksum else None)


def map_run(storage: Storage, ref: SegmentRef) -> Run:
    """Opens a run file that this process has just written, without reading it."""
    with pa.ipc.open_file(storage.read(ref.file)) as reader:
        return _run(reader.get_batch(0), ref)


def _run(batch: pa.RecordBatch, ref: SegmentRef) -> Run:
    return Run(from_record_batch(batch), batch.num_rows, ref.times)


def _sound(storage: Storage, name: str, kind: str, check: Callable[[pa.Buffer], T | None]) -> T:
    """What ``check`` makes of a file, None if it is damaged; a damaged copy gives way to the file itself."""
    try:
        found = check(storage.read(name))
        if found is None:
            found = check(storage.read(name, original=True))
    except FileNotFoundError:
        raise lost(f"the {kind} {name} is missing") from None
    except OSError as error:
        raise _damaged(f"the file {name} cannot be read: {error.strerror or error}") from error
    if found is None:
        raise _damaged(f"the file {name} is damaged: its checksum does not match")
    return found


def _body(data: pa.Buffer) -> bytes | None:
    """The JSON of a manifest; None if it does not fit its checksum."""
    digest, _, body = data.to_pybytes().partition(b"\n")
    return body if digest.decode("ascii", "replace") == _digest(body) else None


def _digest(data: Written) -> str:
    digest = xxhash.xxh3_64()
    for segment in buffers_of(data):
        digest.update(segment)
    return f"{digest.intdigest():016x}"


def lost(what: str, **where: object) -> CrossStreamError:
    """CS-701: a file is not there, or is another one."""
    return refuse("CS-701", what, **where)


def _damaged(what: str) -> CrossStreamError:
    step = "restore the state folder from a copy; `as_of` an earlier batch may still be readable"
    return refuse("CS-701", what, step)
