"""docs/spec/state-format.md suffices to read the state that the engine writes."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.storage import store as state_store
from tests.docs.pages import ROOT
from tests.docs.state_folder import Record, Writer
from tests.docs.state_reader import COLUMNS, IDENTITY, Damaged, StateFolder, hash_of, read_sealed
from tests.reference.functions import joiner
from tests.reference.records import Record as Streamed
from tests.reference.records import Side
from tests.reference.stream_stream import StreamStreamJoin
from tests.reference.windows import COUNT, Windowing

PAGE = ROOT / "docs" / "spec" / "state-format.md"
TEXT, JSON = serdes.string(), serdes.json()
BATCHES, RETAIN, PARTITIONS = 70, 25, 3
GRACE = 2500
HELD = 4000
WINDOW = {"before": 3000, "after": 5000, "grace": 1000}


def topology() -> cs.Topology:
    """All kinds of stores: foreign-key joins of two named tables, a versioned table, and joins of streams."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=JSON)
    left = builder.table("left", consumed, cs.Materialized(store="left"))
    right = builder.table("right", consumed)
    left.left_join(
        right,
        lambda row, other: [row["n"], other],
        foreign_key=lambda row: row["to"],
        table_joined=cs.TableJoined(name="join"),
        materialized=cs.Materialized(store="result"),
    )
    left.outer_join(
        right,
        lambda row, other: [row, other],
        foreign_key=lambda row: row["to"],
        keyed_by=cs.LeftOrRight,
        table_joined=cs.TableJoined(name="all"),
    )
    left.join_many({"other": (right, lambda row: row["to"])}, lambda row, rows: row, named=cs.Named("many"))
    past = builder.table("past", consumed, cs.Materialized(store="past", history_retention="1 day"))
    views, clicks = (
        builder.stream(topic, cs.Consumed(key=TEXT, value=TEXT)) for topic in ("views", "clicks")
    )
    views.outer_join(
        clicks,
        lambda view, click: f"{view},{click}",
        cs.JoinWindows(**WINDOW),
        cs.StreamJoined(name="seen", store="views-kept"),
    )
    grouped = views.group_by_key()
    grouped.windowed_by(cs.TimeWindows(size=3000)).count(materialized=cs.Materialized(store="per-window"))
    grouped.windowed_by(cs.SessionWindows(gap=900, grace=0)).count(
        materialized=cs.Materialized(store="per-session")
    )
    views.left_join(past, lambda view, row: f"{view},{row}", cs.Joined(grace=GRACE, name="patient"))
    last = views.to_table(cs.Named("last"))
    last.suppress(cs.Suppressed.until_time_limit(HELD), cs.Named("later"))
    views.deduplicate(HELD, named=cs.Named("first"))
    return builder.build()


Tables = dict[str, Any]


def join_of_streams() -> StreamStreamJoin:
    """The reference of the join of streams."""
    window = {f"{name}_ms": bound for name, bound in WINDOW.items()}
    return StreamStreamJoin("outer", joiner({"template": "{left},{right}"}), window, False, Counter())


def partition_of(key: bytes, partitions: int) -> int:
    return ((hash_of(key) >> 32) * partitions) >> 32


class Model:
    """What the tables must hold, in plain dicts; one copy for each batch."""

    def __init__(self) -> None:
        self.left: dict[str, Any] = {}
        self.right: dict[str, Any] = {}
        self.past: dict[tuple[str, int], Any] = {}
        self.seen = join_of_streams()
        self.views: list[tuple[str, str, int]] = []
        self.after: list[Tables] = []

    def records(self, chance: random.Random) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {"left": [], "right": [], "past": [], "views": [], "clicks": []}
        for number in range(chance.randrange(12)):
            ts = 1000 * len(self.after) + number
            key, to = f"l{chance.randrange(40)}", chance.choice([None, f"r{chance.randrange(9)}"])
            row = None if chance.random() < 0.3 else {"n": ts, "to": to}
            self.left[key] = row
            found["left"].append(_record(key, row, ts))
            key, row = f"r{chance.randrange(9)}", None if chance.random() < 0.3 else {"n": ts}
            self.right[key] = row
            found["right"].append(_record(key, row, ts))
            at = chance.randrange(ts + 1)
            self.past[key, at] = row
            found["past"].append(_record(key, row, at))
            self._see(chance, ts, found)
        self._note()
        return found

    def _see(self, chance: random.Random, ts: int, found: dict[str, list[Record]]) -> None:
        """A record of either stream; they arrive in the order of their timestamps, which are all different."""
        topic, key = chance.choice(["views", "clicks"]), f"p{chance.randrange(5)}"
        found[topic].append((key.encode(), f"{topic} {ts}".encode(), ts))
        side: Side = "left" if topic == "views" else "right"
        self.seen.receive([(side, Streamed(key, f"{topic} {ts}", ts))])
        if topic == "views":
            self.views.append((key, f"{topic} {ts}", ts))

    def _kept(self, side: Side) -> list[tuple[str, str, int]]:
        """The records of a side that may still get partners."""
        kept = [
            one.record
            for one in self.seen.stored[side]
            if self.seen.visible(side, one.ts, self.seen.newest[side]) and not one.unmatched
        ]
        return sorted((record.key, record.value, record.ts) for record in kept)

    def _note(self) -> None:
        left = {key: row for key, row in self.left.items() if row is not None}
        right = {key: row for key, row in self.right.items() if row is not None}
        newest = {key: self.past[key, at] for key, at in sorted(self.past)}
        self.after.append(
            {
                "left": left,
                "result": {key: [row["n"], right.get(row["to"])] for key, row in left.items()},
                "past": {key: row for key, row in newest.items() if row is not None},
                "versions": dict(self.past),
                "references": {key: row["to"] for key, row in left.items()},
                "subscriptions": {(row["to"], key): row for key, row in left.items() if row["to"]},
                "views-kept": self._kept("left"),
                "seen.right": self._kept("right"),
                "patient.buffer": sorted(v for v in self.views if v[2] > self.views[-1][2] - GRACE),
                "seen.waiting": sorted(
                    (u.record.key, ("left", "right").index(u.side), u.ts) for u in self.seen.waiting
                ),
            }
        )


