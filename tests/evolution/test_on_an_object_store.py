"""A change of state on an object store: adopted files are put there, and the folder of the change is emptied."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.evolution.revert import Code, revert
from crossstream.query.verification import verify_state
from crossstream.storage import lease
from crossstream.storage.commit_log import BatchLog
from tests.evolution.test_evolve import MERCHANTS, PRODUCTS, changed, joined, loud, plain, rounds, rows, run
from tests.faults.crash_points import Crash, before
from tests.object_store import ObjectStore, object_server, object_store
from tests.spark.world import World

__all__ = ["object_server", "object_store"]


@dataclass(frozen=True, slots=True)
class RemoteWorld(World):
    """File topics in a folder, state at a URI."""

    uri: str = ""

    def config(self, **settings: Any) -> cs.StreamsConfig:
        return World.config(self, **{"state_dir": self.uri, **settings})


@pytest.fixture
def remote(object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteWorld:
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(lease, "LEASE_SECONDS", 3.0)
    world = RemoteWorld(tmp_path, uri=object_store.uri(tmp_path.name))
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", MERCHANTS)
    world.append("products", PRODUCTS)
    run(world, joined(plain))
    return world


def test_a_change_and_back(remote: RemoteWorld, object_store: ObjectStore) -> None:
    changed(remote, joined(loud))
    assert remote.table("offers") == rows(loud)
    assert dict(cs.open_store(remote.uri, "offers").all()) == rows(loud)
    assert not verify_state(remote.uri).problems
    assert not [name for name in object_store.names(remote.root.name) if name.startswith("evolving")]
    copies = [path for path in (remote.root / "cache").rglob("*.arrow") if path.is_file()]
    assert copies
    assert not [path for path in copies if "evolving" in str(path)], "of files that nothing needs any more"
    revert(remote.uri, Code(joined(loud), remote.config(partitions=2), rounds))
    assert remote.table("offers") == rows(plain)
    run(remote, joined(plain))
    assert not verify_state(remote.uri).problems


@pytest.mark.parametrize("commit", [2, 1])
def test_killed(remote: RemoteWorld, object_store: ObjectStore, commit: int) -> None:
    """Before the commit of the change; before that of what is rebuilt."""
    with pytest.MonkeyPatch.context() as patch:
        before(BatchLog, "write_commit", commit)(patch)
        with pytest.raises(Crash):
            changed(remote, joined(loud))
    run(remote, joined(loud if commit == 2 else plain))
    assert remote.table("offers") == rows(loud if commit == 2 else plain)
    assert dict(cs.open_store(remote.uri, "offers").all()) == rows(loud if commit == 2 else plain)
    assert not [name for name in object_store.names(remote.root.name) if name.startswith("evolving")]
    assert not verify_state(remote.uri).problems
