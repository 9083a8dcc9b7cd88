"""A lease: one writer at a time without locks. An owner that is gone is followed, one that lives is not."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crossstream.errors import StateError
from crossstream.storage import lease as leases
from crossstream.storage.bucket import AWAY
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.lease import Lease
from crossstream.storage.log_entries import Application, BatchEntry, Commit, Publication
from crossstream.storage.manifest import Manifest, read_manifest, write_manifest
from crossstream.storage.remote import RemoteRoot
from crossstream.storage.root import FileLock
from crossstream.storage.vacuum import Vacuum
from tests.object_store import ObjectStore, cache, object_server, object_store

pytestmark = pytest.mark.slow

__all__ = ["cache", "object_server", "object_store"]

BEAT, LEASE = 0.05, 0.6


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BEAT_SECONDS", BEAT)
    monkeypatch.setattr(leases, "LEASE_SECONDS", LEASE)


class Objects:
    """A store in memory. It can be away, ignore conditions, or lose the answer to a put."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[bytes, str]] = {}
        self.away = self.ignores = self.loses = False
        self._turn = threading.Lock()
        self._puts = 0

    def __str__(self) -> str:
        return "the store"

    def tagged(self, name: str) -> tuple[pa.Buffer, str]:
        self._check()
        if name not in self.found:
            raise FileNotFoundError(name)
        data, tag = self.found[name]
        return pa.py_buffer(data), tag

    def create(self, name: str, data: bytes) -> str:
        return self._put(name, data, None)

    def replace(self, name: str, data: bytes, tag: str) -> str:
        return self._put(name, data, tag)

    def _put(self, name: str, data: bytes, tag: str | None) -> str:
        self._check()
        with self._turn:
            if not self.ignores and self.found.get(name, (b"", None))[1] != tag:
                raise FileExistsError(name)
            self._puts += 1
            self.found[name] = data, str(self._puts)
            if self.loses:
                raise FileExistsError(name)  # that of the retry
            return str(self._puts)

    def delete(self, names: list[str]) -> None:
        self._check()
        for name in names:
            self.found.pop(name, None)

    def _check(self) -> None:
        if self.away:
            raise StateError("the store does not answer", code=AWAY)


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def held(objects: Objects) -> Iterator[Lease]:
    lease = Lease.acquired(objects, "first")
    yield lease
    lease.release()


def refused(objects: Objects, owner: str = "second") -> StateError:
    with pytest.raises(StateError) as caught:
        Lease.acquired(objects, owner)
    return caught.value


def gone(lease: Lease) -> None:
    """Its process is killed: it does not renew the lease, and does not give it back."""
    lease._stop.set()
    assert lease._thread is not None
    lease._thread.join()


def test_an_owner_that_lives_is_not_followed(objects: Objects, held: Lease) -> None:
    began = time.monotonic()
    error = refused(objects)
    assert error.code == "CS-720"
    assert error.where == {"folder": "the store", "owner": "first"}
    assert error.next
    assert time.monotonic() - began < LEASE, "that is seen at once"
    held.assure()


def test_an_owner_that_gave_it_back_is_followed_at_once(objects: Objects, held: Lease) -> None:
    held.release()
    began = time.monotonic()
    second = Lease.acquired(objects, "second")
    assert time.monotonic() - began < LEASE
    second.assure()
    second.release()
    assert objects.found == {}