def _record(key: str, row: Any, ts: int) -> Record:
    return key.encode(), None if row is None else json.dumps(row).encode(), ts


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> StateFolder:
    """State with merges under way: their steps are made small."""
    root = tmp_path_factory.mktemp("state")
    chance = random.Random(7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_store, "SEGMENT_ROWS", 2)
        writer = Writer(root, topology(), PARTITIONS, RETAIN)
        for _ in range(BATCHES):
            writer.run(model.records(chance))
        writer.close()
    return StateFolder(root)


def decoded(table: dict[bytes, bytes]) -> dict[str, Any]:
    return {key.decode(): json.loads(value) for key, value in table.items()}


def test_the_batches_kept_can_be_read(folder: StateFolder, model: Model) -> None:
    assert folder.batches() == list(range(BATCHES - RETAIN - 1, BATCHES))
    for batch in folder.batches():
        for store in ("left", "result", "past"):
            assert decoded(folder.table(store, batch)) == model.after[batch][store], (store, batch)


def test_what_a_join_and_a_versioned_table_keep(folder: StateFolder, model: Model) -> None:
    last, expected = BATCHES - 1, model.after[-1]
    versions = {(row["key"].decode(), row["s"]): _value(row["value"]) for _, row in folder.rows("past", last)}
    assert versions == expected["versions"]
    references = {row["key"]: row["reference"] for _, row in folder.rows("join.references", last)}
    assert {key.decode(): to and to.decode() for key, to in references.items()} == expected["references"]
    subscriptions = {
        (row["key"].decode(), row["key2"].decode()): _value(row["value"])
        for _, row in folder.rows("join.subscriptions", last)
    }
    assert subscriptions == expected["subscriptions"]


def test_what_a_join_of_streams_keeps(folder: StateFolder, model: Model) -> None:
    """The records that may still get partners, and who of them waits: nothing that has expired, nothing that is out."""
    for batch in folder.batches():
        expected = model.after[batch]
        for store in ("views-kept", "seen.right"):
            placed = list(folder.rows(store, batch))
            rows = [row for _, row in placed]
            kept = sorted((row["key"].decode(), row["value"].decode(), row["s"]) for row in rows)
            assert kept == expected[store], (store, batch)
            assert len({(partition, row["n"]) for partition, row in placed}) == len(rows)
        patient = [row for _, row in folder.rows("patient.buffer", batch)]
        found = sorted((row["key"].decode(), row["value"].decode(), row["s"]) for row in patient)
        assert found == expected["patient.buffer"], batch
        waiting = [row for _, row in folder.rows("seen.waiting", batch)]
        assert (
            sorted((row["key"].decode(), row["side"], row["s"]) for row in waiting)
            == expected["seen.waiting"]
        )


def test_what_windows_keep(folder: StateFolder, model: Model) -> None:
    """Those that are open have all their records, by start, and sessions by end."""
    last = folder.batches()[-1]
    found = {(row["key"], row["s"], row["s"] + 3000): row for _, row in folder.rows("per-window", last)}
    sessions = {(row["key"], row["start"], row["s"]): row for _, row in folder.rows("per-session", last)}
    for kind, size, rows in (("time", 3000, found), ("session", 900, sessions)):
        counts = Windowing(kind, size, COUNT, advance=size)
        for record in sorted(model.views, key=lambda one: one[2]):
            counts.process(*record)
        for (key, start, end), (count, ts) in counts.rows.items():
            if end > counts.now - (size if kind == "session" else 0):
                row = rows[key.encode(), start, end]
                assert (int.from_bytes(row["value"], "big"), row["ts"]) == (count, ts)


def _value(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)


