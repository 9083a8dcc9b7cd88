"""`crossstream state`: what a folder holds, what is wrong with it, and another number of partitions."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream.cli.state import _time_text
from crossstream.storage.columns import from_record_batch, to_record_batch
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import Folder
from crossstream.storage.log_entries import Application, BatchEntry
from crossstream.storage.manifest import Manifest, read_manifest, write_manifest, write_run
from crossstream.storage.sorted_run import Run
from tests.cli.cases import call
from tests.docs.state_folder import Writer
from tests.docs.test_state_format import Model
from tests.storage.test_rescaling import BY_HASH, BY_PARTITIONERS, shops

BATCHES = 6


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def state(tmp_path: Path, model: Model) -> Path:
    return written(tmp_path / "state", model)


def written(folder: Path, model: Model, table_joined: cs.TableJoined = BY_HASH) -> Path:
    chance = random.Random(11)
    with closing(Writer(folder, shops(table_joined), 3, 4)) as writer:
        for _ in range(BATCHES):
            writer.run(model.records(chance))
    return folder


def answers(folder: Path) -> dict[str, dict[Any, Any]]:
    return {store: dict(cs.open_store(folder, store).all()) for store in ("left", "result", "past")}


def expected(model: Model) -> dict[str, dict[Any, Any]]:
    return {store: model.after[-1][store] for store in ("left", "result", "past")}


class TestInspect:
    def test_stores(self, capsys, state, model):
        outcome = call(capsys, "state", "inspect", state, "--format", "json")
        stores = {line["store"]: line for line in outcome.lines}
        assert sorted(stores) == [
            "join.references",
            "join.subscriptions",
            "left",
            "past",
            "result",
            "right@2",
        ]
        past = stores["past"]
        assert (past["kind"], past["key"], past["value"], past["partitions"]) == (
            "versioned",
            "string",
            "json",
            3,
        )
        assert past["stream_time"] == max(ts for _, ts in model.after[-1]["versions"])
        assert past["rows"] >= len(model.after[-1]["versions"])
        assert past["kept"] == list(range(BATCHES - 5, BATCHES))
        assert (past["queryable"], stores["join.references"]["queryable"]) == (True, False)
        assert stores["left"]["stream_time"] is None
        for name, line in stores.items():
            runs = set(state.glob(f"stores/{name.replace('@', '%40')}/*/*.arrow"))
            assert 0 < line["bytes"] <= sum(path.stat().st_size for path in runs)
            assert 0 < line["runs"] <= len(runs)
            assert 0 <= line["batch"] < BATCHES

    def test_partitions_of_a_store(self, capsys, state):
        lines = call(capsys, "state", "inspect", state, "left", "--format", "json").lines
        whole = call(capsys, "state", "inspect", state, "--format", "json").lines
        assert [line["partition"] for line in lines] == [0, 1, 2]
        left = next(line for line in whole if line["store"] == "left")
        for figure in ("rows", "bytes", "runs"):
            assert sum(line[figure] for line in lines) == left[figure]
        assert sum(line["rows"] for line in lines) >= len(answers(state)["left"])

    def test_as_a_table(self, capsys, state):
        outcome = call(capsys, "state", "inspect", state)
        assert outcome.code == 0
        head, _, *rows = outcome.out.splitlines()
        assert head.split() == (
            [
                "store",
                "kind",
                "key",
                "value",
                "partitions",
                "live",
                "rows",
                "on",
                "disk",
                "size",
                "runs",
                "stream",
                "time",
                "batch",
            ]
        )
        assert [row.split()[0] for row in rows][2:4] == ["left", "past"]
        assert "1970-01-01T00:00:0" in rows[3]
        assert outcome.err.splitlines()[0].startswith("application application, partitions: 3, batch 5, ")
        assert outcome.err.splitlines()[1] == "kept: batches 1 to 5"

    def test_live_rows_and_entries_on_disk(self, capsys, state):
        lines = call(capsys, "state", "inspect", state, "--format", "json").lines
        live = {line["store"]: line["live"] for line in lines}
        rows = {store: len(found) for store, found in answers(state).items()}
        assert live == {"join.references": None, "join.subscriptions": None, "right@2": None} | rows
        assert all(line["live"] is None or line["live"] <= line["rows"] for line in lines)

    @pytest.mark.parametrize("width", [80, 60, 150])
    def test_on_a_terminal_each_store_is_a_line(self, capsys, state, monkeypatch, width):
        monkeypatch.setattr("crossstream.cli.console.is_terminal", lambda stream: True)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", "1")
        lines = [line for line in call(capsys, "state", "inspect", state).out.splitlines() if line.strip()]
        assert len(lines) == 2 + 6
        assert max(map(len, lines)) <= width
        assert "live rows" in lines[0]
        assert ("stream time" in lines[0]) == (width == 150)
        sizes = [line["rows"] for line in call(capsys, "state", "inspect", state, "--format", "json").lines]
        assert all(f" {size:,} " in line for size, line in zip(sizes, lines[2:], strict=True))

    def test_before_the_first_batch(self, capsys, tmp_path):
        with closing(Writer(tmp_path, shops(BY_HASH), 2)):
            outcome = call(capsys, "state", "inspect", tmp_path)
        assert outcome.code == 0
        assert "no batch yet" in outcome.err
        assert outcome.out.splitlines()[-1].split()[-5:] == ["0.0", "kB", "0", "-", "-"]

    @pytest.mark.parametrize(
        ("argv", "code"),
        [
            (("inspect", "{state}", "none"), "CS-710"),
            (("inspect", "{state}/none"), "CS-713"),
            (("verify", "{state}/none"), "CS-713"),
            (("rescale", "{state}/none", "--partitions", 2), "CS-713"),
        ],
    )
    def test_what_is_not_there(self, capsys, state, argv, code):
        outcome = call(capsys, "state", *(str(word).format(state=state) for word in argv))
        assert outcome.code == 1
        assert f"[{code}]" in outcome.err
        assert not (state / "none").exists()


class TestRescale:
    @pytest.mark.parametrize("partitions", [1, 2, 7])
    def test_nothing_changes_but_the_partitions(self, capsys, state, model, partitions):
        outcome = call(capsys, "state", "rescale", state, "--partitions", partitions)
        assert outcome.code == 0
        assert f"partitions: 3 -> {partitions}, 6 stores" in outcome.err
        assert answers(state) == expected(model)
        assert dict(cs.open_store(state, "result", as_of=4).all()) == model.after[4]["result"]
        lines = call(capsys, "state", "inspect", state, "--format", "json").lines
        assert {line["partitions"] for line in lines} == {partitions}
        verified = call(capsys, "state", "verify", state)
        assert (verified.code, verified.out) == (0, "")
        assert verified.err.splitlines()[-1].startswith("batches 1 to 6: ")

    def test_the_same_number_again(self, capsys, state):
        outcome = call(capsys, "state", "rescale", state, "--partitions", 3)
        assert (outcome.code, outcome.err) == (0, "nothing to do: the state has 3 partitions already\n")
        assert BatchLog(state).newest().id == BATCHES - 1

    def test_more_than_there_may_be(self, capsys, state):
        outcome = call(capsys, "state", "rescale", state, "--partitions", 100_000_000)
        assert outcome.code == 1
        assert "[CS-201] partitions cannot be 100000000" in outcome.err
        assert f"where: folder {state}\n" in outcome.err
        assert "at most 65,536" in outcome.err
        assert BatchLog(state).newest().id == BATCHES - 1

    def test_while_the_application_runs(self, capsys, state):
        log = BatchLog(state)
        log.lock("application")
        outcome = call(capsys, "state", "rescale", state, "--partitions", 2)
        log.unlock()
        assert outcome.code == 1
        assert "[CS-720]" in outcome.err
        assert log.newest().partitions == 3

    def test_a_batch_that_was_begun(self, capsys, state):
        log = BatchLog(state)
        log.write_batch(BatchEntry(BATCHES, log.batch(BATCHES - 1).ranges))
        outcome = call(capsys, "state", "rescale", state, "--partitions", 2)
        assert outcome.code == 1
        assert "[CS-730]" in outcome.err
        assert log.newest().partitions == 3

    def test_rows_that_a_partitioner_placed(self, capsys, tmp_path):
        folder = written(tmp_path, Model(), BY_PARTITIONERS)
        outcome = call(capsys, "state", "rescale", folder, "--partitions", 2)
        assert outcome.code == 1
        assert "[CS-730] the rows of join.references, join.subscriptions, right@2 are placed" in outcome.err
        assert BatchLog(folder).newest().partitions == 3
        assert call(capsys, "state", "verify", folder).code == 0
        lines = call(capsys, "state", "inspect", folder, "--format", "json").lines
        assert [line["placed"] for line in lines if line["store"] == "right@2"] == ["by partitioner"]

    def test_damaged_state_is_not_rewritten(self, capsys, state):
        path = sorted((state / "stores" / "left").rglob("*.arrow"))[-1]
        flip(path)
        outcome = call(capsys, "state", "rescale", state, "--partitions", 2)
        assert outcome.code == 1
        assert "[CS-701]" in outcome.err
        assert f"store left, partition {path.parent.name}" in outcome.err
        assert BatchLog(state).newest().partitions == 3


# -- what verify finds ------------------------------------------------------------------------------------


class TestVerify:
    def test_sound_state(self, capsys, state):
        outcome = call(capsys, "state", "verify", state)
        assert (outcome.code, outcome.out) == (0, "")
        files = len([path for path in state.rglob("*") if path.is_file() and path.name not in ("lock",)])
        assert f"batches 1 to 5: {files - 1} files" in outcome.err  # application.json is read by all commands
        assert outcome.err.endswith("no problems\n")

    @pytest.mark.parametrize("kind", ["*.arrow", "*.manifest"])
    @pytest.mark.parametrize("harm", ["flipped", "cut", "empty", "gone"])
    def test_a_damaged_file(self, capsys, state, kind, harm):
        """The problem names store, partition and the batches that need the file, and nothing else is a problem."""
        path = sorted((state / "stores" / "left").rglob(kind))[3]
        HARMS[harm](path)
        problems = found(capsys, state)
        assert [(p["store"], p["partition"]) for p in problems] == [("left", int(path.parent.name))]
        assert problems[0]["file"] == str(path.relative_to(state))
        assert ("missing" if harm == "gone" else "damaged") in problems[0]["problem"]
        for batch in range(1, BATCHES):
            readable = True
            try:
                cs.open_store(state, "left", as_of=batch)
            except cs.StateError:
                readable = False
            assert readable == (batch not in problems[0]["batches"])

    @pytest.mark.parametrize("name", ["commits/000000000003.json", "batches/000000000003.json"])
    @pytest.mark.parametrize("harm", ["flipped", "cut", "empty"])
    def test_a_damaged_log(self, capsys, state, name, harm):
        HARMS[harm](state / name)
        problems = found(capsys, state)
        assert [(p["store"], p["file"]) for p in problems] == [(None, name)]
        assert problems[0]["batches"] == ([3] if name.startswith("commits") else [])

    def test_a_missing_commit(self, capsys, state):
        (state / "commits" / f"{3:012d}.json").unlink()
        assert [(p["problem"], p["batches"]) for p in found(capsys, state)] == [
            ("the commit is missing", [3])
        ]

    def test_a_damaged_application(self, capsys, state):
        flip(state / "application.json")
        assert [p["file"] for p in found(capsys, state)] == ["application.json"]

    def test_rows_in_the_partition_of_their_key_where_the_second_one_decides(self, capsys, state):
        log = BatchLog(state)
        application = log.application()
        log.write_application(msgspec.structs.replace(application, by_key2=("join.subscriptions",)))
        problems = found(capsys, state)
        assert {p["store"] for p in problems} == {"join.subscriptions"}
        assert all(p["problem"].endswith("rows belong to another partition") for p in problems)

    def test_files_of_no_batch_are_told_but_no_problem(self, capsys, state):
        stray = state / "stores" / "left" / "0" / f"{99:012d}-abc.manifest"
        stray.write_bytes(b"whatever")
        (stray.parent / "x.tmp").write_bytes(b"being written")
        (state / "stores" / "other" / "0").mkdir(parents=True)
        (state / "stores" / "other" / "0" / "old.arrow").write_bytes(b"")
        outcome = call(capsys, "state", "verify", state)
        assert (outcome.code, outcome.out) == (0, "")
        assert "2 files of no batch" in outcome.err
        assert str(stray.relative_to(state)) in outcome.err
        lines = call(capsys, "state", "verify", state, "--format", "json").lines
        assert [line["leftover"] for line in lines] == [
            "stores/left/0/000000000099-abc.manifest",
            "stores/other/0/old.arrow",
        ]

    def test_as_a_table(self, capsys, state):
        path = newest_manifest(state)
        path.unlink()
        outcome = call(capsys, "state", "verify", state)
        assert outcome.code == 1
        head, _, line = outcome.out.splitlines()
        assert head.split() == ["store", "partition", "batches", "file", "problem"]
        assert line.startswith("left ")
        assert path.name in line
        assert line.endswith("is missing")
        assert outcome.err.endswith("1 problem\n")


HARMS: dict[str, Callable[[Path], Any]] = {
    "flipped": lambda path: flip(path),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def found(capsys: pytest.CaptureFixture[str], folder: Path) -> list[dict[str, Any]]:
    """The problems that verify prints; it must fail."""
    outcome = call(capsys, "state", "verify", folder, "--format", "json")
    assert outcome.code == 1, outcome
    return [line for line in outcome.lines if "problem" in line]


def newest_manifest(folder: Path, store: str = "left", partition: int = 1) -> Path:
    name = BatchLog(folder).newest().versions[store][partition]
    return folder / "stores" / store / str(partition) / name


# Files whose checksums are right, and that are wrong all the same: what a faulty writer would leave.


def rewritten_run(path: Path, manifest: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Puts other rows into a run file, and into the manifest what a writer would note of it."""
    with pa.ipc.open_file(path) as reader:
        columns = change(dict(from_record_batch(reader.get_batch(0))))
    ref = write_run(Folder(path.parent), path.name, Run(columns))

    def noted(content: Manifest) -> Manifest:
        levels = tuple(
            msgspec.structs.replace(
                level, segments=tuple(ref if p.file == path.name else p for p in level.segments)
            )
            for level in content.levels
        )
        return msgspec.structs.replace(content, levels=levels)

    rewritten_manifest(manifest, noted)


