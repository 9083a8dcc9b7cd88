"""A state folder as an attacker makes it: everything in it is well formed, with right checksums, and means harm.

`ACTS` is all that is done with someone's folder. Each must end, as it should or with an error of ours, and leave what
is outside of the folder, and of its own target, as it was.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import xxhash

import crossstream as cs
from crossstream import cli, serdes
from crossstream.cli.arguments import make_parser
from crossstream.columns.hashing import hash_keys
from crossstream.errors import CrossStreamError
from crossstream.graph.layout import Drawing
from crossstream.metrics.observation import Observation
from crossstream.query.files import inspect_state, store_names
from crossstream.query.verification import verify_state
from crossstream.runtime.rescaling import rescale
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.copying import copy_state
from crossstream.storage.vacuum import Vacuum
from crossstream.task.stores import measure
from crossstream.ui.source import FolderSource, LiveSource, changes_of, found_rows
from tests.docs.state_folder import Writer

TEXT = serdes.string()
SECONDS = 20
"""Within which each act ends, on a machine that does other work too."""


def make_state(root: Path) -> None:
    """Three batches of a table and of a count in windows, in two partitions."""
    builder = cs.StreamsBuilder()
    rows = builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    windows = rows.to_stream().group_by_key().windowed_by(cs.TimeWindows(size="1 minute"))
    windows.count(materialized=cs.Materialized(store="counts"))
    with closing(Writer(root, builder.build(), partitions=2)) as writer:
        for batch in range(3):
            writer.run({"rows": [(b"k%d" % row, b"v%d" % batch, 1000 * batch + row) for row in range(9)]})


def seal(path: Path, content: Any) -> None:
    """Writes an entry of the log, with the right checksum. ``content``: what JSON has, or its bytes."""
    body = content if isinstance(content, bytes) else json.dumps(content, separators=(",", ":")).encode()
    path.write_bytes(b'{"checksum":"%s","content":%s}' % (digest(body).encode(), body))


def opened(path: Path) -> Any:
    """What an entry of the log or a manifest holds."""
    data = path.read_bytes()
    return json.loads(data.partition(b"\n")[2]) if path.suffix == ".manifest" else json.loads(data)["content"]


def write_manifest(path: Path, content: Any) -> None:
    """Writes a manifest with the right checksum."""
    body = content if isinstance(content, bytes) else json.dumps(content, separators=(",", ":")).encode()
    path.write_bytes(digest(body).encode() + b"\n" + body)


def write(path: Path, content: Any) -> None:
    """Puts it in the place of an entry of the log, or of a manifest."""
    (write_manifest if path.suffix == ".manifest" else seal)(path, content)


def digest(data: bytes | pa.Buffer) -> str:
    return xxhash.xxh3_64_hexdigest(data)


def manifest_of(root: Path, store: str = "rows", partition: int = 0) -> Path:
    """The manifest that the newest commit names."""
    name = opened(max((root / "commits").iterdir()))["versions"][store][str(partition)]
    return root / "stores" / store / str(partition) / name


def replace_run(root: Path, data: bytes, rows: int, low: int, high: int) -> None:
    """Puts a file in the place of the newest run, which the manifest describes rightly."""
    path = manifest_of(root)
    content = opened(path)
    file = content["slots"][0][0][0][0]
    (path.parent / file).write_bytes(data)
    content["slots"] = [[[[file, 0, rows, low, high, len(data), digest(data), None]], 0, False]]
    write_manifest(path, content)


JSONS = {
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep in an object": b'{"id":' * 50_000 + b"1" + b"}" * 50_000,
    "deep under a name that is not known": b'{"new":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "digits": b'{"id":' + b"9" * 10_000 + b"}",
    "exponent": b'{"id":1e999999}',
    "not UTF-8": b'{"id":"\xff\xfe"}',
    "half a pair": b'{"id":"\\ud800"}',
    "NaN": b'{"id":NaN}',
    "a list": b"[]",
    "null": b"null",
    "text": b'"x"',
    "nothing": b"",
    "twice": b'{"id":1,"id":2,"partitions":1,"partitions":2}',
}


# Runs


def rows_of(count: int, **columns: Any) -> pa.RecordBatch:
    key = pa.array([b"k%d" % row for row in range(count)], pa.large_binary())
    found = {
        "h": pa.array(hash_keys(key)),
        "key": key,
        "value": pa.array([b"v"] * count, pa.large_binary()),
        "ts": pa.array(range(count), pa.int64()),
        "gone": pa.array([0] * count, pa.uint8()),
    } | columns
    batch = pa.RecordBatch.from_pydict(found)
    order = np.argsort(np.asarray(batch.column("h")), kind="stable") if len(batch) else []
    return batch if columns else batch.take(pa.array(order))


def file_of(batch: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def bounds(batch: pa.RecordBatch) -> tuple[int, int, int]:
    h = batch.column("h").to_pylist()
    return batch.num_rows, h[0], h[-1]


def with_offsets(batch: pa.RecordBatch, column: str, *offsets: int) -> bytes:
    """The file of rows whose ``column`` has its values where ``offsets`` say."""
    data = file_of(batch)
    whole = pa.py_buffer(data)
    with pa.ipc.open_file(whole) as reader:
        place = reader.get_batch(0).column(column).buffers()[1].address - whole.address
    return data[:place] + struct.pack(f"<{len(offsets)}q", *offsets) + data[place + 8 * len(offsets) :]


# What is done with a folder


def query(root: Path, _: Path) -> None:
    for name in store_names(root):
        store = cs.open_store(root, name)
        list(store.all())
        store.approximate_count()
        if store.by_time is None:
            store.get("k1")


def inspect(root: Path, _: Path) -> None:
    inspect_state(root)


def verify(root: Path, _: Path) -> None:
    verify_state(root)


def backup(root: Path, target: Path) -> None:
    copy_state(root, target / "backup", links=True)


def restore(root: Path, target: Path) -> None:
    copy_state(root, target / "restored", links=False)


def fork(root: Path, target: Path) -> None:
    copy_state(root, target / "fork", links=True, owner="another")


def recut(root: Path, target: Path) -> None:
    log = BatchLog(_copied(root, target, "recut"))
    log.lock("attack")
    try:
        rescale(log, 3, {})
    finally:
        log.unlock()


def start(root: Path, target: Path) -> None:
    """As an application does: it takes the folder over, deletes what is left, and keeps what the page saw."""
    folder = _copied(root, target, "start")
    log = BatchLog(folder)
    log.lock("attack", 0o600)
    try:
        if log.application() is None:
            return
        commit = log.newest()
        log.take_over(commit)
        measure(folder, commit.versions, ("counts",))
        vacuum = Vacuum(folder, log, 1)
        vacuum.sweep(commit.id + 1)
        vacuum.add(commit.id + 5, {})
        source = LiveSource(log.root, 0o600, _nothing, Drawing(0, 0, (), ()), _no_store, lambda: True)
        with closing(source), suppress(OSError):  # as the page, which shows it in the log
            source.keep(_nothing(), last=True)
            source.history.add((1.0,) * 6)
    finally:
        log.unlock()


def look(root: Path, _: Path) -> None:
    """As the page does."""
    with closing(FolderSource(BatchLog(root).root)) as source:
        source.observe()
        source.graph()
        source.history.read("minutes", 1.0)
        for one in source.stores()["stores"]:
            found_rows(source.open(one["name"], None), "all", "", "", 1000)
            changes_of(source, one["name"], "k1")


_parser = cache(make_parser)
"""One for all: it would be half of what the command line does here."""


def command_line(root: Path, _: Path) -> None:
    """As people do. What is wrong is an error of ours, and no bug."""
    for words in (
        ["query"],
        ["query", "rows"],
        ["state", "inspect"],
        ["state", "verify"],
        ["why", "rows", "k1"],
    ):
        name, *rest = words
        arguments = [*words, str(root)] if name == "state" else [name, str(root), *rest]
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said), patch.object(cli, "make_parser", _parser):
            cli.main(arguments)
        assert "CS-001" not in said.getvalue(), (words, said.getvalue())


ACTS: list[Callable[[Path, Path], None]] = [
    query, inspect, verify, backup, restore, fork, recut, start, look, command_line
]  # fmt: skip


def _copied(root: Path, target: Path, name: str) -> Path:
    """A copy with all that is in it, pipes and links too: ``cp -a``."""

    def copy(source: str, made: str) -> None:
        if os.path.islink(source):
            os.symlink(os.readlink(source), made)
        elif os.path.isfile(source):
            shutil.copy2(source, made)
        else:
            os.mkfifo(made)

    shutil.copytree(root, target / name, symlinks=True, copy_function=copy)
    return target / name


def _nothing() -> Observation:
    return Observation(application="attack", time=1.0, status="running")


def _no_store(name: str, as_of: int | None) -> Any:
    raise AssertionError(name)


@contextmanager
def in_time() -> Iterator[None]:
    """Raises `TimeoutError` in what hangs."""

    def late(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outside(root: Path) -> dict[str, Any]:
    """What is in a folder: names, rights and contents."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_size,
            path.is_file() and path.read_bytes(),
        )
        for path in sorted(root.rglob("*"))
    }


def attacked(root: Path, home: Path, base: Path) -> dict[Callable[[Path, Path], None], CrossStreamError]:
    """Does all of it; the errors. ``home`` has nothing that it had not before."""
    before, errors = outside(home), {}
    for act in ACTS:
        target = base / act.__name__
        target.mkdir()
        with in_time():
            try:
                act(root, target)
            except CrossStreamError as refused:
                errors[act] = refused
        assert outside(home) == before, act
        shutil.rmtree(target)
    return errors
