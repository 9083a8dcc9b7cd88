"""Rescale: stop, go on with another number of state partitions, any time and number of times: same result."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.columns.hashing import partition_bounds, partition_of
from crossstream.planning.layouts import KEY_VALUE, VERSIONED
from crossstream.query.verification import verify_state
from crossstream.runtime import rescaling as state_rescaling
from crossstream.storage import store as state_store
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.compaction import Part
from crossstream.storage.log_entries import BatchEntry
from crossstream.storage.sorted_run import sort_rows
from crossstream.storage.store import Segment, Version
from crossstream.storage.vacuum import Vacuum
from tests.docs.state_folder import Writer
from tests.docs.state_reader import StateFolder, hash_of
from tests.docs.test_state_format import Model, decoded
from tests.laws.effort import cases, law
from tests.laws.engine import Way, rows_of, run_engine, ways
from tests.laws.rescaling import cut, rescaling
from tests.laws.strategies import Case, chain_cases, foreign_key_cases, table_cases
from tests.laws.wide import wide_cases
from tests.operators.global_join.law.test_table_global import with_global
from tests.storage.rows import key_value_rows

numbers = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def never_expiring(case: Case) -> Case:
    """The case without histories so short that the partition, by its stream time, decides what is dropped."""
    params = {k: 1000 if k.endswith("_versioned_ms") and v else v for k, v in case["params"].items()}
    return {**case, "params": params}


def check(case: Case, way: Way, numbers: Sequence[int]) -> None:
    """The table, its timestamps and the store are those of a run with one number of partitions."""
    straight = run_engine(never_expiring(case), way)
    rescaled = run_engine(never_expiring(case), way, rescaling(numbers))
    assert rows_of(rescaled) == rows_of(straight)
    assert rescaled.store == straight.store
    assert rescaled.dropped == straight.dropped


@law
@given(table_cases(), ways(), numbers)
def test_joins_by_key(case: Case, way: Way, numbers: list[int]) -> None:
    check(case, way, numbers)


@law
@given(foreign_key_cases(), ways(), numbers)
def test_joins_by_foreign_key(case: Case, way: Way, numbers: list[int]) -> None:
    check(case, way, numbers)


@pytest.mark.slow
@law
@given(wide_cases().map(with_global), ways(), numbers)
def test_joins_with_a_global_table(case: Case, way: Way, numbers: list[int]) -> None:
    check(case, way, numbers)


@law
@given(chain_cases(), ways(), numbers)
def test_chains_of_joins(case: Case, way: Way, numbers: list[int]) -> None:
    check(case, way, numbers)


def by_last(key: str, partitions: int) -> int:
    return ord(key[-1]) % partitions


SIDES = ("clicks", "views", "rows", "shared")


def every_join() -> cs.Topology:
    """Streams and tables of streams that partitioners have placed, re-keyed and not, in joins of every kind."""
    text = serdes.string()
    builder, consumed = cs.StreamsBuilder(), cs.Consumed(key=text, value=text)
    placed = cs.Repartitioned(key=text, value=text, partitioner=by_last)
    clicks = builder.stream("clicks", consumed).repartition(placed)
    views = builder.stream("views", consumed).select_key(first_part).repartition(placed)
    rows = builder.table("rows", consumed, cs.Materialized(store="rows", history_retention="1 day"))
    shared = builder.global_table("shared", consumed)
    partitioners = cs.TableJoined(partitioner=by_last, other_partitioner=by_last)
    window, kept = (
        cs.JoinWindows(before=5, after=5, grace=1000),
        cs.StreamJoined(value=text, other_value=text),
    )
    seen, last = clicks.to_table(), views.to_table()
    joined = {
        "waited": clicks.left_join(rows, both, cs.Joined(grace=7)),
        "paired": clicks.join(views, both, window, kept),
        "either": seen.outer_join(
            rows, both, foreign_key=first_part, keyed_by=cs.LeftOrRight, table_joined=partitioners
        )
        .to_stream()
        .map(lambda key, value: (str(key), value)),
        "global": last.left_join(shared, both, foreign_key=first_part).to_stream(),
        "many": seen.left_join_many(
            {"one": (last, first_part), "two": (rows, first_part)}, str_of
        ).to_stream(),
    }
    for topic, stream in joined.items():
        stream.to(topic, cs.Produced(key=text, value=text))
    return builder.build()


def first_part(value: str) -> str:
    return value.split(";")[0]


def both(left: str | None, right: str | None) -> str:
    return f"{left},{right}"


def str_of(left: str, rows: Any) -> str:
    return f"{left},{sorted(rows.items())}"


def some_records(seed: int) -> list[tuple[str, str, str | None, int]]:
    """Topic, key, value, timestamp; at the end time goes on for all who wait."""
    rng = random.Random(seed)
    found: list[tuple[str, str, str | None, int]] = []
    for number in range(60):
        topic = rng.choice(SIDES)
        gone = topic in ("rows", "shared") and rng.random() < 0.2
        value = None if gone else f"k{rng.randrange(8)};{number}"
        found.append((topic, f"k{rng.randrange(8)}", value, 2 * number + rng.randrange(3)))
    return [*found, *(("clicks", f"beat {n}", "k0;beat", 10_000) for n in range(60))]


@cases(0.15)
@given(st.integers(0, 1 << 30), st.integers(3, 20), numbers)
def test_every_join(seed: int, every: int, numbers: list[int]) -> None:
    """Records of streams and tables' last rows are those of a run with one partition."""
    assert results_of(seed, every, numbers) == results_of(seed, every, [1])


