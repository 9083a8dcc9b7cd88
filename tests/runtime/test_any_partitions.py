"""The number of state partitions changes nothing: not a result, not what is dropped, not what a store shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases
from tests.operators.aggregate import windowed
from tests.operators.aggregate.windowed import Case
from tests.reference.windows import Kind

TEXT = serdes.string()
IN = cs.Consumed(key=TEXT, value=TEXT)

Shape = Callable[[Any], Any]
"""A stream of texts into a stream of objects."""

WINDOWS: Mapping[str, Any] = {
    "time": cs.TimeWindows(size=10, advance=4, grace=2),
    "sliding": cs.SlidingWindows(difference=6, grace=3),
    "session": cs.SessionWindows(gap=5, grace=2),
}


def grouped(s: Any) -> Any:
    return s.group_by_key(cs.Grouped(key=TEXT, value=TEXT))


def placed(s: Any) -> Any:
    return s.repartition(cs.Repartitioned(key=TEXT, value=TEXT))


def not_two(value: str) -> str:
    """Fails on some records: these do not move the stream time of what comes behind."""
    if value == "2":
        raise ValueError(value)
    return value


def counted(kind: str, emit: Any = "update") -> Shape:
    return lambda s: grouped(s).windowed_by(WINDOWS[kind], emit=emit).count().to_stream()


def until_close(kind: str) -> Shape:
    def shape(s: Any) -> Any:
        counts = grouped(s).windowed_by(WINDOWS[kind]).count()
        return counts.suppress(cs.Suppressed.until_window_closes()).to_stream()

    return shape


def limited(s: Any) -> Any:
    return grouped(s).count().suppress(cs.Suppressed.until_time_limit(7)).to_stream()


def limited_behind_a_filter(s: Any) -> Any:
    counts = grouped(s).count().filter(lambda k, n: n % 2 == 1)
    return counts.suppress(cs.Suppressed.until_time_limit(7)).to_stream()


def joined(how: str) -> Shape:
    def shape(s: Any) -> Any:
        other = s.filter(lambda k, v: v > "3").map(lambda k, v: (v + k, v))
        mine = s.map(lambda k, v: ("5" + k, v))
        both = cs.StreamJoined(key=TEXT, value=TEXT, other_value=TEXT)
        window = cs.JoinWindows.of(4, grace=3)
        return getattr(mine, how)(other, lambda left, right: f"{left},{right}", window, both)

    return shape


def versioned(s: Any) -> Any:
    """Keeps versions for 5 ms."""
    kept = cs.Materialized(key=TEXT, value=TEXT, history_retention=5)
    return placed(s.filter(lambda k, v: v > "2")).to_table(materialized=kept)


def looked_up(table: Callable[[Any], Any], how: str = "left_join", grace: int | None = None) -> Shape:
    def shape(s: Any) -> Any:
        both = cs.Joined(key=TEXT, value=TEXT, other_value=TEXT, grace=grace)
        return getattr(placed(s), how)(table(s), lambda left, right: f"{left},{right}", both)

    return shape


def kept_filter(s: Any) -> Any:
    """Versions of a table that has none."""
    kept = cs.Materialized(key=TEXT, value=TEXT, history_retention=5)
    return placed(s).to_table().filter(lambda k, v: v > "2", materialized=kept)


def kept_values(s: Any) -> Any:
    """Versions of a table that has some, in the same round."""
    kept = cs.Materialized(key=TEXT, value=TEXT, history_retention=3)
    return versioned(s).map_values(lambda v: v + "!", materialized=kept)


def kept_join(s: Any) -> Any:
    kept = cs.Materialized(key=TEXT, value=TEXT, history_retention=5)
    other = placed(s.filter(lambda k, v: v < "4")).to_table()
    return placed(s).to_table().join(other, lambda left, right: f"{left}{right}", materialized=kept)


class Totals:
    """What came of each key, with stream time; every 6 ms all that came, and when stream time was there."""

    def init(self, context: Any) -> None:
        self.context, self.held = context, context.store("held")
        context.schedule(6, "stream-time", self.report)

    def process(self, record: Any) -> None:
        self.held.put(record.key, (self.held.get(record.key) or "") + record.value)
        self.context.forward(record.key, self.context.stream_time)

    def report(self, now: int) -> None:
        for key, value in self.held.all():
            self.context.forward(key, f"{value} at {now} of {self.context.stream_time}")


def processed(s: Any) -> Any:
    return placed(s).process(Totals, stores=[cs.KeyValueStore("held", key=TEXT, value=TEXT)])


def processed_twice(s: Any) -> Any:
    made = placed(s).filter(lambda k, v: v != "3").process_values(Times)
    return made.filter(lambda k, v: v % 2 == 0).process_values(Times)


class Times:
    """Forwards stream time with each record."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.forward(record.key, self.context.stream_time)


def by_batches(s: Any) -> Any:
    def rows(batch: Any) -> Any:
        return batch

    schema = pa.schema({"key": pa.string(), "value": pa.string(), "timestamp": pa.int64()})
    return counted("time", "close")(placed(s).transform_batches(rows, schema))


SHAPES: Mapping[str, Shape] = {
    **{f"{kind}, {emit}": counted(kind, emit) for kind in WINDOWS for emit in ("update", "close")},
    **{f"{kind}, suppressed": until_close(kind) for kind in WINDOWS},
    "time limit": limited,
    "time limit behind a filter": limited_behind_a_filter,
    "deduplicate": lambda s: placed(s).deduplicate(5),
    "deduplicate by value": lambda s: placed(s).deduplicate(5, lambda k, v: v),
    "windows of the first ones": lambda s: counted("time", "close")(placed(s).deduplicate(3)),
    "inner": joined("join"),
    "left": joined("left_join"),
    "outer": joined("outer_join"),
    "windows of a join": lambda s: counted("time", "close")(joined("outer_join")(s)),
    "versions": lambda s: versioned(s).to_stream(),
    "look-up of versions": looked_up(versioned),
    "look-up of versions of a filter": looked_up(kept_filter),
    "look-up of versions of values": looked_up(kept_values),
    "look-up of versions of a join": looked_up(kept_join, "join"),
    "look-up with grace": looked_up(versioned, grace=4),
    "look-up with grace of versions of a filter": looked_up(kept_filter, "join", 3),
    "look-up with grace behind a filter": lambda s: looked_up(versioned, grace=2)(
        placed(s).filter(lambda k, v: v != "5")
    ),
    "windows of a look-up with grace": lambda s: counted("time", "close")(looked_up(versioned, grace=4)(s)),
    "processor": processed,
    "processors": processed_twice,
    "windows behind a processor": lambda s: counted("session", "close")(
        placed(s)
        .process_values(Totals, stores=[cs.KeyValueStore("held", key=TEXT, value=TEXT)])
        .map_values(str)
    ),
    "windows behind a function of batches": by_batches,
    "windows of windows": lambda s: counted("session", "close")(
        counted("time", "close")(s).map(lambda k, n: (str(n), k.key))
    ),
}
REKEYED: Mapping[str, Shape] = {
    "as it comes": lambda s: s,
    "by value": lambda s: s.select_key(lambda k, v: v),
    "filtered and repartitioned": lambda s: placed(s.filter(lambda k, v: v != "2")),
    "filtered behind": lambda s: placed(s).filter(lambda k, v: v != "2"),
    "refused behind": lambda s: placed(s).map_values(not_two),
}

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
