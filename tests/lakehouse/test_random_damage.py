"""Random damage to any file of a table: each write says what is wrong, or the table is right."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.columns.flat import DELETED
from crossstream.lakehouse.tables import Tables
from tests.lakehouse.lake import FORMATS, Lake
from tests.oracle.fixtures import SEED

TEXT, NUMBER = serdes.string(), serdes.int64()
SCHEMA = pa.schema(
    [("key", pa.string()), ("value", pa.int64()), (DELETED, pa.bool_())], {"crossstream.key": "key"}
)
Table = dict[str, int]


class Damaged:
    """A table of two batches; each try damages a copy of it and writes the third one."""

    def __init__(self, root: Path, form: Any) -> None:
        root.mkdir(exist_ok=True)
        self.lake = Lake(root, form)
        builder = cs.StreamsBuilder()
        counts = builder.table("counts", cs.Consumed(key=TEXT, value=NUMBER))
        self.lake.sink(counts, "counts", named=cs.Named("table"))
        self.topology = builder.build()
        self.whole = root / "whole"
        self.table: Table = {}
        tables = Tables(self.topology, "app")
        tables.begin("state", -1)
        for batch in range(2):
            changes = {f"k{n:03}": batch * 1000 + n for n in range(batch * 50, batch * 50 + 100)}
            tables.write({"table": rows(changes)}, batch)
            self.table.update(changes)
        tables.close()
        self.save()

    def files(self) -> list[Path]:
        root = self.lake.root
        return sorted(p for p in root.rglob("*") if p.is_file() and self.whole not in p.parents)

    def save(self) -> None:
        for path in self.files():
            copy = self.whole / path.relative_to(self.lake.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)

    def restore(self) -> None:
        for path in self.files():
            path.unlink()
        shutil.copytree(self.whole, self.lake.root, dirs_exist_ok=True)

    def write(self, changes: dict[str, int | None]) -> None:
        """As a start that finds the note of a batch."""
        tables = Tables(self.topology, "app")
        tables.written = {"table": 1}
        try:
            tables.write({"table": rows(changes)}, 2, "state")
        finally:
            tables.close()


def rows(changes: Any) -> pa.Table:
    values = list(changes.values())
    return pa.table([list(changes), values, [v is None for v in values]], schema=SCHEMA)


def attempt(case: Damaged, seed: int) -> str:
    """One damage; returns what came of it."""
    dice = random.Random(seed)
    changes = {f"k{n:03}": dice.choice([None, -n]) for n in dice.sample(range(200), 20)}
    path = dice.choice(case.files())
    data, kind = path.read_bytes(), dice.choice(["removed", "cut", "flipped"])
    if not data:
        return "nothing to damage"
    at = dice.randrange(len(data))
    if kind == "removed":
        path.unlink()
    else:
        path.write_bytes(
            data[:at]
            if kind == "cut"
            else data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        )
    wanted = {k: v for k, v in {**case.table, **changes}.items() if v is not None}
    refused = None
    try:
        case.write(changes)
    except cs.CrossStreamError as error:
        refused = error
    if refused is not None:
        assert refused.code in {"CS-657", "CS-665", "CS-745"}, refused
        assert refused.next, refused
        assert "counts" in refused.where["table"], refused
        # Once the file is as it was, the batch is written, and once.
        path.write_bytes(data)
        case.write(changes)
        case.write(changes)
        assert dict(case.lake.tuples("counts")) == wanted
        return f"{kind}: {refused.code}"
    if kind == "flipped":
        return "flipped: not seen"  # neither format has checksums of its files
    if path.suffix != ".db":  # the catalog has the batch now
        path.write_bytes(data)  # the batch did not need it
    assert dict(case.lake.tuples("counts")) == wanted
    return f"{kind}: not needed"


def tried(root: Path, form: Any, seed: int, count: int) -> Iterator[str]:
    case = Damaged(root, form)
    for number in range(count):
        try:
            yield attempt(case, seed + number)
        except BaseException as error:
            raise AssertionError(f"seed {seed + number}: {type(error).__name__}: {error}") from error
        case.restore()


FOUND = 273782941
"""Cuts the catalog of Iceberg where a batch does not need it; the batch writes to it."""


@pytest.mark.parametrize("form", FORMATS)
def test_random_damage(tmp_path: Path, form: Any) -> None:
    found = [*tried(tmp_path / "some", form, 1, 12), *tried(tmp_path / "found", form, FOUND, 1)]
    assert any("CS-" in one for one in found)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("form", FORMATS)
def test_random_damage_nightly(tmp_path: Path, form: Any) -> None:
    """The seed is in the header of the run and in a failure."""
    found = list(tried(tmp_path, form, SEED, 3000))
    assert {
        kind for kind in ("removed", "cut", "flipped") if any(f"{kind}: CS-" in one for one in found)
    } == {
        "removed",
        "cut",
        "flipped",
    }
