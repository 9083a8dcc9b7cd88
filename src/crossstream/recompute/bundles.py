"""Opens a bundle, as state with one batch; see `bundle_format`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.recompute.bundle_format import FOLDERS, FORMAT, INDEX, MOST_FILES, Index
from crossstream.recompute.committed_results import Committed
from crossstream.recompute.past_batch import PastBatch, past_batch
from crossstream.records import PRODUCER_RECORDS, RECORDS
from crossstream.storage.arrow_file import NO_BATCH, batch_of_file
from crossstream.storage.bucket import is_uri
from crossstream.storage.door import MOST_RUN, check_parts
from crossstream.storage.root import LocalRoot, StateRoot
from crossstream.topics import OffsetRange, RangeReader, ReadsInTurn, TopicPartition

_decoder = msgspec.json.Decoder(Index)


def is_bundle(place: str) -> bool:
    """Whether a place is a file, and no state."""
    return not is_uri(place) and Path(place).expanduser().is_file()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that is open, as state with one batch, in a folder that is gone afterwards."""

    past: PastBatch
    counts: Mapping[str, int]
    reader: RangeReader
    results: Committed | None


@contextmanager
def open_bundle(path: Path, number: int) -> Iterator[Bundle]:
    """Opens a bundle. Raises `StateError` CS-716 if it is damaged, or of another batch."""
    with TemporaryDirectory(prefix="crossstream-bundle-") as folder:
        root = LocalRoot(Path(folder))
        index = _extracted(path, root)
        if index.batch != number:
            what = f"the bundle has batch {index.batch}, not batch {number}"
            raise refuse("CS-716", what, f"say --batch {index.batch}", file=str(path))
        records = {
            OffsetRange(one.topic, one.partition, one.start, one.end): [
                _batch_of(root, path, file, RECORDS) for file in one.files
            ]
            for one in index.inputs
        }
        results = None
        if index.results is not None:
            found = {
                TopicPartition(one.topic, one.partition): _batch_of(root, path, one.file, PRODUCER_RECORDS)
                for one in index.results
            }
            results = Committed(found, frozenset(index.topics))
        past = past_batch(root, number)
        yield Bundle(past, index.counts, _Reader(records, path), results)


def _extracted(path: Path, root: StateRoot) -> Index:
    """Writes the files of a bundle into an empty folder; what it says of itself."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in _checked(archive, path):
                data = archive.read(info)  # of a damaged file it raises: each has its checksum
                folder, _, name = info.filename.rpartition("/")
                if folder.startswith("stores/"):
                    root.storage(folder).write(name, data)
                else:
                    root.write(info.filename, data)
        return _index(root, path)
    except CrossStreamError:
        raise
    except (zipfile.BadZipFile, zipfile.LargeZipFile, OSError, EOFError, ValueError) as error:
        raise _damaged(path, error) from error
    except (NotImplementedError, RuntimeError) as error:  # compressed in a way, or encrypted
        raise _damaged(path, error) from error


def _checked(archive: zipfile.ZipFile, path: Path) -> Sequence[zipfile.ZipInfo]:
    found = archive.infolist()
    names = [info.filename for info in found]
    if len(set(names)) < len(names) or len(names) > MOST_FILES:
        raise _damaged(path, "it has a file twice, or too many")
    size = path.stat().st_size
    for info in found:
        parts = check_parts(info.filename)
        if parts[0] not in (*FOLDERS, "application.json", INDEX) or (len(parts) == 1) != ("." in parts[0]):
            raise _damaged(path, f"it has a file {info.filename!r}")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > min(size, MOST_RUN):
            raise _damaged(path, f"{info.filename} is compressed, or larger than the bundle")
    return found


def _index(root: StateRoot, path: Path) -> Index:
    try:
        index = _decoder.decode(root.read(INDEX))
    except FileNotFoundError as error:
        raise _damaged(path, f"it has no {INDEX}") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if index.format != FORMAT:
        what = f"the bundle has format {index.format}, this version reads {FORMAT}"
        raise refuse("CS-716", what, "run the version of crossstream that packed it", file=str(path))
    return index


def _batch_of(root: StateRoot, path: Path, file: str, schema: pa.Schema) -> pa.RecordBatch:
    folder, _, name = file.rpartition("/")
    if folder not in ("inputs", "results"):
        raise _damaged(path, f"{file!r} is no file of records")
    try:
        records = batch_of_file(root.storage(folder).read(name))
    except FileNotFoundError as error:
        raise _damaged(path, f"{file} is missing") from error
    except NO_BATCH as error:
        raise _damaged(path, f"{file}: {error}") from error
    if not records.schema.equals(schema):
        raise _damaged(path, f"{file} has other columns than records have")
    return records


def _damaged(path: Path, why: object) -> CrossStreamError:
    return refuse("CS-716", f"{path.name} is no bundle, or it is damaged: {why}", file=str(path))


@dataclass(frozen=True, slots=True)
class _Reader(ReadsInTurn):
    """`RangeReader` of the ranges of a bundle."""

    records: Mapping[OffsetRange, Sequence[pa.RecordBatch]]
    path: Path

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        if span not in self.records:
            raise _damaged(
                self.path, f"it has no records of {span.topic}, offsets {span.start} to {span.end}"
            )
        for records in self.records[span]:
            for start in range(0, records.num_rows, max_rows):
                yield records.slice(start, max_rows)

    def close(self) -> None: ...
