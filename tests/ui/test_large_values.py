"""Values that are large, or many: a click on the page takes little memory, and shows what there is."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import crossstream as cs
from crossstream import serdes
from crossstream.query.glance import ANSWER_BYTES
from crossstream.query.text import rows_of, rows_of_key, to_plain
from crossstream.storage.root import root_of
from crossstream.ui.source import FolderSource, changes_of, found_rows
from tests.cli.cases import ENVIRONMENT
from tests.docs.state_folder import Writer
from tests.docs.test_state_format import Model
from tests.storage.test_rescaling import BY_HASH, shops

TEXT = serdes.string()

LOOK = """
import resource, sys
from crossstream.storage.root import root_of
from crossstream.ui.source import FolderSource, changes_of, found_rows
source = FolderSource(root_of(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for operation in ("all", "range", "prefix"):
    rows = found_rows(source.open("rows", None), operation, "k" if operation == "prefix" else "", "", 10_000)
    assert len(rows["rows"]) == 100 and rows["more"]
found_rows(source.open("rows", None), "get", "k001", "", 10_000)
changes_of(source, "rows", "k001")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
"""Prints how many MB it took."""


def test_rows_take_little_memory(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    with closing(Writer(tmp_path, builder.build())) as writer:
        value = b"x" * 1_000_000
        for batch in range(2):
            writer.run({"rows": [(b"k%03d" % row, b"%d" % batch + value, row) for row in range(150)]})
    run = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) < 100


def test_what_has_no_room_is_shown_by_its_size(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    with closing(Writer(tmp_path, builder.build())) as writer:
        large = b"x" * (ANSWER_BYTES + 1)
        writer.run({"rows": [(b"a", b"1", 0), (b"b", large, 1), (b"c", b"3", 2), (large, b"4", 3)]})
        writer.run({"rows": [(b"b", large[:-1] + b"y", 4)]})
        writer.run({"rows": [(b"a", b"1", 5)]})
    with closing(FolderSource(root_of(tmp_path))) as source:
        found = found_rows(source.open("rows", None), "all", "", "", 100)
        assert found["rows"][:3] == [["a", "1"], ["b", "(4,194,305 bytes, not shown here)"], ["c", "3"]]
        assert found["rows"][3][0].endswith("… (4,194,307 characters)")
        assert [one["batch"] for one in changes_of(source, "rows", "b")["changes"]] == [0, 1]


def test_it_shows_the_same_as_the_store(tmp_path: Path) -> None:
    """Of every kind of store."""
    import random

    chance, model = random.Random(3), Model()
    with closing(Writer(tmp_path, shops(BY_HASH), 3, 10)) as writer:
        for _ in range(4):
            writer.run(model.records(chance))
    with closing(FolderSource(root_of(tmp_path))) as source:
        for one in source.stores()["stores"]:
            store = source.open(one["name"], None)
            rows = [[to_plain(key), to_plain(value)] for key, value in rows_of(store, "all", ("", ""))]
            assert found_rows(store, "all", "", "", 10**6)["rows"] == rows[:100]
            for key, _ in list(store.all())[:5]:
                text = _text(key)
                wanted = [[to_plain(a), to_plain(b)] for a, b in rows_of_key(store, _plain_key(key))]
                for most in (0, 10**6):
                    assert found_rows(store, "get", text, "", most)["rows"] == wanted[:100]


def _plain_key(key: Any) -> Any:
    return key.key if isinstance(key, cs.Windowed) else key[0] if isinstance(key, tuple) else key


def _text(key: Any) -> str:
    plain = _plain_key(key)
    return plain if isinstance(plain, str) else str(plain)