def results_of(seed: int, every: int, numbers: Sequence[int]) -> dict[str, Any]:
    """``every``: records of a batch; after each the state has the next of the ``numbers`` of partitions."""
    text, between = serdes.string(), rescaling(numbers)
    with cs.TopologyTestDriver(every_join(), commit_every=1000) as driver:
        topics = {side: driver.create_input_topic(side, text, text) for side in SIDES}
        for number, (topic, key, value, ts) in enumerate(some_records(seed), 1):
            topics[topic].pipe_input(key, value, ts, partition=0)
            if number % every == 0:
                driver.commit()
                between(driver)
        driver.commit()
        read = {name: driver.create_output_topic(name, text, text) for name in driver.produced_topic_names()}
        out = {name: [(one.key, one.value) for one in topic.read_records()] for name, topic in read.items()}
    streams = {name: Counter(out.pop(name, [])) for name in ("waited", "paired")}
    waited = Counter({key: n for key, n in streams["waited"].items() if not key[0].startswith("beat")})
    return {**streams, "waited": waited, **{name: dict(rows) for name, rows in out.items()}}


def shops(table_joined: cs.TableJoined) -> cs.Topology:
    """Every kind of store, two of them placed by partitioners where there are any."""
    text, json = serdes.string(), serdes.json()
    consumed = cs.Consumed(key=text, value=json)
    builder = cs.StreamsBuilder()
    left = builder.table("left", consumed, cs.Materialized(store="left"))
    left.left_join(
        builder.table("right", consumed),
        lambda row, other: [row["n"], other],
        foreign_key=lambda row: row["to"],
        table_joined=table_joined,
        materialized=cs.Materialized(store="result"),
    )
    builder.table("past", consumed, cs.Materialized(store="past", history_retention="1 day"))
    return builder.build()


BY_HASH = cs.TableJoined(name="join")
BY_PARTITIONERS = cs.TableJoined(partitioner=by_last, other_partitioner=by_last, name="join")


@cases(0.5)
@given(
    st.integers(0, 1 << 30), st.lists(st.none() | st.integers(1, 7), min_size=1, max_size=14), st.booleans()
)
@example(1, [None] * 9 + [3, None, 5, None, 2, None, 1, 7], True)
def test_state_in_files(seed: int, steps: list[int | None], partitioned: bool) -> None:
    """Batches (None) and numbers of partitions, in any order; all that is kept is read as its format says."""
    chance, model = random.Random(seed), Model()
    wanted: dict[int, tuple[int, int]] = {}
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        for module in (state_store, state_rescaling):
            patch.setattr(module, "SEGMENT_ROWS", 3)
        topology = shops(BY_PARTITIONERS if partitioned else BY_HASH)
        with closing(Writer(Path(folder), topology, 2, 6)) as writer:
            for step in steps:
                writer.run(model.records(chance)) if step is None else writer.rescale(step)
                if writer.batch:
                    wanted[writer.batch - 1] = (len(model.after) - 1, writer.partitions)
            check_folder(Path(folder), model, wanted, partitioned)


