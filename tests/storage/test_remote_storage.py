"""Every storage keeps one contract: memory, a folder, an object store with and without copies on this machine."""

from __future__ import annotations

import os
import pickle
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from crossstream.errors import StateError
from crossstream.storage.files import FEW, Storage, in_threads
from crossstream.storage.manifest import SegmentRef, read_manifest, read_run, write_run
from crossstream.storage.remote import Cache, RemoteRoot
from crossstream.storage.root import LocalRoot, StateRoot, root_of
from crossstream.storage.sorted_run import Run, sort_rows
from tests.object_store import KEY, SECRET, ObjectStore, cache, object_server, object_store
from tests.storage.rows import Memory, key_value_rows

pytestmark = pytest.mark.slow

__all__ = ["cache", "object_server", "object_store"]

KINDS = ["local", "object store", "object store, no copies"]


@pytest.fixture(params=KINDS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> StateRoot:
    return root_of_kind(request.param, request, tmp_path)


def root_of_kind(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> StateRoot:
    """Where state may be. Names of folders recur, and one test's puts must not end up in the folder of another."""
    kind, _, without = name.partition(",")
    if kind == "local":
        return LocalRoot(tmp_path / "state")
    store = request.getfixturevalue("object_store")
    return RemoteRoot(store.uri(f"{tmp_path.name}-{uuid4()}"), cached=not without)


@pytest.fixture
def on_s3(object_store: ObjectStore, tmp_path: Path) -> Iterator[RemoteRoot]:
    root = RemoteRoot(object_store.uri(tmp_path.name))
    yield root
    root.close()


def some_run(rows: int = 20) -> Run:
    return sort_rows(key_value_rows({b"%d" % n: b"value %d" % n for n in range(rows)}))


class TestStorage:
    @pytest.fixture(params=["memory", *KINDS])
    def storage(self, request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
        if request.param == "memory":
            return Memory()
        return root_of_kind(request.param, request, tmp_path).storage("stores/a%2Fb/0")

    def test_files_are_there(self, storage: Storage) -> None:
        storage.write("b", b"2")
        storage.write("a", memoryview(b"1"))
        storage.write("c", some_run().columns["key"].buffers()[2])
        assert storage.read("a").to_pybytes() == b"1"
        assert storage.read("b").to_pybytes() == b"2"
        with pytest.raises(FileNotFoundError):
            storage.read("never")

    def test_a_file_may_be_large(self, storage: Storage) -> None:
        """An object store takes it in parts."""
        data = os.urandom(1 << 20) * 12
        storage.write("large", data)
        assert storage.read("large").to_pybytes() == data

    def test_many_files_at_a_time(self, storage: Storage) -> None:
        for number in range(200):
            storage.write(f"{number:03d}", b"%d" % number)
        assert storage.read("123").to_pybytes() == b"123"

    @pytest.mark.parametrize("rows", [20, FEW + 1])
    def test_runs_come_back(self, storage: Storage, rows: int) -> None:
        """Those of many rows are written buffer by buffer."""
        run = some_run(rows)
        ref = write_run(storage, "run.arrow", run)
        assert storage.read("run.arrow").size == ref.size
        back = read_run(storage, ref)
        assert {name: back[name].tolist() for name in ("h", "gone")} == {
            name: run[name].tolist() for name in ("h", "gone")
        }
        assert back["value"].to_pylist() == run["value"].to_pylist()

    def test_part_of_a_run_comes_back(self, storage: Storage) -> None:
        part = some_run(3 * FEW).slice(7, 2 * FEW)
        ref = write_run(storage, "run.arrow", part)
        assert read_run(storage, ref)["value"].to_pylist() == part["value"].to_pylist()

    def test_a_missing_run_is_told(self, storage: Storage) -> None:
        ref = write_run(storage, "run.arrow", some_run())
        with pytest.raises(StateError, match=r"other\.arrow is missing") as caught:
            read_run(storage, replace(ref, file="other.arrow"))
        assert caught.value.code == "CS-701"


class TestRoot:
    def test_small_files_change(self, root: StateRoot) -> None:
        with pytest.raises(FileNotFoundError):
            root.read("application.json")
        root.write("application.json", b"one")
        root.write("application.json", b"two", forced=True)
        assert root.read("application.json") == b"two"
        root.delete("application.json")
        root.delete("application.json")
        with pytest.raises(FileNotFoundError):
            root.read("application.json")

    def test_what_is_there_is_listed(self, root: StateRoot) -> None:
        assert root.names("commits") == []
        assert root.tree("stores") == {}
        for number in range(3):
            root.write(f"commits/{number:03d}.json", b"{}")
        for place in ("stores/x/0", "stores/x/1", "stores/y/0"):
            root.storage(place).write("b.arrow", b"2")
            root.storage(place).write("a.arrow", b"1")
        root.settled()
        assert root.names("commits") == ["000.json", "001.json", "002.json"]
        files = {place: names for place, names in root.tree("stores").items() if names}
        places = ("stores/x/0", "stores/x/1", "stores/y/0")
        assert files == {place: ["a.arrow", "b.arrow"] for place in places}

    def test_what_nobody_needs_is_discarded(self, root: StateRoot) -> None:
        names = [f"commits/{number}.json" for number in range(50)]
        in_threads(lambda name: root.write(name, b"{}"), names)
        assert len(root.names("commits")) == 50
        root.discard(names[:2], names[2:40])
        root.discard(names[40:41], ["commits/never.json"])
        root.close()
        assert root.names("commits") == sorted(f"{number}.json" for number in range(41, 50))

    def test_the_address_makes_the_same_root(self, root: StateRoot) -> None:
        root.write("application.json", b"one")
        again = type(root)(root.path) if isinstance(root, LocalRoot) else RemoteRoot(root.address)
        assert again.read("application.json") == b"one"
        assert (str(again), again.here) == (str(root), root.here)


def test_a_file_uri_is_a_folder(tmp_path: Path) -> None:
    """The same as its path, so that the lock of one is the lock of the other."""
    assert root_of(f"file://{tmp_path}/a%20b") == LocalRoot(tmp_path / "a b") == root_of(tmp_path / "a b")
    lock = root_of((tmp_path / "state").as_uri()).lock("first")
    with pytest.raises(StateError) as caught:
        root_of(tmp_path / "state").lock("second")
    assert caught.value.code == "CS-720"
    lock.release()


def test_an_empty_object_is_not_there(on_s3: RemoteRoot, object_store: ObjectStore, tmp_path: Path) -> None:
    """Some clients put one in the place of a folder."""
    on_s3.write("commits/1.json", b"{}")
    object_store.put(tmp_path.name, "commits/2.json", b"")
    assert on_s3.names("commits") == ["1.json"]
    with pytest.raises(FileNotFoundError):
        on_s3.read("commits/2.json")


def test_a_file_that_another_writer_created_is_not_replaced(on_s3: RemoteRoot) -> None:
    on_s3.create("commits/1.json", b"{}")
    on_s3.create("commits/1.json", b"{}")  # as after a put whose answer was lost
    with pytest.raises(FileExistsError):
        on_s3.create("commits/1.json", b"[]")
    assert on_s3.read("commits/1.json") == b"{}"


def test_names_are_those_that_pyarrow_gives(
    on_s3: RemoteRoot, object_store: ObjectStore, tmp_path: Path
) -> None:
    """State may have been written by another client, such as `pyarrow.fs`."""
    folder = "stores/a%2Fb ä/0"
    object_store.put(tmp_path.name, f"{folder}/old.arrow", b"1")
    on_s3.write(f"{folder}/new.arrow", b"2")
    assert on_s3.tree("stores") == {folder: ["new.arrow", "old.arrow"]}
    assert object_store.names(tmp_path.name) == {f"{folder}/new.arrow", f"{folder}/old.arrow"}


class TestCopies:
    @pytest.fixture
    def storage(self, on_s3: RemoteRoot) -> Any:
        return on_s3.storage("stores/x/0")

    @pytest.fixture
    def ref(self, on_s3: RemoteRoot, storage: Any) -> SegmentRef:
        ref = write_run(storage, "run.arrow", some_run())
        on_s3.settled()
        return ref

    @pytest.fixture
    def copy(self, on_s3: RemoteRoot, ref: SegmentRef) -> Path:
        return on_s3.here / "stores" / "x" / "0" / ref.file

    def test_who_writes_a_file_has_a_copy(
        self,
        object_store: ObjectStore,
        tmp_path: Path,
        storage: Any,
        ref: SegmentRef,
        copy: Path,
        cache: Path,
    ) -> None:
        assert copy.is_relative_to(cache)
        assert copy.read_bytes() == object_store.objects(tmp_path.name)["stores/x/0/run.arrow"]
        object_store.delete(tmp_path.name, "stores/x/0/run.arrow")
        assert read_run(storage, ref).rows == 20

    def test_who_reads_a_file_gets_a_copy(self, storage: Any, ref: SegmentRef, copy: Path) -> None:
        whole = copy.read_bytes()
        copy.unlink()
        assert read_run(storage, ref).rows == 20
        assert copy.read_bytes() == whole

    def test_copies_are_for_this_user_only(self, on_s3: RemoteRoot, copy: Path) -> None:
        assert copy.exists()
        assert stat.S_IMODE(on_s3.here.stat().st_mode) == 0o700

    @pytest.mark.parametrize("damage", [b"", b"short", None])
    def test_a_damaged_copy_is_fetched_again(
        self, storage: Any, ref: SegmentRef, copy: Path, damage: bytes | None
    ) -> None:
        whole = copy.read_bytes()
        copy.write_bytes(whole[:99] + bytes([whole[99] ^ 1]) + whole[100:] if damage is None else damage)
        assert read_run(storage, ref)["value"].to_pylist() == some_run()["value"].to_pylist()
        assert copy.read_bytes() == whole

    def test_a_damaged_manifest_is_fetched_again(self, on_s3: RemoteRoot, storage: Any) -> None:
        from crossstream.storage.manifest import Manifest, write_manifest

        write_manifest(storage, Manifest("0.manifest", "key-value", 3))
        copy = on_s3.here / "stores" / "x" / "0" / "0.manifest"
        copy.write_bytes(copy.read_bytes().replace(b"3", b"4"))
        assert read_manifest(storage, "0.manifest").batch == 3

    @pytest.mark.parametrize("copied", [True, False])
    def test_a_damaged_object_is_told(
        self,
        object_store: ObjectStore,
        tmp_path: Path,
        storage: Any,
        ref: SegmentRef,
        copy: Path,
        copied: bool,
    ) -> None:
        """Whether there is no copy, or a damaged one."""
        whole = copy.read_bytes()
        object_store.put(tmp_path.name, "stores/x/0/run.arrow", whole[:-9] + b"!" + whole[-8:])
        copy.write_bytes(whole[:-8]) if copied else copy.unlink()
        with pytest.raises(StateError, match="checksum") as caught:
            read_run(storage, ref)
        assert caught.value.code == "CS-701"

    def test_a_file_that_is_deleted_has_no_copy(self, on_s3: RemoteRoot, ref: SegmentRef, copy: Path) -> None:
        on_s3.delete(f"stores/x/0/{ref.file}")
        assert not copy.exists()

    @pytest.mark.parametrize("reads", [True, False])
    def test_copies_of_files_that_others_deleted_go(
        self,
        on_s3: RemoteRoot,
        storage: Any,
        ref: SegmentRef,
        copy: Path,
        reads: bool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """On a machine that reads as on one that writes; young ones stay, for theirs may be on their way."""
        storage.write("used", b"1")
        on_s3.settled()
        used, left, new = (copy.with_name(name) for name in ("used", "left", "new"))
        for path, age in ((used, 100), (left, 100), (new, 0)):
            path.touch()
            os.utime(path, (time.time() - age,) * 2)
        storage.write("other", b"1")
        assert left.exists(), "that is not done all the time"
        monkeypatch.setattr("crossstream.storage.remote.SWEEP_SECONDS", 0.0)
        if reads:
            copy.unlink()
            read_run(storage, ref)
        else:
            storage.write("another", b"1")
        on_s3.settled()
        assert (used.exists(), left.exists(), new.exists()) == (True, False, True)

    def test_one_process_of_a_machine_looks_for_them(self, tmp_path: Path) -> None:
        mark = tmp_path / "swept"
        assert not Cache(tmp_path).is_due(), "there is nothing yet"
        assert not Cache(tmp_path).is_due(), "another process has just done it"
        one, other = Cache(tmp_path), Cache(tmp_path)
        os.utime(mark, (0, 0))
        assert one.is_due()
        assert not other.is_due()

    def test_without_a_disk_for_copies_it_goes_on(
        self, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path / "file"))
        storage = RemoteRoot(object_store.uri(tmp_path.name)).storage("stores/x/0")
        ref = write_run(storage, "run.arrow", some_run())
        assert read_run(storage, ref).rows == 20
        assert [record.message for record in caplog.records if "no copies" in record.message]


class TestSecrets:
    def test_a_root_does_not_show_them(self, on_s3: RemoteRoot) -> None:
        for text in (str(on_s3), repr(on_s3), str(on_s3.here)):
            assert SECRET not in text
            assert KEY not in text
            assert "testing" not in text
        assert str(on_s3).startswith("s3://bucket/")

    def test_nor_do_errors(self, object_store: ObjectStore) -> None:
        uri = object_store.uri("x").replace("region=", "session_tokn=also-secret&region=")
        with pytest.raises(StateError) as caught:
            RemoteRoot(uri).read("application.json")
        error = pickle.loads(pickle.dumps(caught.value))
        assert error.code == "CS-723"
        for secret in (SECRET, "testing%2Fsecret", KEY, "also-secret"):
            assert secret not in str(error)
        assert caught.value.__cause__ is None


def test_what_could_not_be_put_is_told_in_the_end(object_store: ObjectStore) -> None:
    root = RemoteRoot(object_store.uri("state", bucket="nowhere"))
    storage = root.storage("stores/x/0")
    storage.write("one.arrow", b"1")
    storage.write("two.arrow", b"2")
    with pytest.raises(StateError, match=r"one\.arrow cannot be written") as caught:
        root.settled()
    assert caught.value.code == "CS-707"
    root.settled()
    storage.write("three.arrow", b"3")
    root.close()


def test_there_may_be_no_such_bucket(object_store: ObjectStore) -> None:
    root = RemoteRoot(object_store.uri("state", bucket="nowhere"))
    with pytest.raises(StateError, match="no bucket nowhere") as caught:
        root.lock("app")
    assert caught.value.code == "CS-723"
    assert caught.value.where == {"folder": "s3://nowhere/state"}
    with pytest.raises(StateError, match="NoSuchBucket") as caught:
        root.write("application.json", b"{}")
    assert caught.value.code == "CS-707"
