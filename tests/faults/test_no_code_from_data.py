"""Nothing that comes from a topic, a state folder, a file topic or an error is run, whatever it looks like.

Each test puts a pickle somewhere, which makes a folder if anything reads it as one, or a text that imitates an error
of ours. Then the application runs, or somebody looks into its folder.
"""

from __future__ import annotations

import json
import os
import pickle
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa
import pytest
import xxhash

import crossstream as cs
from crossstream import serdes
from crossstream.cli import main
from crossstream.errors import CrossStreamError
from crossstream.query.inspection import inspect_state
from crossstream.query.verification import verify_state
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import Folder
from crossstream.storage.manifest import LevelRef, SegmentRef, read_manifest, write_manifest
from tests.faults.one_process import process, streams
from tests.spark.world import World

TEXT, JSON = serdes.string(), serdes.json()


@dataclass(frozen=True)
class Bomb:
    """Makes a folder when it is unpickled."""

    marker: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (str(self.marker), 0o777, True)

    @property
    def pickled(self) -> bytes:
        return pickle.dumps(self)

    @property
    def texts(self) -> list[str]:
        """What carried errors in their pickles, and what imitates how they are carried now."""
        forged = json.dumps(["StateError", FORGED, "CS-999", {"folder": "/"}, "delete everything"]).encode()
        return [
            f"crossstream-error:{b64encode(self.pickled).decode()}:",
            f"crossstream-error:{b64encode(cloudpickle.dumps(self)).decode()}:",
            *(
                f"crossstream-error:{token}{b64encode(forged).decode()}:"
                for token in ("", ":", f"{'0' * 32}:")
            ),
        ]


FORGED = "all is lost"


@pytest.fixture
def bomb(tmp_path: Path) -> Bomb:
    return Bomb(tmp_path / "marker")


def test_the_bomb_goes_off(bomb: Bomb) -> None:
    """Else nothing here would show anything."""
    pickle.loads(bomb.pickled)
    assert bomb.marker.exists()


# -- records -------------------------------------------------------------------------------------------

Wire = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]
"""Key, value and headers of a record."""


def raising(value: Any) -> Any:
    """A function that quotes what it gets, and its cause as well."""
    if isinstance(value, dict) and "raise" in value:
        try:
            raise KeyError(value["raise"])
        except KeyError as error:
            raise ValueError(f"no price in\n{value['raise']}\n: {value}") from error
    return value


def topic_of(key: Any, value: Any) -> str:
    return str(value.get("topic", "out"))