def test_an_owner_that_is_gone_is_followed_when_the_lease_has_run_out(
    objects: Objects, held: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    gone(held)
    began = time.monotonic()
    second = Lease.acquired(objects, "second")
    assert LEASE <= time.monotonic() - began < 3 * LEASE
    assert "the store is held by first: waiting up to" in caplog.text
    second.assure()
    second.release()


def test_an_owner_that_comes_back_finds_it_taken(objects: Objects, held: Lease) -> None:
    """A machine that slept, for instance, whatever its clocks show."""
    gone(held)
    second = Lease.acquired(objects, "second")
    with pytest.raises(StateError) as caught:
        held.assure()
    assert caught.value.code == "CS-720"
    assert caught.value.where == {"folder": "the store", "owner": "second"}
    held.release()
    second.assure()
    second.release()


def test_an_owner_finds_that_out_by_itself(objects: Objects, held: Lease) -> None:
    objects.found["lease.json"] = b'{"owner": "other", "token": "another", "beat": 1}', "x"
    time.sleep(4 * BEAT)
    objects.away = True
    with pytest.raises(StateError) as caught:
        held.assure(within=1000)
    assert caught.value.code == "CS-720"
    assert caught.value.where["owner"] == "other"


def test_a_lease_that_was_deleted_is_lost(objects: Objects, held: Lease) -> None:
    objects.found.clear()
    with pytest.raises(StateError) as caught:
        held.assure()
    assert caught.value.code == "CS-720"
    assert "gone" in str(caught.value.where["owner"])


def test_of_several_at_the_same_moment_one_gets_it(objects: Objects) -> None:
    got: list[Lease] = []
    errors: list[StateError] = []

    def start(name: str) -> None:
        try:
            got.append(Lease.acquired(objects, name))
        except StateError as error:
            errors.append(error)

    def all_start() -> None:
        threads = [threading.Thread(target=start, args=(f"number {n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    all_start()
    assert (len(got), {error.code for error in errors}) == (1, {"CS-720"})
    gone(got.pop())
    all_start()  # they all watch, and one takes the place of the owner that is gone
    assert (len(got), {error.code for error in errors}) == (1, {"CS-720"})
    got[0].assure()
    got[0].release()


def test_an_owner_that_cannot_renew_may_not_commit(objects: Objects, held: Lease) -> None:
    objects.away = True
    held.assure(within=1000)
    with pytest.raises(StateError) as caught:
        held.assure()
    assert caught.value.code == AWAY
    objects.away = False
    held.assure()


def test_an_answer_that_was_lost_loses_no_lease(objects: Objects, held: Lease) -> None:
    """The client repeats a put that has succeeded, and the condition does not hold any more."""
    objects.loses = True
    held.assure()
    held.assure()


def test_a_lease_that_cannot_be_read_runs_out(objects: Objects) -> None:
    objects.create("lease.json", b"{")
    began = time.monotonic()
    lease = Lease.acquired(objects, "first")
    assert time.monotonic() - began >= LEASE
    lease.release()


def test_a_store_that_ignores_conditions_is_refused(objects: Objects) -> None:
    objects.ignores = True
    error = refused(objects)
    assert error.code == "CS-723"
    assert "If-None-Match" in error.what


def stopped(
    log: BatchLog, put: str, folder: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process stands still right before its next put of this kind, until others did what they do."""
    method, roots = getattr(RemoteRoot, put), [log.root]

    def held_back(self: RemoteRoot, name: str, *arguments: Any, **more: Any) -> Any:
        if self in roots and name.startswith(folder):
            roots.clear()
            if isinstance(log._lock, Lease):
                gone(log._lock)
            act()
        return method(self, name, *arguments, **more)

    monkeypatch.setattr(RemoteRoot, put, held_back)


def put_manifest(log: BatchLog, batch: int) -> str:
    """The manifest of a partition of the store ``s`` without rows, which no commit leads to yet."""
    name = f"{batch:012d}-{uuid.uuid4().hex[:8]}.manifest"
    write_manifest(log.root.storage("stores/s/0"), Manifest(name, "key-value", batch))
    log.settled()
    return name


class TestLog:
    """The batch log on an object store."""

    @pytest.fixture(autouse=True)
    def _at_leisure(self, _in_haste: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store takes its time to answer on a busy machine."""
        monkeypatch.setattr(leases, "LEASE_SECONDS", 2.0)

    @pytest.fixture
    def place(self, object_store: ObjectStore, tmp_path: Path) -> str:
        return object_store.uri(tmp_path.name)

    def test_an_application_that_lost_it_commits_nothing(self, place: str) -> None:
        log, other = BatchLog(place), BatchLog(place)
        log.lock("app")
        log.write_commit(Commit(0, 1))
        assert isinstance(log._lock, Lease)
        gone(log._lock)
        other.lock("app")
        with pytest.raises(StateError) as caught:
            log.write_commit(Commit(1, 1))
        assert caught.value.code == "CS-720"
        assert "app, process" in str(caught.value.where["owner"])
        assert log.commits() == [0]
        other.write_commit(Commit(1, 1))
        log.unlock()
        other.unlock()
        assert RemoteRoot(place).names("") == []

    def test_a_put_that_the_network_held_back_replaces_no_commit(self, place: str) -> None:
        """The owner has just renewed its lease when its machine stops; later its put of the commit goes on."""
        log, other = BatchLog(place), BatchLog(place)
        log.lock("app")
        assert isinstance(log._lock, Lease)
        gone(log._lock)
        other.lock("app")
        other.write_commit(Commit(0, 1, time=2.0))
        log._lock = None
        with pytest.raises(StateError, match="another application has committed batch 0") as caught:
            log.write_commit(Commit(0, 1, time=1.0))
        assert caught.value.code == "CS-720"
        assert other.commit(0).time == 2.0
        other.unlock()

    def test_an_entry_of_an_attempt_before_is_replaced_by_the_owner_alone(self, place: str) -> None:
        log, other = BatchLog(place), BatchLog(place)
        log.lock("app")
        log.write_batch(BatchEntry(0, (), 1.0))
        assert isinstance(log._lock, Lease)
        gone(log._lock)
        other.lock("app")
        other.write_batch(BatchEntry(0, (), 2.0))
        with pytest.raises(StateError) as caught:
            log.write_batch(BatchEntry(0, (), 3.0))
        assert caught.value.code == "CS-720"
        assert other.batch(0).time == 2.0
        log.unlock()
        other.unlock()

    @pytest.mark.parametrize("has_written", [False, True])
    def test_a_note_that_was_held_back_replaces_nothing(
        self, place: str, has_written: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An owner stops between its last look at the lease and its put of the note; another one has begun meanwhile.

        The other one runs the batch again. It has written its own note, or not yet.
        """
        log, other = BatchLog(place), BatchLog(place)
        log.lock("app")
        log.write_batch(BatchEntry(0, (), 1.0))
        theirs = Publication(Commit(0, 1, time=2.0), (), "")

        def begin() -> None:
            other.lock("app")
            entry = other.take_over(Commit(-1, 1))
            assert entry is not None
            if has_written:
                other.write_publication(entry, theirs)

        stopped(log, "replace", "batches", begin, monkeypatch)
        with pytest.raises(StateError) as caught:
            log.write_publication(BatchEntry(0, (), 1.0), Publication(Commit(0, 1, time=1.0), (), ""))
        assert caught.value.code == "CS-720"
        found = other.batch(0)
        assert (found.time, found.publication) == (1.0, theirs if has_written else None)
        other.unlock()

    def test_a_note_that_came_first_is_taken_over(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The put of the earlier owner arrives between the look of the next one and its own put."""
        log, other = BatchLog(place), BatchLog(place)
        log.lock("app")
        log.write_batch(BatchEntry(0, (), 1.0))
        theirs = Publication(Commit(0, 1, time=2.0), (), "")
        entry = BatchEntry(0, (), 1.0)
        stopped(other, "replace", "batches", lambda: log.write_publication(entry, theirs), monkeypatch)
        other._lock = FileLock(BytesIO())
        found = other.take_over(Commit(-1, 1))
        assert found is not None
        assert found.publication == other.batch(0).publication == theirs
        log.unlock()

    def test_an_entry_that_was_held_back_is_replaced(
        self, place: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It arrives when the next owner has begun, which has no such batch yet. Nothing is published from it."""
        log, other = BatchLog(place), BatchLog(place)
        log.lock("app")

        def begin() -> None:
            other.lock("app")
            assert other.take_over(Commit(-1, 1)) is None

        stopped(log, "create", "batches", begin, monkeypatch)
        entry = BatchEntry(0, (), 1.0)
        log.write_batch(entry)
        with pytest.raises(StateError) as caught:
            log.write_publication(entry, Publication(Commit(0, 1), (), ""))
        assert caught.value.code == "CS-720"
        other.write_batch(BatchEntry(0, (), 2.0))
        assert (other.batch(0).time, other.batch(0).publication) == (2.0, None)
        other.unlock()

    def test_an_entry_that_was_removed_is_written_again(self, place: str) -> None:
        """An owner that was stopped while it removed an entry continues, when the next one has written its own."""
        log = BatchLog(place)
        log.lock("app")
        log.write_batch(BatchEntry(0, (), 1.0))
        BatchLog(place).forget(0)
        log.write_publication(BatchEntry(0, (), 1.0), Publication(Commit(0, 1), (), ""))
        assert log.batch(0).publication is not None
        log.unlock()

    def test_files_of_a_commit_that_was_held_back_are_there(
        self, place: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next owner has removed what no commit leads to, before the put of the commit arrives."""
        log, other = BatchLog(place), BatchLog(place)
        log.lock("app")
        log.write_application(Application("app", 1, {}))
        name = put_manifest(log, 0)
        commit = Commit(0, 1, versions={"s": {0: name}})

        def begin() -> None:
            other.lock("app")
            Vacuum(place, other, 1).sweep(0)

        stopped(log, "create", "commits", begin, monkeypatch)
        log.write_commit(commit)
        with pytest.raises(StateError, match="another application has committed batch 0"):
            other.write_commit(Commit(0, 1))
        other.unlock()
        third = BatchLog(place)
        third.lock("app")
        vacuum = Vacuum(place, third, 1)
        vacuum.sweep(1)
        assert read_manifest(third.root.storage("stores/s/0"), name).name == name
        left = put_manifest(third, 1)
        vacuum.sweep(1)
        third.write_commit(Commit(1, 1, versions={"s": {0: name}}))
        vacuum.add(1, {})
        third.unlock()
        names = RemoteRoot(place).names("stores/s/0")
        assert (name in names, left in names) == (True, False)

    def test_another_application_is_refused(self, place: str) -> None:
        log = BatchLog(place)
        log.lock("app")
        with pytest.raises(StateError) as caught:
            BatchLog(place).lock("app")
        assert caught.value.code == "CS-720"
        assert "app, process" in str(caught.value.where["owner"])
        log.unlock()
        log.unlock()
        again = BatchLog(place)
        again.lock("app")
        again.unlock()
