"""A lease: one writer at a time without locks; who is gone is followed, who lives is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossstream.errors import StateError
from crossstream.storage import lease as leases
from crossstream.storage.commit_log import BatchLog, Commit
from crossstream.storage.lease import Lease, Moment
from crossstream.storage.remote import AWAY, RemoteRoot
from tests.object_store import ObjectStore, cache, object_server, object_store

__all__ = ["cache", "object_server", "object_store"]

BEAT, LEASE, SAFE = 0.05, 0.6, 0.3


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"BEAT_SECONDS": BEAT, "LEASE_SECONDS": LEASE, "SAFE_SECONDS": SAFE, "SETTLE_SECONDS": 0.1}
    for name, seconds in times.items():
        monkeypatch.setattr(leases, name, seconds)


class Files:
    """Where a lease lies: `FileNotFoundError` as of a store, and an error of ours if it is away."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self.away = False

    def __str__(self) -> str:
        return "the store"

    def read(self, name: str) -> bytes:
        self._check()
        if name not in self.found:
            raise FileNotFoundError(name)
        return self.found[name]

    def write(self, name: str, data: bytes) -> None:
        self._check()
        self.found[name] = data

    def delete(self, name: str) -> None:
        self._check()
        self.found.pop(name, None)

    def _check(self) -> None:
        if self.away:
            raise StateError("the store does not answer", code=AWAY)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def held(files: Files) -> Iterator[Lease]:
    lease = Lease.acquired(files, "first")
    yield lease
    lease.release()


def refused(files: Files, owner: str = "second") -> StateError:
    with pytest.raises(StateError) as caught:
        Lease.acquired(files, owner)
    return caught.value


def gone(lease: Lease) -> None:
    """Its process is killed: nobody renews it, nobody gives it back."""
    lease._stop.set()
    assert lease._thread is not None
    lease._thread.join()


def test_who_lives_is_not_followed(files: Files, held: Lease) -> None:
    began = time.monotonic()
    error = refused(files)
    assert error.code == "CS-720"
    assert error.where == {"folder": "the store", "owner": "first"}
    assert error.next
    assert time.monotonic() - began < LEASE, "that is seen at once"
    held.assure()


def test_who_gave_it_back_is_followed_at_once(files: Files, held: Lease) -> None:
    held.release()
    began = time.monotonic()
    second = Lease.acquired(files, "second")
    assert time.monotonic() - began < LEASE
    second.assure()
    second.release()
    assert files.found == {}


def test_who_is_gone_is_followed_when_the_lease_has_run_out(
    files: Files, held: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    gone(held)
    began = time.monotonic()
    second = Lease.acquired(files, "second")
    assert LEASE <= time.monotonic() - began < 3 * LEASE
    assert "the store is held by first: waiting up to" in caplog.text
    second.assure()
    second.release()


def test_who_is_back_finds_it_taken(files: Files, held: Lease) -> None:
    gone(held)
    second = Lease.acquired(files, "second")
    with pytest.raises(StateError) as caught:
        held.assure()
    assert caught.value.code == "CS-720"
    assert caught.value.where == {"folder": "the store", "owner": "second"}
    held.release()
    second.assure()
    second.release()


def test_who_renews_learns_it_by_itself(files: Files, held: Lease) -> None:
    files.found["lease.json"] = (
        files.found["lease.json"].replace(b"first", b"other").replace(held._note.token.encode(), b"another")
    )
    time.sleep(4 * BEAT)
    files.away = True
    with pytest.raises(StateError) as caught:
        held.assure(within=1000)
    assert caught.value.code == "CS-720"


def test_of_two_at_the_same_moment_one_gets_it(files: Files) -> None:
    got: list[Lease] = []
    errors: list[StateError] = []

    def start(name: str) -> None:
        try:
            got.append(Lease.acquired(files, name))
        except StateError as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=(f"number {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), {error.code for error in errors}) == (1, {"CS-720"})
    got[0].assure()
    got[0].release()


def test_who_cannot_renew_may_not_commit(files: Files, held: Lease) -> None:
    """The store was away for longer than is safe: it may be another's by now, whether anybody knows or not."""
    held.assure(within=SAFE)
    files.away = True
    time.sleep(SAFE)
    for within in (SAFE, 0.0):
        with pytest.raises(StateError) as caught:
            held.assure(within)
        assert caught.value.code == AWAY
    files.away = False
    held.assure()


def test_a_machine_that_slept_asks_anew(files: Files, held: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steady clock stands still meanwhile, and another application may have taken over."""
    gone(held)
    files.found.clear()
    moment = Moment(time.monotonic(), time.time() - 1000)
    assert moment.age >= 1000
    held._confirmed = held._renewed = moment
    with pytest.raises(StateError) as caught:
        held.assure(within=SAFE)
    assert caught.value.code == "CS-720"
    assert "gone" in str(caught.value.where["owner"])


def test_a_lease_that_cannot_be_read_runs_out(files: Files) -> None:
    files.write("lease.json", b"{")
    began = time.monotonic()
    lease = Lease.acquired(files, "first")
    assert time.monotonic() - began >= LEASE
    lease.release()


def test_it_may_not_be_to_be_seen_for_a_moment(
    files: Files, held: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some stores show an object as empty while another is put in its place."""
    read, calls = files.read, [0]

    def sometimes(name: str) -> bytes:
        data = read(name)
        calls[0] += 1
        if b"first" in data and calls[0] % 2 == 1:
            raise FileNotFoundError(name)
        return data

    gone(held)
    monkeypatch.setattr(files, "read", sometimes)
    began = time.monotonic()
    Lease.acquired(files, "second").release()
    assert time.monotonic() - began >= LEASE


class TestLog:
    """The batch log on an object store."""

    @pytest.fixture(autouse=True)
    def _at_leisure(self, _in_haste: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store takes its time to answer on a busy machine."""
        monkeypatch.setattr(leases, "LEASE_SECONDS", 2.0)
        monkeypatch.setattr(leases, "SAFE_SECONDS", 10.0)

    @pytest.fixture
    def place(self, object_store: ObjectStore, tmp_path: Path) -> str:
        return object_store.uri(tmp_path.name)

    def test_nothing_is_committed_by_who_has_lost_it(self, place: str) -> None:
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
