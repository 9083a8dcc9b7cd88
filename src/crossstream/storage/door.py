"""The one door from what a folder says to files of this machine: a folder of state or topics may be of anybody.

Names in JSON are `FileName`, its numbers have bounds, and a name becomes a path through `inside`. Nothing is opened but
plain files: a link could lead out of the folder, and a pipe would never answer.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from msgspec import Meta

MOST_PARTITIONS = 1 << 16
"""The largest number of state partitions: each is a task of a round, and a folder of every store."""
MOST_BATCHES = (1 << 32) - 1
"""The largest number of a batch: it is the upper half of arrival numbers."""
MOST_JSON = 1 << 27
"""Bytes of a file that is read as a whole, as JSON: an entry of the log, a manifest."""
MOST_RUN = 1 << 36
"""Bytes of a run file."""
_LATEST = 250_000_000_000
"""Seconds of the clock, in the year 9892: about the last one that `datetime` has."""

FileName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-][A-Za-z0-9._-]*\Z", max_length=200)]
"""The name of a file as JSON gives it."""
StoreName = Annotated[str, Meta(pattern=r"\A(?!\.{0,2}\Z)", max_length=1000)]
"""The name of a store; `partition_folder` makes a folder of any other one."""
Fingerprint = Annotated[str, Meta(pattern=r"\A[^/]+(?:/[^/]*){3,}\Z")]
"""What a store is: kind, serdes, history."""
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Hash = Annotated[int, Meta(ge=0)]
"""Of a key; a number with 64 bits."""
Size = Annotated[int, Meta(ge=0, le=MOST_RUN)]
Seconds = Annotated[float, Meta(ge=0, le=_LATEST)]
Batch = Annotated[int, Meta(ge=-1, le=MOST_BATCHES)]
Partition = Annotated[int, Meta(ge=0, lt=MOST_PARTITIONS)]
Place = Annotated[int, Meta(ge=-1, lt=1 << 31)]
"""A partition of a topic; -1: the producer chooses one."""
Partitions = Annotated[int, Meta(ge=1, le=MOST_PARTITIONS)]


def check_parts(name: str) -> list[str]:
    """The parts of a name below a folder. Raises `OSError` for a name that leads out of it."""
    parts = name.split("/")
    if "\0" in name or not {"", ".", ".."}.isdisjoint(parts):
        raise OSError(errno.EINVAL, "its name is not one that a file in the folder may have")
    return parts


def inside(root: Path, name: str, *, folder: bool = False) -> Path:
    """The path of a name below a folder. Raises `OSError` for one that leads out of it, by itself or by a link.

    ``folder``: it is that of a folder, and what it holds is meant.
    """
    path, parts = str(root), check_parts(name)
    for part in parts if folder else parts[:-1]:
        path = f"{path}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                raise OSError(errno.ELOOP, f"the folder {part} is a link, which is not followed")
        except (FileNotFoundError, NotADirectoryError):
            break
    return root / name


def check_plain(path: str | Path, most: int) -> int:
    """The size of a file. Raises `OSError` for what is no plain file, or a larger one than ``most`` bytes."""
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        what = "a link, which is not followed" if stat.S_ISLNK(status.st_mode) else "no plain file"
        raise OSError(errno.ELOOP, f"it is {what}")
    if status.st_size > most:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than such a file has")
    return status.st_size


def read_plain(path: Path, most: int = MOST_JSON) -> bytes:
    """The content of a small file. Raises `OSError`, also where `check_plain` does."""
    check_plain(path, most)
    return path.read_bytes()


def map_plain(path: Path) -> pa.Buffer:
    """The content of a run or manifest, memory-mapped. Raises `OSError`, also where `check_plain` does."""
    check_plain(path, MOST_RUN)
    with pa.memory_map(str(path)) as mapped:
        return mapped.read_buffer()
