"""A file of the state is what was written under its name, to the byte; else it is damage, and no reader answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

import crossstream as cs
from crossstream import serdes
from crossstream.query.verification import verify_state
from crossstream.storage.commit_log import BatchLog
from tests.docs.state_folder import Writer
from tests.docs.state_reader import Damaged, StateFolder, read_manifest

TEXT = serdes.string()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    builder = cs.StreamsBuilder()
    builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    writer = Writer(tmp_path, builder.build())
    for batch in range(3):
        writer.run({"rows": [(b"k", b"v%d" % batch, batch)]})
    writer.close()
    return tmp_path


def refused(call: Callable[[], object], what: str) -> None:
    with pytest.raises(cs.StateError, match=what) as caught:
        call()
    assert (caught.value.code, bool(caught.value.next)) == ("CS-701", True)


@pytest.mark.parametrize(("taken", "place"), [(0, 2), (2, 1)])
def test_the_content_of_another_commit(folder: Path, taken: int, place: int) -> None:
    names = [folder / f"commits/{number:012d}.json" for number in range(3)]
    names[place].write_bytes(names[taken].read_bytes())
    said = f"{names[place].name} .* it is that of batch {taken}"
    refused(lambda: cs.open_store(folder, "rows", as_of=place), said)
    if place == 2:
        refused(lambda: cs.open_store(folder, "rows"), said)
        refused(lambda: BatchLog(folder).newest(), said)
    assert [problem.batches for problem in verify_state(folder).problems] == [(place,)]


def test_the_content_of_another_batch(folder: Path) -> None:
    names = [folder / f"batches/{number:012d}.json" for number in range(3)]
    assert names[2].exists()
    names[2].write_bytes(names[1].read_bytes())
    refused(lambda: BatchLog(folder).last_batch(), "it is that of batch 1")


def test_the_content_of_another_manifest(folder: Path) -> None:
    first, *_, last = sorted((folder / "stores/rows/0").glob("*.manifest"))
    last.write_bytes(first.read_bytes())
    refused(lambda: cs.open_store(folder, "rows"), f"{last.name} is the manifest {first.name}")
    assert cs.open_store(folder, "rows", as_of=0).get("k") == "v0"
    assert [problem.file for problem in verify_state(folder).problems] == [f"stores/rows/0/{last.name}"]
    with pytest.raises(AssertionError):
        read_manifest(last)


@pytest.mark.parametrize(
    "name", ["application.json", "commits/000000000002.json", "batches/000000000002.json"]
)
@pytest.mark.parametrize("more", ["{} ", "{}\n", " {}", "{}x", "{}{}", "{}\0", "more", "space"])
def test_more_than_was_written(folder: Path, name: str, more: str) -> None:
    """Also what JSON allows between its parts, and fields that are not read."""
    path = folder / name
    text = path.read_text()
    if more == "more":
        changed = f'{text[:-1]},"more":1}}'
    elif more == "space":
        changed = text.replace('","content":', '", "content":', 1)
    else:
        changed = more.replace("{}", text, 1)
    path.write_text(changed)
    log = BatchLog(folder)
    refused(
        {"a": log.application, "c": lambda: log.commit(2), "b": lambda: log.batch(2)}[name[0]],
        "cannot be read",
    )
    assert len(verify_state(folder).problems) >= 1
    if name[0] != "b":
        with pytest.raises((Damaged, AssertionError)):
            StateFolder(folder).table("rows", 2)


def sealed(content: object) -> bytes:
    """A file of the batch log with the right checksum, as it was written before everything in it was data."""
    body = json.dumps(content, separators=(",", ":")).encode()
    return b'{"checksum":"%s","content":%s}' % (xxhash.xxh3_64_hexdigest(body).encode(), body)


def test_state_of_the_format_with_pickles(folder: Path) -> None:
    found = json.loads((folder / "application.json").read_bytes())["content"]
    old = {**found, "format": 1, "readers": {"rows": {"store": "gASVCgAAAAAAAACMBnBvc2l4Lg=="}}}
    (folder / "application.json").write_bytes(sealed(old))
    with pytest.raises(cs.StateError, match="format 1, this version reads 2") as caught:
        cs.open_store(folder, "rows")
    assert caught.value.code == "CS-704"
    assert "empty state_dir" in str(caught.value.next)


def test_a_description_that_goes_too_deep(folder: Path) -> None:
    found = json.loads((folder / "application.json").read_bytes())["content"]
    found["readers"]["rows"]["key"] = {"name": "k", "kind": "schema", "columns": "DEEP"}
    body = json.dumps(found).replace('"DEEP"', '{"list":' * 3000 + "1" + "}" * 3000)
    checksum = xxhash.xxh3_64_hexdigest(body.encode())
    (folder / "application.json").write_text(f'{{"checksum":"{checksum}","content":{body}}}')
    with pytest.raises(cs.StateError) as caught:
        cs.open_store(folder, "rows")
    assert caught.value.code == "CS-701"
