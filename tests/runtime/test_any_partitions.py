"""The number of state partitions changes nothing: not a result, not what is dropped, not what a store shows."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from tests.laws.effort import cases
from tests.laws.shapes import IN, REKEYED, SHAPES, TEXT, Shape, counted, not_two, placed
from tests.operators.aggregate import windowed
from tests.operators.aggregate.windowed import Case
from tests.reference.windows import Kind

Record = tuple[str, str, int]


def ran(shape: Shape, records: list[Record], cuts: set[int], partitions: int) -> Any:
    """What comes out in each batch, whatever the order between keys, and what was dropped."""
    builder = cs.StreamsBuilder()
    made = shape(builder.stream("in", IN))
    rows: list[Any] = []
    made.map(lambda k, v: (repr(k), repr(v))).to("out", key=TEXT, value=TEXT)
    settings: dict[str, Any] = {"commit_every": 10**6, "processing_errors": "skip"}
    with cs.TopologyTestDriver(builder.build(), partitions=partitions, **settings) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        out = driver.create_output_topic("out", TEXT, TEXT)
        for number, (key, value, ts) in enumerate(records):
            topic.pipe_input(key, value, timestamp=ts, partition=0)
            if number in cuts:
                driver.commit()
                rows.append(Counter((r.key, r.value, r.timestamp) for r in out.read_records()))
        driver.commit()
        rows.append(Counter((r.key, r.value, r.timestamp) for r in out.read_records()))
        return rows, driver.metrics()["dropped"]


def random_records(random: Random) -> list[Record]:
    step, late, now = random.choice((1, 3, 6)), random.choice((0, 4, 15)), 0
    found = []
    for _ in range(random.randrange(2, 25)):
        now += random.randrange(step + 1) * (1 + 8 * (random.random() < 0.1))
        found.append(
            (random.choice("abcde"), random.choice("12345"), max(0, now - random.randrange(late + 1)))
        )
    return found


@pytest.mark.parametrize("name", SHAPES)
@cases(0.25)
@given(st.sampled_from([*REKEYED]), st.integers(0, 10**9), st.integers(2, 7))
def test_the_number_of_state_partitions_changes_nothing(
    name: str, rekeyed: str, seed: int, partitions: int
) -> None:
    random = Random(seed)
    records = random_records(random)
    cuts = {number for number in range(len(records)) if random.random() < 0.3}
    shape = lambda s: SHAPES[name](REKEYED[rekeyed](s))  # noqa: E731
    assert ran(shape, records, cuts, partitions) == ran(shape, records, cuts, 1), records


def shown(case: Case, batches: list[list[windowed.Record]], partitions: int) -> Any:
    """What comes out in each batch, whatever the order between keys; what the store shows, and what was dropped."""
    ran = windowed.run(case, batches, partitions)
    return [Counter(batch) for batch in ran.batches], ran.rows, ran.dropped, ran.apart


@pytest.mark.parametrize("kind", ["time", "session", "sliding"])
@pytest.mark.parametrize("final", [False, True])
@cases(0.5)
@given(st.integers(0, 10**9), st.integers(2, 7))
def test_nor_does_it_change_the_stores_of_windows(
    kind: Kind, final: bool, seed: int, partitions: int
) -> None:
    random = Random(seed)
    case = windowed.random_case(random, kind, final=final)
    records = windowed.random_records(random, 30)
    batches = windowed.cut(random, records)
    assert shown(case, batches, partitions) == shown(case, batches, 1), (case, batches)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("partitions", [1, 2, 3, 5])
def test_a_late_record_sees_what_came_before_it(final: bool, partitions: int) -> None:
    """Story: c@40 is in [36, 40]. Then b@43 and b@44 begin [44, 48], the newest window. c@43 comes in time for
    [41, 45], which begins after c@40. In Kafka's store the window of c@40 does not show any more, so c@43 is lost.
    """
    case = Case("sliding", "count", 4, final=final)
    records = [windowed.Record(key, "1", ts) for key, ts in (("c", 40), ("b", 43), ("b", 44), ("c", 43))]
    records.append(windowed.Record("b", "1", 60))
    made = windowed.run(case, [records], partitions)
    assert [(r.start, r.value, r.ts) for r in made.batches[0] if r.key == "c"] == [(36, 1, 40), (41, 1, 43)]
    assert made.dropped == 1  # [39, 43] is closed for c@43


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_record_that_a_function_fails_on_closes_no_window(partitions: int) -> None:
    """Story: the function refuses a@90. So a@1 is in time, though windows around it would be closed at 90."""
    shape = lambda s: counted("time", "close")(placed(s).map_values(not_two))  # noqa: E731
    records = [("a", "1", 0), ("a", "2", 90), ("a", "1", 1), ("b", "1", 90)]
    batches, dropped = ran(shape, records, set(), partitions)
    (found,) = [value for key, value, _ in batches[0] if "'a'" in key]
    assert found == "2"
    assert "late" not in dropped
