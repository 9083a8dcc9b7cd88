"""State of windows on disk: sound after every batch, the same for any number of partitions, also between batches."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.query.verification import verify_state
from tests.docs.state_folder import Writer
from tests.laws.effort import cases
from tests.laws.rescaling import rescale_driver
from tests.operators.aggregate.windowed import TEXT, Record, cut, random_case, topology
from tests.reference.windows import Kind, Result


@cases(0.3)
@given(st.integers(0, 10**9))
def test_rescaled_between_batches(seed: int) -> None:
    """Records in order, so that no partition takes one for late: the store has what is open."""
    random = Random(seed)
    case, records = random_case(random, final=False), in_order(random)
    reference = case.reference()
    with (
        TemporaryDirectory() as folder,
        closing(Writer(Path(folder), topology(case, sink=False), partitions=2)) as writer,
    ):
        for batch in cut(random, records):
            writer.run(
                {"in": [(key.encode(), value.encode(), ts) for key, value, ts in batch if key and value]}
            )
            for record in batch:
                reference.process(*record)
            if random.random() < 0.5:
                writer.rescale(random.randrange(1, 5))
            found = verify_state(folder)
            assert (found.problems, found.leftovers) == ([], [])
            open_ = {
                window: value
                for window, (value, _) in reference.rows.items()
                if window[2] > reference.now - (case.size if case.kind == "session" else 0)
            }
            rows: dict[Any, Any] = dict(cs.open_store(folder, "made").all())
            assert {window: rows.get(window) for window in open_} == open_, (case, records)


def in_order(random: Random) -> list[Record]:
    now, records = 0, []
    for _ in range(random.randrange(1, 25)):
        now += random.choice((1, 2, 5, 30))
        records.append(Record(random.choice("abcde"), random.choice("12345"), now))
    return records


@cases(0.3)
@given(st.integers(0, 10**9))
def test_each_window_comes_out_once_whatever_the_partitions(seed: int) -> None:
    """Windows that were open in one partition, and would have closed in another, come out after rescaling."""
    random = Random(seed)
    kinds: tuple[Kind, ...] = ("time", "session", "sliding")
    case, records = random_case(random, random.choice(kinds), final=True), in_order(random)
    reference = case.reference()
    made: list[Result] = []
    with cs.TopologyTestDriver(topology(case), partitions=3, commit_every=10**6) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        output = driver.create_output_topic("out", case.key, case.value)
        for batch in [*cut(random, records), [Record(key, "1", 10**6) for key in "abcde"]]:
            for record in batch:
                topic.pipe_input(*record[:2], timestamp=record.ts)
                reference.process(*record)
            driver.commit()
            made += [Result(*(*r.key, r.value, r.timestamp)) for r in output.read_records()]
            rescale_driver(driver, random.randrange(1, 5))
        for _ in range(8):  # until each partition has seen a late time
            for key in "abcdefghijklmnop":
                topic.pipe_input(key, "1", timestamp=10**6 + 1)
            driver.commit()
            made += [Result(*(*r.key, r.value, r.timestamp)) for r in output.read_records()]
    wanted = {(*window, value) for window, (value, _) in reference.rows.items() if window[2] < 10**6}
    assert sorted(r[:4] for r in made if r.end < 10**6) == sorted(wanted), (case, records)