def check_folder(root: Path, model: Model, wanted: dict[int, tuple[int, int]], partitioned: bool) -> None:
    """``wanted``: for each batch how often the model had been asked, and the number of partitions."""
    folder = StateFolder(root)
    assert not wanted or folder.application["partitions"] == wanted[max(wanted)][1]
    for batch in folder.batches() if wanted else ():
        step, partitions = wanted[batch]
        assert folder.partitions(batch) == partitions
        for store in ("left", "result", "past"):
            assert decoded(folder.table(store, batch)) == model.after[step][store], (store, batch)
            assert dict(cs.open_store(root, store, as_of=batch).all()) == model.after[step][store]
        for store in folder.application["stores"]:
            for partition, row in folder.rows(store, batch):
                placed = partitioned and store in ("right@2", "join.references", "join.subscriptions")
                key = row["key"]
                by_hash = (hash_of(key) >> 32) * partitions >> 32
                assert partition == (by_last(key.decode(), partitions) if placed else by_hash)
        subscriptions = {
            (row["key"].decode(), row["key2"].decode()) for _, row in folder.rows("join.subscriptions", batch)
        }
        assert subscriptions == model.after[step]["subscriptions"].keys()


# -- one store ---------------------------------------------------------------------------------------------


@law
@given(st.integers(1, 40), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_bounds_are_those_of_the_partitions(partitions: int, hashes: list[int]) -> None:
    bounds = partition_bounds(partitions)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, 1 << 64, partitions + 1)
    edges = [h for bound in bounds[1:-1] for h in (bound - 1, bound)]
    places = partition_of(np.array([*hashes, *edges], np.uint64), partitions).tolist()
    for h, place in zip([*hashes, *edges], places, strict=True):
        assert bounds[place] <= h < bounds[place + 1]


@law
@given(st.lists(st.integers(-1, 100), min_size=1, max_size=9), st.integers(1, 9))
def test_stream_time_is_the_latest_of_the_partitions_that_share_hashes(times: list[int], after: int) -> None:
    before = len(times)
    held = {pid: Version(VERSIONED, stream_time=time) for pid, time in enumerate(times)}
    made = cut(held, before, after)
    for pid in range(after):
        shares = [
            time
            for old, time in enumerate(times)
            if max(Fraction(old, before), Fraction(pid, after))
            < min(Fraction(old + 1, before), Fraction(pid + 1, after))
        ]
        assert (made[pid].stream_time if pid in made else -1) == max(shares)


changes = st.dictionaries(st.integers(0, 30).map(lambda n: b"%d" % n), st.none() | st.just(b"v"), max_size=12)


@law
@given(st.lists(changes, min_size=1, max_size=12), numbers, st.sampled_from([64, 4]))
def test_the_newest_row_is_found_in_the_partition_of_its_key(
    batches: list[dict[bytes, bytes | None]], numbers: list[int], bits: int
) -> None:
    stamps = count()
    runs = []
    for batch in batches:
        if batch:
            columns = key_value_rows(batch, bits)
            columns["ts"] = np.array([next(stamps) for _ in batch])
            runs.append(sort_rows(columns))
    parts = tuple(Part((Segment(run),)) for run in reversed(runs))
    held = {0: Version(KEY_VALUE, parts, 0, credit=1000)}
    rows = held[0].snapshot().live()
    for before, after in pairwise([1, *numbers]):
        held = cut(held, before, after)
        assert sum(version.credit for version in held.values()) <= 1000
    found = [version.snapshot().live() for version in held.values()]
    for pid, live in zip(held, found, strict=True):
        assert (partition_of(live["h"], numbers[-1]) == pid).all()
        assert all((part.segments and part.job == 0) for part in held[pid].parts)
    kept = [
        (k, t) for live in found for k, t in zip(live["key"].to_pylist(), live["ts"].tolist(), strict=True)
    ]
    assert sorted(kept) == sorted(zip(rows["key"].to_pylist(), rows["ts"].tolist(), strict=True))