def topology() -> cs.Topology:
    builder = cs.StreamsBuilder()
    rows = builder.table("in", cs.Consumed(key=TEXT, value=JSON), cs.Materialized(store="rows"))
    made = rows.to_stream().map_values(raising)
    made.to(topic_of, cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def of_key(text: str, raw: bytes) -> Wire:
    return text.encode(), b"{", ()


def of_key_that_is_quoted(text: str, raw: bytes) -> Wire:
    return text.encode(), b'{"raise": 1}', ()


def of_value(text: str, raw: bytes) -> Wire:
    return b"k", text.encode(), ()


def of_value_that_is_quoted(text: str, raw: bytes) -> Wire:
    return b"k", json.dumps({"raise": text}).encode(), ()


def of_header(text: str, raw: bytes) -> Wire:
    return b"k", b"{", ((text[:200], text.encode()), ("crossstream.reason", text.encode()), ("raw", raw))


def of_topic_name(text: str, raw: bytes) -> Wire:
    return b"k", json.dumps({"topic": text}).encode(), ()


def of_raw_key(text: str, raw: bytes) -> Wire:
    return raw, b"{}", ()


def of_raw_value(text: str, raw: bytes) -> Wire:
    return b"k", raw, ()


def of_raw_header(text: str, raw: bytes) -> Wire:
    return b"k", b'{"raise": 1}', (("pickle", raw),)


RECORDS = [
    of_key, of_key_that_is_quoted, of_value, of_value_that_is_quoted, of_header, of_topic_name, of_raw_key,
    of_raw_value, of_raw_header,
]  # fmt: skip
SKIPPED = [
    {"deserialization_errors": "skip", "processing_errors": "skip"},
    {"deserialization_errors": cs.DeadLetter("dead"), "processing_errors": cs.DeadLetter("dead")},
]


def wires(bomb: Bomb, make: Callable[[str, bytes], Wire]) -> list[Wire]:
    return [make(text, bomb.pickled) for text in bomb.texts]


def check_error(error: BaseException, bomb: Bomb) -> None:
    """It is the error of what happened, and not the one that a record asks for."""
    assert isinstance(error, CrossStreamError)
    assert type(error) is not cs.StateError
    assert error.code in ("CS-402", "CS-501", "CS-656"), error
    assert error.what != FORGED
    assert error.next != "delete everything"
    assert not bomb.marker.exists()


@pytest.mark.parametrize("make", RECORDS)
def test_a_record_in_the_driver(bomb: Bomb, make: Callable[[str, bytes], Wire]) -> None:
    for number, (key, value, headers) in enumerate(wires(bomb, make)):
        for settings in ({}, *SKIPPED):
            with cs.TopologyTestDriver(topology(), **settings) as driver:
                topic = driver.create_input_topic("in", serdes.bytes(), serdes.bytes())
                try:
                    topic.pipe_input(key, value, timestamp=number, headers=headers)
                except CrossStreamError as error:
                    check_error(error, bomb)
                store = driver.get_key_value_store("rows")
                with suppress(CrossStreamError):
                    list(store.all())
                for name in driver.produced_topic_names():
                    driver.create_output_topic(name, serdes.bytes(), serdes.bytes()).read_records()
    assert not bomb.marker.exists()


@pytest.mark.spark
@pytest.mark.parametrize("make", RECORDS)
def test_a_record_on_spark(
    spark: Any, tmp_path: Path, bomb: Bomb, make: Callable[[str, bytes], Wire]
) -> None:
    given = [(key, value, 1, headers) for key, value, headers in wires(bomb, make)]
    for number, record in enumerate(given):
        alone = World(tmp_path / str(number))
        alone.create(**{"in": 1, "out": 1, "dead": 1})
        alone.append_wire("in", [record])
        with cs.SparkStreams(topology(), alone.config(), spark) as app:
            try:
                app.process_available()
            except CrossStreamError as error:
                check_error(error, bomb)
    together = World(tmp_path / "together")
    together.create(**{"in": 1, "out": 1, "dead": 1})
    together.append_wire("in", given)
    with cs.SparkStreams(topology(), together.config(**SKIPPED[1]), spark) as app:
        app.process_available()
        with suppress(CrossStreamError):
            list(app.store("rows").all())
    assert not bomb.marker.exists()


# -- a state folder ------------------------------------------------------------------------------------


def resealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A file of the batch log with another content, and the right checksum."""
    body = json.dumps(change(json.loads(path.read_bytes())["content"]), separators=(",", ":")).encode()
    path.write_bytes(b'{"checksum":"%s","content":%s}' % (xxhash.xxh3_64_hexdigest(body).encode(), body))


def in_application(**fields: Any) -> Callable[[Path, Bomb], None]:
    return lambda root, bomb: resealed(root / "application.json", lambda found: found | fill(fields, bomb))


def fill(given: Any, bomb: Bomb) -> Any:
    """With pickles in base64 where PICKLE stands."""
    return json.loads(json.dumps(given).replace("PICKLE", b64encode(bomb.pickled).decode()))


def described(**serde: Any) -> Callable[[Path, Bomb], None]:
    plain = {"name": "string", "kind": "known"}
    reader = {"store": "rows", "kind": "key-value", "key": plain, "value": serde, "history": None}
    return in_application(readers={"rows": reader})


def whole(pattern: str) -> Callable[[Path, Bomb], None]:
    """A pickle in the place of every file of a kind."""

    def harm(root: Path, bomb: Bomb) -> None:
        paths = list(root.glob(pattern))
        assert paths
        for path in paths:
            path.write_bytes(bomb.pickled)

    return harm


def manifest_with_checksum(root: Path, bomb: Bomb) -> None:
    for path in root.rglob("*.manifest"):
        path.write_bytes(xxhash.xxh3_64_hexdigest(bomb.pickled).encode() + b"\n" + bomb.pickled)


def commit_names_a_pickle(root: Path, bomb: Bomb) -> None:
    (root / "stores/rows/0/x.manifest").write_bytes(bomb.pickled)
    for path in (root / "commits").iterdir():
        resealed(path, lambda found: found | {"versions": {"rows": {"0": "x.manifest"}}})


def in_runs(make: Callable[[pa.RecordBatch, Bomb], bytes]) -> Callable[[Path, Bomb], None]:
    """Other run files, with manifests that have their checksums."""

    def harm(root: Path, bomb: Bomb) -> None:
        runs = {path: made(path, bomb) for path in root.rglob("*.arrow")}
        assert runs
        for path in root.rglob("*.manifest"):
            folder = Folder(path.parent)
            manifest = read_manifest(folder, path.name)
            levels = []
            for level in manifest.levels:
                segments = [changed(runs[path.parent / segment.file], segment) for segment in level.segments]
                levels.append(LevelRef(tuple(segments), level.job, level.output))
            write_manifest(folder, msgspec.structs.replace(manifest, levels=tuple(levels)))

    def made(path: Path, bomb: Bomb) -> bytes:
        with pa.ipc.open_file(path.read_bytes()) as reader:
            data = make(reader.get_batch(0), bomb)
        path.write_bytes(data)
        return data

    def changed(data: bytes, segment: SegmentRef) -> SegmentRef:
        return msgspec.structs.replace(segment, size=len(data), checksum=xxhash.xxh3_64_hexdigest(data))

    return harm


def of_extension_type(batch: pa.RecordBatch, bomb: Bomb) -> bytes:
    """As Arrow wrote types of Python: their class as a pickle."""
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": bomb.pickled}
    schema = pa.schema([field.with_metadata(metadata) for field in batch.schema], {"pandas": bomb.pickled})
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return file.getvalue().to_pybytes()


def rows_of_pickles(batch: pa.RecordBatch, bomb: Bomb) -> bytes:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["value"] = pa.array([bomb.pickled] * batch.num_rows, pa.large_binary())
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema))
    return file.getvalue().to_pybytes()


FOLDERS = {
    "readers of the format before": in_application(format=1, readers={"rows": {"store": "PICKLE"}}),
    "readers of the format before in this one": in_application(readers={"rows": {"store": "PICKLE"}}),
    "a reader of another kind": in_application(
        readers={"rows": {"store": "rows", "kind": "PICKLE", "key": "PICKLE", "value": "PICKLE"}}
    ),
    "a serde by a name that can be imported": described(name="os.system", kind="own"),
    "a serde that is a pickle": described(name="pickled", kind="PICKLE"),
    "a serde of the name pickled": described(name="pickled", kind="known"),
    "a class": described(name="json[Order]", kind="class", columns={"struct": {"PICKLE": "PICKLE"}}),
    "a schema": described(name="json[x]", kind="schema", columns="__import__('os')"),
    "a fingerprint": in_application(stores={"rows": "key-value/PICKLE/pickled/None"}),
    "starts": in_application(starts={"sources": ["PICKLE"], "positions": {}, "topic_ids": {"in": "PICKLE"}}),
    "the application": whole("application.json"),
    "the lock": whole("lock"),
    "the commits": whole("commits/*.json"),
    "what a commit names": commit_names_a_pickle,
    "the batches": whole("batches/*.json"),
    "the manifests": whole("stores/*/*/*.manifest"),
    "manifests with the right checksum": manifest_with_checksum,
    "the runs": whole("stores/*/*/*.arrow"),
    "runs with the right checksum": in_runs(lambda batch, bomb: bomb.pickled),
    "types in runs": in_runs(of_extension_type),
    "rows in runs": in_runs(rows_of_pickles),
}


@pytest.fixture
def stocked(tmp_path: Path) -> World:
    """An application with state, and a batch that was begun."""
    world = World(tmp_path / "world")
    world.create(**{"in": 1, "out": 1})
    for number in range(2):
        world.append("in", [("k", {"n": number}, number)], TEXT, JSON)
        process(topology(), world.config(partitions=1))
    world.append("in", [("k", {"n": 2}, 2)], TEXT, JSON)
    return world


def looked_at(world: World, bomb: Bomb) -> None:
    """Everything that opens a state folder; what is wrong with it may be an error."""
    folder = world.state_dir

    def opened(**given: Any) -> None:
        store = cs.open_store(folder, "rows", **given)
        list(store.all())
        store.get("k")
        store.to_polars()

    def app_store() -> None:
        with streams(topology(), world.config(partitions=1)) as app:
            list(app.store("rows").all())

    looks: list[Callable[[], Any]] = [
        opened,
        lambda: opened(as_of=0),
        lambda: opened(serdes={"key": TEXT, "value": JSON}),
        lambda: inspect_state(folder),
        lambda: verify_state(folder),
        lambda: BatchLog(folder).last_batch(),
        app_store,
        *(
            lambda argv=argv: main([*argv.split(), str(folder)])
            for argv in ("query", "state inspect", "state verify", "state rescale --partitions 3")
        ),
        lambda: main(["query", str(folder), "rows", "all"]),
        lambda: process(topology(), world.config(partitions=1)),
    ]
    for look in looks:
        with suppress(CrossStreamError, pa.ArrowException, SystemExit):
            look()
        assert not bomb.marker.exists()


@pytest.mark.parametrize("harm", FOLDERS.values(), ids=FOLDERS.keys())
def test_a_state_folder(stocked: World, bomb: Bomb, harm: Callable[[Path, Bomb], None]) -> None:
    harm(stocked.state_dir, bomb)
    looked_at(stocked, bomb)


def test_without_harm_all_of_them_see_the_state(stocked: World, bomb: Bomb, capsys: Any) -> None:
    looked_at(stocked, bomb)
    shown = capsys.readouterr()
    assert "no problems" in shown.out + shown.err
    assert "k    1" in shown.out
    assert dict(cs.open_store(stocked.state_dir, "rows").all()) == {"k": {"n": 2}}


# -- file topics ---------------------------------------------------------------------------------------

TOPICS = {
    "the description": "in/topic.json",
    "a segment": "in/0/*.seg",
}


@pytest.mark.parametrize("pattern", TOPICS.values(), ids=TOPICS.keys())
@pytest.mark.parametrize("appended", [False, True])
def test_a_file_topic(stocked: World, bomb: Bomb, pattern: str, appended: bool) -> None:
    paths = [path for path in stocked.topics_dir.glob(pattern) if path.is_file()]
    assert paths
    for path in paths:
        path.write_bytes((path.read_bytes() if appended else b"") + bomb.pickled)
    with suppress(CrossStreamError):
        process(topology(), stocked.config(partitions=1))
    with suppress(SystemExit):
        main(["topics", "read", "in", "--topics-dir", str(stocked.topics_dir)])
        main(["topics", "list", "--topics-dir", str(stocked.topics_dir)])
    assert not bomb.marker.exists()


def test_a_staged_file(stocked: World, bomb: Bomb) -> None:
    staged = stocked.state_dir / "staged"
    staged.mkdir(exist_ok=True)
    (staged / f"{bytes(16).hex()}-{'0' * 32}.staged").write_bytes(bomb.pickled)
    process(topology(), stocked.config(partitions=1))
    assert not bomb.marker.exists()
