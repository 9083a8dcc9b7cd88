"""The log of a table that is read again: what each reading changed, as a topic of one partition in the state folder.

    <state_dir>/refreshed/<name>/00000000000000000007.rows    what reading 7 changed: rows, and keys without a value
    <state_dir>/refreshed/<name>/00000000000000000005.table   the whole table after reading 5

An offset is the number of a reading, so no batch takes half of one. The whole table stands for the readings up to its
own, as the first segment that is held: `RefreshLog.fold` writes it. A file is one frame of `frame_format`, put in place
as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.filetopics.frame_format import HEADER, STORED, Frame, encode, parse_header
from crossstream.storage.arrow_file import NO_BATCH, batch_of_message
from crossstream.storage.files import REFRESHED as FOLDER
from crossstream.storage.files import UNFINISHED, force
from crossstream.storage.root import StateRoot

PREFIX = "refreshed:"
"""How the topics of these tables begin: no topic of Kafka has a colon in its name."""
_ROWS, _TABLE = ".rows", ".table"
_DIGITS = 20


def topic_of(name: str) -> str:
    """The topic of the table with this name."""
    return f"{PREFIX}{name}"


def folder_of(topic: str) -> str:
    """The folder of its files, below the root of the state."""
    return f"{FOLDER}/{topic.removeprefix(PREFIX)}"


@dataclass(frozen=True, slots=True)
class Extent:
    """The readings ``begin <= number < end`` that a log holds; ``is_table``: the first one as the whole table."""

    begin: int = 0
    end: int = 0
    is_table: bool = False

    def file(self, number: int) -> str:
        return file_name(number, is_table=self.is_table and number == self.begin)


def file_name(number: int, *, is_table: bool) -> str:
    return f"{number:0{_DIGITS}d}{_TABLE if is_table else _ROWS}"


def extent_of(names: list[str]) -> Extent:
    """What files of these names hold. A whole table takes the place of all before it, which may be left over."""
    tables = _numbers(names, _TABLE)
    begin = max(tables, default=0)
    return Extent(begin, 1 + max((*tables, *_numbers(names, _ROWS)), default=-1), bool(tables))


def _numbers(names: list[str], suffix: str) -> list[int]:
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return [int(stem) for stem in stems if len(stem) == _DIGITS and stem.isdecimal() and stem.isascii()]


@dataclass(slots=True)
class RefreshLog:
    """The readings of one table. ``root``: of the state; one process appends, and any may read."""

    root: StateRoot
    topic: str
    durable: bool = True
    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes of the readings that this process has met, by number."""

    def extent(self) -> Extent:
        return extent_of(self.root.names(folder_of(self.topic)))

    def read(self, start: int, end: int) -> Iterator[tuple[int, Frame, pa.RecordBatch]]:
        """The readings of a range, with their numbers.

        Raises `SourceError`: CS-601 if some were folded into a later one, CS-603 if some are not there.
        """
        held = self.extent()
        if start < held.begin:
            raise self._folded(start, held.begin)
        if end > held.end:
            what = f"readings {start} to {end - 1} of the table are asked for, but its log ends at {held.end}"
            step = "restore the folder of the state, or start with a new state_dir"
            raise refuse("CS-603", what, step, topic=self.topic, offset=held.end, folder=str(self.root))
        return (self._file(number, held.file(number)) for number in range(start, end))

    def rows(self) -> pl.DataFrame:
        """The table after the last reading: key and value, in wire form."""
        held = self.extent()
        parts = [_columns(records) for _, _, records in self.read(held.begin, held.end)]
        if not parts:
            return EMPTY
        return (
            pl.concat(parts)
            .unique("key", keep="last", maintain_order=True)
            .filter(pl.col("value").is_not_null())
        )

    def append(self, changes: pl.DataFrame, timestamp: int) -> int:
        """Appends what a reading changed, with one time (ms) for all of it; its number."""
        number = self.extent().end
        self._write(number, _records(changes, timestamp), is_table=False)
        return number

    def newest(self) -> int:
        """The time of the last reading that changed anything; 0 without one."""
        held = self.extent()
        return 0 if held.begin == held.end else self.time(held.end - 1)

    def time(self, number: int) -> int:
        """The time of a reading that is held (ms)."""
        return next(self.read(number, number + 1))[1].max_timestamp

    def fold(self, number: int) -> None:
        """Puts the whole table after this reading in the place of all up to it.

        A crash leaves the readings as they were, or files that no one reads, which the next call removes.
        """
        held = self.extent()
        if held.begin < number < held.end:
            parts = [records for _, _, records in self.read(held.begin, number + 1)]
            self._write(number, _folded(parts), is_table=True)
        self.clear()

    def clear(self) -> None:
        """Removes what a whole table stands for, and what a crash has left half written."""
        names = self.root.names(folder_of(self.topic))
        held = extent_of(names)
        before = [
            file_name(number, is_table=True) for number in _numbers(names, _TABLE) if number < held.begin
        ]
        past = [number for number in _numbers(names, _ROWS) if held.is_table and number <= held.begin]
        unfinished = [name for name in names if name.endswith(UNFINISHED)]
        files = [*before, *(file_name(number, is_table=False) for number in past), *unfinished]
        self.root.delete(*(f"{folder_of(self.topic)}/{name}" for name in files))
        self.sizes = {number: size for number, size in self.sizes.items() if number >= held.begin}

    def _write(self, number: int, records: pa.RecordBatch, *, is_table: bool) -> None:
        frame, payload = encode(records)
        folder = folder_of(self.topic)
        data = frame._replace(base=number).header() + memoryview(payload)
        self.root.write(f"{folder}/{file_name(number, is_table=is_table)}", data, forced=self.durable)
        if self.durable:
            force(self.root.here / folder)
        self.sizes[number] = len(data)

    def _file(self, number: int, name: str) -> tuple[int, Frame, pa.RecordBatch]:
        folder = folder_of(self.topic)
        try:
            content = self.root.storage(folder).read(name)
        except FileNotFoundError:
            begin = self.extent().begin
            raise (
                self._folded(number, begin) if number < begin else self._damaged(name, "it is gone")
            ) from None
        except OSError as error:
            raise self._damaged(name, error.strerror) from error
        self.sizes[number] = content.size
        view = memoryview(content)
        frame = parse_header(bytes(view[: HEADER.size]))
        if frame is None or frame.base != number or not frame.describes(view[HEADER.size :]):
            raise self._damaged(name, "it fails its checksum")
        try:
            records = batch_of_message(content.slice(HEADER.size), STORED)
        except NO_BATCH as error:
            raise self._damaged(name, str(error)) from error
        return number, frame, records

    def _folded(self, start: int, begin: int) -> CrossStreamError:
        what = f"readings {start} to {begin - 1} of the table are not kept: no retained batch begins there"
        step = "set a larger retain_batches to keep more of them"
        return refuse("CS-601", what, step, topic=self.topic, offset=start)

    def _damaged(self, name: str, why: object) -> CrossStreamError:
        what = f"what a reading of the table has changed cannot be read: {why}"
        step = "restore the folder of the state from a copy, or start with a new state_dir"
        return refuse("CS-606", what, step, topic=self.topic, file=f"{folder_of(self.topic)}/{name}")


EMPTY = pl.DataFrame(schema={"key": pl.Binary(), "value": pl.Binary()})


def _columns(records: pa.RecordBatch) -> pl.DataFrame:
    return pl.DataFrame(
        {name: pl.Series(records.column(name), dtype=pl.Binary()) for name in ("key", "value")}
    )


def _records(changes: pl.DataFrame, timestamp: int) -> pa.RecordBatch:
    rows = changes.height
    columns = [changes[name].to_arrow().cast(pa.large_binary()) for name in ("key", "value")]
    times = pa.repeat(pa.scalar(timestamp, pa.int64()), rows)
    return pa.RecordBatch.from_arrays([*columns, times, pa.nulls(rows, pa.large_binary())], schema=STORED)


def _folded(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows after all parts, each with the time of the part that it is from."""
    whole = pa.concat_batches(parts)
    rows = pl.DataFrame(
        {"key": pl.Series(whole.column("key")), "place": pl.int_range(len(whole), eager=True)}
    )
    last = rows.unique("key", keep="last", maintain_order=True)["place"].to_arrow()
    kept = whole.take(last)
    return kept.filter(kept.column("value").is_valid())
