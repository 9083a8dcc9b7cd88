"""A bundle: one file with all that a batch needs to run again elsewhere, and what it gave then to compare with.

    bundle.json                    which batch; the files of its records, and of its results
    application.json, batches/,
    commits/, stores/              the part of the state folder: before the batch, and what the batch wrote
    inputs/, results/              records, as Arrow files

It is a zip file, not compressed. Nothing in it is code, and it is taken for one of someone else: names are checked
before a byte is written, and files are those of a state folder, which has its own checks (`storage.door`).
"""

from __future__ import annotations

import msgspec

from crossstream.storage.door import Batch, Count

FORMAT = 1
INDEX = "bundle.json"
SUFFIX = ".bundle"
FOLDERS = ("batches", "commits", "stores", "inputs", "results")
MOST_FILES = 1 << 20
"""Files in a bundle: runs and manifests of all state partitions."""


class InputFiles(msgspec.Struct, frozen=True):
    """The records of a range: in several files where their kinds differ."""

    topic: str
    partition: Count
    start: Count
    end: Count
    files: tuple[str, ...]


class ResultFile(msgspec.Struct, frozen=True):
    topic: str
    partition: Count
    file: str


class Index(msgspec.Struct, frozen=True):
    """``counts``: partitions of the topics there were. ``results``: of ``topics``; None: they are not known."""

    batch: Batch
    inputs: tuple[InputFiles, ...]
    counts: dict[str, Count]
    results: tuple[ResultFile, ...] | None = None
    topics: tuple[str, ...] = ()
    format: int = FORMAT