def test_what_a_suppression_and_a_deduplication_keep(folder: StateFolder) -> None:
    batch = BATCHES - 1
    waiting = [row for _, row in folder.rows("later.buffer", batch)]
    assert waiting
    assert all(row["key"] == row["key2"] and row["s"] <= row["ts"] for row in waiting)
    assert len({row["key"] for row in waiting}) == len(waiting)
    seen = [row["key"] for _, row in folder.rows("first.seen", batch)]
    assert seen
    assert len(set(seen)) == len(seen)


def test_rows_are_in_the_partition_of_their_key(folder: StateFolder) -> None:
    """Those of derived stores are where the rows are that they are made from."""
    for store in sorted(set(folder.application["stores"]) - set(folder.application["derived"])):
        for partition, row in folder.rows(store, BATCHES - 1):
            assert partition == partition_of(row["key"], folder.partitions(BATCHES - 1))


def test_this_state_shows_everything_the_page_tells(folder: StateFolder) -> None:
    """Every kind of store, slots of several pieces, merges that are under way."""
    assert {folder.kind(store) for store in folder.application["stores"]} == set(COLUMNS) == set(IDENTITY)
    slots = [
        slot
        for path in folder.root.rglob("*.manifest")
        for slot in json.loads(path.read_bytes().partition(b"\n")[2])["slots"]
    ]
    assert any(len(pieces) > 1 for pieces, *_ in slots)
    assert any(job and output for _, job, output in slots)
    assert any(job and not output for _, job, output in slots)


def test_crossstream_reads_the_same(folder: StateFolder) -> None:
    for store in ("left", "result", "past"):
        for batch in folder.batches():
            reader = cs.open_store(folder.root, store, as_of=batch)
            assert dict(reader.all()) == decoded(folder.table(store, batch))


def test_the_folder_has_nothing_the_page_does_not_name(folder: StateFolder) -> None:
    allowed = [
        r"application\.json",
        "lock",
        r"batches/\d{12}\.json",
        r"commits/\d{12}\.json",
        r"stores/[A-Za-z0-9_.%~-]+/\d+/\d{12}-\w+\.manifest",
        r"stores/[A-Za-z0-9_.%~-]+/\d+/\d{12}-\w+-\d+\.arrow",
    ]
    files = [str(path.relative_to(folder.root)) for path in folder.root.rglob("*") if path.is_file()]
    assert [name for name in files if not any(re.fullmatch(pattern, name) for pattern in allowed)] == []
    assert (folder.root / "stores" / "right%402").is_dir()


def test_fields_are_those_of_the_page(folder: StateFolder) -> None:
    batch = f"{BATCHES - 1:012d}.json"
    manifest = next(folder.root.rglob("*.manifest")).read_bytes().partition(b"\n")[2]
    objects = {
        "application": folder.application,
        "batch": read_sealed(folder.root / "batches" / batch),
        "commit": read_sealed(folder.root / "commits" / batch),
        "manifest": json.loads(manifest),
    }
    text = PAGE.read_text()
    assert [(n, f) for n, found in objects.items() for f in found if f"`{f}`" not in text] == []


def test_the_hash_of_the_page() -> None:
    example = re.search(r"The hash of `(\w+)` is (\d+)", PAGE.read_text())
    assert example is not None
    assert hash_of(example[1].encode()) == int(example[2])


@pytest.mark.parametrize("pattern", ["*.manifest", "*.arrow"])
@pytest.mark.parametrize("harm", ["flip", "cut", "delete"])
def test_damage_is_seen(pattern: str, harm: str, tmp_path: Path) -> None:
    writer = Writer(tmp_path, topology())
    writer.run(Model().records(random.Random(1)) | {"left": [_record("l", {"n": 1, "to": "r"}, 1)]})
    writer.close()
    path = next((tmp_path / "stores" / "result").rglob(pattern))
    data = path.read_bytes()
    middle = len(data) // 2
    if harm == "delete":
        path.unlink()
    else:
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes(flipped if harm == "flip" else data[:middle])
    with pytest.raises(Damaged):
        StateFolder(tmp_path).table("result", 0)
    with pytest.raises(cs.StateError) as caught:
        cs.open_store(tmp_path, "result")
    assert caught.value.code == "CS-701"


@pytest.mark.parametrize("name", ["application.json", "commits/000000000000.json"])
def test_damage_of_the_batch_log_is_seen(name: str, tmp_path: Path) -> None:
    writer = Writer(tmp_path, topology())
    writer.run({"left": [_record("l", {"n": 1, "to": "r"}, 1)]})
    writer.close()
    path = tmp_path / name
    path.write_bytes(path.read_bytes().replace(b"result", b"resalt", 1))
    with pytest.raises(Damaged):
        StateFolder(tmp_path).table("result", 0)
    with pytest.raises(cs.StateError) as caught:
        cs.open_store(tmp_path, "result")
    assert caught.value.code == "CS-701"
