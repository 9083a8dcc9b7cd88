"""Bundles: what one holds, what is refused, and that a damaged one does no harm."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.application.inputs import connection_of
from crossstream.catalog.planners import plan_topology
from crossstream.recompute.again import run_past
from crossstream.recompute.bundle_packing import Packing
from crossstream.recompute.bundles import open_bundle
from crossstream.recompute.parted_records import compare_results
from crossstream.recompute.parted_rows import compare_stores
from crossstream.recompute.partings import together
from tests.laws.effort import cases
from tests.recompute.replay.lives import OPERATORS, Life, topology
from tests.spark.world import World


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    made = topology(OPERATORS["foreign_key_join"][1])
    life = Life(World(tmp_path_factory.mktemp("life")), made, {"left": 1, "right": 1}, {"partitions": 2})
    life.live([[("left", "a", "b1", 1, 0), ("right", "b", "x", 2, 0)], [("right", "b", "y", 3, 0)]])
    return life


@pytest.fixture(scope="module")
def packed(life: Life) -> Path:
    return pack(life, 1)


def pack(life: Life, number: int) -> Path:
    target = life.world.root / f"{number}.bundle"
    Packing.of(life.world.state_dir, number).write(target, connection_of(life.config), life.topology)
    return target


def run(life: Life, path: Path, number: int = 1) -> bool:
    """Whether the batch of a bundle gives what it gave."""
    with open_bundle(path, number) as bundle:
        rerun = run_past(bundle.past, plan_topology(life.topology), bundle.reader, bundle.counts)
        return together(compare_stores(rerun), compare_results(rerun, bundle.results)).is_same


def test_what_it_holds(life: Life, packed: Path) -> None:
    with zipfile.ZipFile(packed) as archive:
        names = set(archive.namelist())
    assert {"bundle.json", "application.json", "batches/000000000001.json"} <= names
    assert {"commits/000000000000.json", "commits/000000000001.json", "inputs/0-0.arrow"} <= names
    assert not any(name.startswith(("batches/000000000000", "commits/000000000002")) for name in names)
    assert run(life, packed)


def test_the_first_batch(life: Life) -> None:
    assert run(life, pack(life, 0), 0)


def test_nothing_is_left_behind(
    life: Life, packed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(life, packed)
    assert list(tmp_path.iterdir()) == []


def test_of_another_batch(packed: Path) -> None:
    assert refused(packed, 0) == "the bundle has batch 1, not batch 0"


def test_a_target_that_cannot_be_written(life: Life, tmp_path: Path) -> None:
    with pytest.raises(cs.StateError) as caught:
        Packing.of(life.world.state_dir, 1).write(
            tmp_path / "no" / "x.bundle", connection_of(life.config), None
        )
    assert caught.value.code == "CS-706"


def test_packed_without_the_application(tmp_path: Path) -> None:
    """Topics that the newest batch has made are not known then, and are not compared."""
    made = topology(OPERATORS["stateless"][0])
    life = Life(World(tmp_path), made, {"left": 1}, {"partitions": 1})
    life.live([[("left", "a", "1", 1, 0)]])
    target = tmp_path / "x.bundle"
    Packing.of(life.world.state_dir, 0).write(target, connection_of(life.config), None)
    with open_bundle(target, 0) as bundle:
        rerun = run_past(bundle.past, plan_topology(made), bundle.reader, bundle.counts)
        found = compare_results(rerun, bundle.results)
    assert found.is_same
    assert found.notes == ("results in out are not compared: the bundle was packed without --app",)


def refused(path: Path, number: int = 1) -> str:
    with pytest.raises(cs.StateError) as caught, open_bundle(path, number):
        pass
    assert caught.value.code == "CS-716"
    return caught.value.what


def rewritten(packed: Path, target: Path, change: Callable[[dict[str, bytes]], Any], **more: Any) -> Path:
    """A bundle with other files."""
    with zipfile.ZipFile(packed) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(target, "w", **more) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target


BAD_NAMES = (
    "../out",
    "/etc/out",
    "stores/../../out",
    "stores//x",
    "inputs/../../../out",
    "code.py",
    "other/x.arrow",
    "stores",
    "lock",
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_lead_elsewhere(packed: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    bad = rewritten(packed, tmp_path / "in" / "x.bundle", lambda files: files.update({name: b"x"}))
    refused(bad)
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "x.bundle"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_index_that_names_other_files(packed: Path, tmp_path: Path, name: str) -> None:
    def change(files: dict[str, bytes]) -> None:
        files["bundle.json"] = files["bundle.json"].replace(b"inputs/0-0.arrow", name.encode())

    refused(rewritten(packed, tmp_path / "x.bundle", change))


def test_a_file_twice(packed: Path, tmp_path: Path) -> None:
    bad = rewritten(packed, tmp_path / "x.bundle", lambda files: None)
    with zipfile.ZipFile(bad, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("bundle.json", b"{}")
    assert "twice" in refused(bad)


def test_compressed(packed: Path, tmp_path: Path) -> None:
    bad = rewritten(packed, tmp_path / "x.bundle", lambda files: None, compression=zipfile.ZIP_DEFLATED)
    assert "compressed" in refused(bad)


def test_no_bundle(tmp_path: Path) -> None:
    for content in (b"", b"text", b"PK\x05\x06" + b"\0" * 18):
        (tmp_path / "x.bundle").write_bytes(content)
        refused(tmp_path / "x.bundle")


@example(part="bundle.json", at=0, with_=0)
@example(part="inputs/0-0.arrow", at=0, with_=255)
@cases(0.5)
@given(
    part=st.sampled_from(
        ["bundle.json", "application.json", "inputs/", "results/", "batches/", "commits/", "stores/"]
    ),
    at=st.integers(0, 100_000),
    with_=st.integers(0, 255),
)
def test_bytes_changed_inside(life: Life, packed: Path, part: str, at: int, with_: int) -> None:
    """A zip whose checksums are right, with a byte changed in one of its files: refused, or run as it is."""

    def change(files: dict[str, bytes]) -> None:
        name = next(name for name in files if name.startswith(part))
        data = bytearray(files[name])
        data[at % len(data)] = with_
        files[name] = bytes(data)

    target = life.world.root / "changed.bundle"
    rewritten(packed, target, change)
    runs_or_is_refused(life, target)


@cases(0.5)
@given(st.integers(0, 1 << 20), st.binary(max_size=8))
def test_bytes_changed_outside(life: Life, packed: Path, at: int, with_: bytes) -> None:
    data = bytearray(packed.read_bytes())
    at %= len(data)
    data[at : at + len(with_)] = with_
    target = life.world.root / "changed.bundle"
    target.write_bytes(bytes(data))
    runs_or_is_refused(life, target)


@cases(0.5)
@given(st.integers(0, 1 << 20))
def test_cut_short(life: Life, packed: Path, at: int) -> None:
    target = life.world.root / "changed.bundle"
    target.write_bytes(packed.read_bytes()[: at % packed.stat().st_size])
    refused(target)


def runs_or_is_refused(life: Life, target: Path) -> None:
    """Any other error than one of this package fails the test."""
    with suppress(cs.CrossStreamError):
        run(life, target)