def rewritten_manifest(path: Path, change: Callable[[Manifest], Manifest]) -> None:
    folder = Folder(path.parent)
    write_manifest(folder, change(read_manifest(folder, path.name)))


def reversed_rows(columns: dict[str, Any]) -> dict[str, Any]:
    rows = np.arange(len(columns["h"]))[::-1]
    batch = to_record_batch(columns)
    return dict(
        from_record_batch(
            pa.RecordBatch.from_arrays([c.take(pa.array(rows)) for c in batch], batch.schema.names)
        )
    )


def with_column(name: str, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda columns: {**columns, name: value(columns[name])}


def doubled(columns: dict[str, Any]) -> dict[str, Any]:
    batch = to_record_batch(columns)
    rows = pa.array(np.repeat(np.arange(batch.num_rows), 2))
    return dict(
        from_record_batch(pa.RecordBatch.from_arrays([c.take(rows) for c in batch], batch.schema.names))
    )


@pytest.fixture
def one(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with one batch in one partition; the manifest of its store "left"."""
    records = [(b"%d" % n, json.dumps({"n": n, "to": f"r{n % 2}"}).encode(), n) for n in range(20)]
    with closing(Writer(tmp_path, shops(BY_HASH), 1)) as writer:
        writer.run({"left": records, "right": [], "past": []})
    return tmp_path, newest_manifest(tmp_path, "left", 0)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (reversed_rows, "its rows are not sorted"),
        (doubled, "rows of one identity twice"),
        (with_column("h", lambda h: h + np.uint64(1)), "the column h is not the hash of the column key"),
        (
            with_column("key", lambda key: pa.array([None, *key.to_pylist()[1:]], key.type)),
            "the column key has nulls",
        ),
        (with_column("gone", lambda gone: gone + np.uint8(2)), "other values than 0 and 1"),
        (
            lambda columns: {**columns, "more": columns["ts"]},
            "its columns are not those of a key-value store",
        ),
    ],
)
def test_a_run_that_is_wrong_with_the_right_checksum(capsys, one, change, wanted):
    folder, manifest = one
    rewritten_run(next(manifest.parent.glob("*.arrow")), manifest, change)
    problems = found(capsys, folder)
    assert any(wanted in problem["problem"] for problem in problems), problems
    assert {(p["store"], p["partition"], *p["batches"]) for p in problems} == {("left", 0, 0)}


def piece_with(**fields: Any) -> Callable[[Manifest], Manifest]:
    """A manifest whose first segment says something else."""

    def change(manifest: Manifest) -> Manifest:
        first, *rest = manifest.levels
        segments = (msgspec.structs.replace(first.segments[0], **fields), *first.segments[1:])
        return msgspec.structs.replace(
            manifest, levels=(msgspec.structs.replace(first, segments=segments), *rest)
        )

    return change


def twice_in_a_slot(manifest: Manifest) -> Manifest:
    first, *rest = manifest.levels
    again = msgspec.structs.replace(first, segments=(*first.segments, *first.segments))
    return msgspec.structs.replace(manifest, levels=(again, *rest))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (piece_with(stop=99), "takes rows up to 99, and there are 20"),
        (piece_with(start=1), "other hashes for rows 1 to 20"),
        (piece_with(start=7, stop=7), "not a valid range"),
        (piece_with(low=5), "other hashes for rows 0 to 20"),
        (twice_in_a_slot, "overlap the rows before them"),
        (lambda manifest: msgspec.structs.replace(manifest, kind="versioned"), "of a versioned store"),
        (lambda manifest: msgspec.structs.replace(manifest, batch=5), "after a batch that leads to it"),
        (lambda manifest: msgspec.structs.replace(manifest, format=99), "format 99"),
    ],
)
def test_a_manifest_that_is_wrong_with_the_right_checksum(capsys, one, change, wanted):
    folder, manifest = one
    rewritten_manifest(manifest, change)
    problems = found(capsys, folder)
    assert any(wanted in problem["problem"] for problem in problems), problems
    assert {(p["store"], p["partition"], *p["batches"]) for p in problems} == {("left", 0, 0)}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"partitions": 2}, "belong to another partition"),
        ({"id": 7}, "it is that of batch 7"),
        ({"versions": {"unknown": {0: "x"}}}, "stores that the application has not: unknown"),
        ({"versions": {"left": {4: "x.manifest"}}}, "the manifest x.manifest is missing"),
    ],
)
def test_a_commit_that_is_wrong_with_the_right_checksum(capsys, one, change, wanted):
    folder, _ = one
    log = BatchLog(folder)
    log._write("commits/000000000000.json", msgspec.structs.replace(log.commit(0), **change))
    problems = found(capsys, folder)
    assert any(wanted in problem["problem"] for problem in problems), problems


def test_rows_placed_by_a_partitioner_have_no_range(capsys, one):
    """The same rows in a store that is said to be placed by hash are in the wrong partition."""
    folder, _ = one
    log = BatchLog(folder)
    log._write("commits/000000000000.json", msgspec.structs.replace(log.commit(0), partitions=2))
    application = log.application()
    assert isinstance(application, Application)
    log.write_application(msgspec.structs.replace(application, placed=tuple(application.stores)))
    assert call(capsys, "state", "verify", folder).code == 0


def test_a_partition_that_there_is_not(capsys, one):
    folder, manifest = one
    moved = manifest.parent.with_name("3")
    manifest.parent.rename(moved)
    log = BatchLog(folder)
    commit = log.commit(0)
    versions = {**commit.versions, "left": {3: manifest.name}}
    log._write("commits/000000000000.json", msgspec.structs.replace(commit, versions=versions))
    assert any("there are 1 partitions only" in problem["problem"] for problem in found(capsys, folder))


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (1 << 61, str(1 << 61)),
    ],
)
def test_stream_times_of_any_year_are_shown(milliseconds: int, shown: str) -> None:
    assert _time_text(milliseconds) == shown