def test_small_pieces_become_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_rescaling, "SEGMENT_ROWS", 50)
    rows = {b"%d" % n: b"v" for n in range(400)}
    held = {0: Version(KEY_VALUE, (Part((Segment(sort_rows(key_value_rows(rows))),)),))}
    held = cut(cut(held, 1, 100), 100, 2)
    assert all(len(version.parts) == 1 for version in held.values())
    assert all(len(version.parts[0].segments) <= 5 for version in held.values())
    assert sum(version.rows for version in held.values()) == 400


def test_a_merge_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its inputs and its output become runs like any other, and lose no row."""
    run = sort_rows(key_value_rows({b"%d" % n: b"new" for n in range(20)}))
    older = sort_rows(key_value_rows({b"%d" % n: b"old" for n in range(20)}))
    cut_at = 8
    inputs = [Part((Segment(one.slice(cut_at, 20)),), job=1) for one in (run, older)]
    output = Part((Segment(run.slice(0, cut_at)),), job=1, output=True)
    held = cut({0: Version(KEY_VALUE, (*inputs, output))}, 1, 3)
    live = [version.snapshot().live() for version in held.values()]
    assert sum(one.rows for one in live) == 20
    assert {value for one in live for value in one["value"].to_pylist()} == {b"new"}


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with closing(Writer(tmp_path, shops(BY_HASH), 2)) as writer:
        yield writer


@pytest.mark.parametrize("step", ["write_commit", "write_application"])
def test_a_crash_on_the_way(step: str, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the commit nothing has happened; after it everything has."""
    model, chance = Model(), random.Random(3)
    writer.run(model.records(chance))

    def crash(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(BatchLog, step, crash)
        with pytest.raises(Crash):
            writer.rescale(5)
    assert writer.log.newest().partitions == (2 if step == "write_commit" else 5)
    table = {store: dict(cs.open_store(writer.root, store).all()) for store in ("left", "result", "past")}
    assert table == {store: model.after[-1][store] for store in table}
    writer.rescale(3)
    assert writer.log.newest().partitions == 3
    writer.run(model.records(chance))
    assert dict(cs.open_store(writer.root, "result").all()) == model.after[-1]["result"]


def test_what_only_other_partitions_needed_is_deleted(writer: Writer) -> None:
    model, chance = Model(), random.Random(2)
    for partitions in (4, 6, 2):
        for _ in range(4):
            writer.run(model.records(chance))
        writer.rescale(partitions)
    folder = writer.root / "stores" / "left"
    assert len(list(folder.iterdir())) > 2
    Vacuum(writer.root, writer.log, 0).sweep(writer.batch)
    assert writer.log.commits() == [writer.batch - 1]
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1"]
    found = verify_state(writer.root)
    assert (found.problems, found.leftovers) == ([], [])
    assert dict(cs.open_store(writer.root, "result").all()) == model.after[-1]["result"]


def test_without_a_commit_the_number_is_noted(writer: Writer) -> None:
    writer.rescale(4)
    assert writer.log.commits() == []
    application = writer.log.application()
    assert application is not None
    assert application.partitions == 4
    writer.run(Model().records(random.Random(5)))
    assert writer.log.newest().partitions == 4


def test_a_batch_that_was_begun_is_not_cut_off(writer: Writer) -> None:
    writer.run(Model().records(random.Random(1)))
    writer.log.write_batch(BatchEntry(1, writer.log.batch(0).ranges))
    with pytest.raises(cs.StateError) as caught:
        writer.rescale(3)
    assert caught.value.code == "CS-730"
    assert writer.log.commits() == [0]
