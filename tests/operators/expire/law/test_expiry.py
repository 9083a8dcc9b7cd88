"""A table whose rows expire is the table of a topic that has the deletes, however the input is cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.operators.expire.plan import tick_of
from tests.laws.effort import law
from tests.reference.expiry import with_deletes

TEXT, NUMBER = serdes.string(), serdes.int64()
CONSUMED = cs.Consumed(key=TEXT, value=NUMBER)
Record = tuple[str, int | None, int]
Made = list[tuple[Any, Any, int]]

some_records = st.lists(
    st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.integers(0, 4)), st.integers(0, 60)),
    max_size=25,
)
some_ttls = st.integers(1, 30)
some_batches = st.sampled_from([1, 2, 3, 7, 100])
some_partitions = st.integers(1, 3)
some_bits = st.sampled_from([64, 4])

Shape = Callable[[Any, cs.StreamsBuilder], Any]
"""Makes something of the table, and of the stream of the topic "asked"."""


def to_stream(table: Any, builder: cs.StreamsBuilder) -> Any:
    return table.to_stream()


def looked_up(table: Any, builder: cs.StreamsBuilder) -> Any:
    return builder.stream("asked", CONSUMED).left_join(table, lambda asked, row: (row or 0) * 100 + asked)


def sums(table: Any, builder: cs.StreamsBuilder) -> Any:
    by_value = table.group_by(lambda key, value: (str(value % 2), value), cs.Grouped(key=TEXT, value=NUMBER))
    return by_value.reduce(lambda total, one: total + one, lambda total, one: total - one).to_stream()


def joined(table: Any, builder: cs.StreamsBuilder) -> Any:
    other = builder.table("asked", CONSUMED)
    result = table.left_join(other, lambda one, two: one * 100 + (two or 0), materialized=_value("joined"))
    return result.to_stream()


def referring(table: Any, builder: cs.StreamsBuilder) -> Any:
    """The rows that expire are on the left of a foreign-key join."""
    other = builder.table("asked", CONSUMED)
    result = table.left_join(
        other,
        lambda one, two: one * 100 + (two or 0),
        foreign_key=lambda value: "abcde"[value],
        materialized=_value("referring"),
    )
    return result.to_stream()


def referred(table: Any, builder: cs.StreamsBuilder) -> Any:
    """The rows that expire are on the right of a foreign-key join."""
    other = builder.table("asked", CONSUMED)
    result = other.left_join(
        table,
        lambda one, two: one * 100 + (two or 0),
        foreign_key=lambda value: "abcde"[value],
        materialized=_value("referred"),
    )
    return result.to_stream()


def derived(table: Any, builder: cs.StreamsBuilder) -> Any:
    return table.filter(lambda value: value > 1).map_values(lambda value: value * 2).to_stream()


def _value(store: str) -> cs.Materialized:
    return cs.Materialized(store=store, value=NUMBER)


SHAPES: dict[str, Shape] = {
    shape.__name__: shape for shape in (to_stream, looked_up, sums, joined, referring, referred, derived)
}


def length(ttl: int | None) -> timedelta | None:
    return None if ttl is None else timedelta(milliseconds=ttl)


def read_table(builder: cs.StreamsBuilder, ttl: int | None) -> Any:
    return builder.table("in", CONSUMED, cs.Materialized(store="rows", ttl=length(ttl)))


def without_store(builder: cs.StreamsBuilder, ttl: int | None) -> Any:
    return builder.table("in", CONSUMED, cs.Materialized(ttl=length(ttl)))


def of_a_stream(builder: cs.StreamsBuilder, ttl: int | None) -> Any:
    records = builder.stream("in", CONSUMED).map_values(lambda value: value)
    return records.to_table(
        materialized=cs.Materialized(store="rows", key=TEXT, value=NUMBER, ttl=length(ttl))
    )


SOURCES = {source.__name__: source for source in (read_table, without_store, of_a_stream)}


def ran(
    make: Callable[[cs.StreamsBuilder], Any],
    records: Sequence[tuple[str, list[Record]]],
    every: int = 1,
    partitions: int = 1,
    bits: int = 64,
) -> Made:
    """What comes out; ``records``: topics, and what stands there for one record of the input."""
    builder = cs.StreamsBuilder()
    make(builder).to("out", key=TEXT, value=NUMBER)
    topology = builder.build()
    read = {topic for node in topology for topic in node.topics}
    made: Made = []
    with cs.TopologyTestDriver(topology, partitions, every, hash_bits=bits) as driver:
        topics = {topic: driver.create_input_topic(topic, TEXT, NUMBER) for topic in read}
        results = driver.create_output_topic("out", TEXT, NUMBER)
        for topic, rows in records:
            for key, value, ts in rows if topic in read else ():
                topics[topic].pipe_input(key, value, timestamp=ts, partition=0)
            made += (one_each if every == 1 else all_of)(results.read_records())
        driver.commit()
        made += all_of(results.read_records())
    return made


def all_of(records: Sequence[Any]) -> Made:
    return [(record.key, record.value, record.timestamp) for record in records]


def one_each(records: Sequence[Any]) -> Made:
    """What one record of the input makes of a key is one change, to the last of the values (semantics 2.2.2)."""
    last = {record.key: (record.key, record.value, record.timestamp) for record in records}
    return list(last.values())


def by_key(made: Made) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for key, value, ts in made:
        found.setdefault(key, []).append((value, ts))
    return found


def left(made: Made) -> dict[Any, Any]:
    rows = {key: (value, ts) for key, value, ts in made}
    return {key: row for key, row in rows.items() if row[0] is not None}


def values(rows: dict[Any, Any]) -> dict[Any, Any]:
    """Without the timestamps, which of a join depend on the record that came last in the batch (semantics 1.3)."""
    return {key: value for key, (value, _) in rows.items()}


def in_order(records: Sequence[Record], asked: Sequence[Record]) -> list[tuple[str, Record]]:
    """Both topics one after the other by turns, in the order in which a batch of all of them takes them."""
    merged, heads = [], {"in": list(records), "asked": list(asked)}
    newest = dict.fromkeys(heads, -1)
    while any(heads.values()):
        topic = min(
            (topic for topic in heads if heads[topic]), key=lambda one: max(newest[one], heads[one][0][2])
        )
        newest[topic] = max(newest[topic], heads[topic][0][2])
        merged.append((topic, heads[topic].pop(0)))
    return merged


def test_a_row_that_is_not_written_is_deleted():
    records = [("a", 1, 0), ("b", 1, 4), ("a", 2, 8), ("c", 1, 14), ("a", 3, 20), ("b", 2, 9)]
    alone = [("in", [record]) for record in records]
    for every in (1, 100):
        made = ran(lambda builder: to_stream(read_table(builder, 10), builder), alone, every)
        if every == 1:
            assert by_key(made) == {
                "a": [(1, 0), (2, 8), (3, 20)],
                "b": [(1, 4), (None, 14), (None, 19)],
                "c": [(1, 14)],
            }
        assert left(made) == {"a": (3, 20), "c": (1, 14)}


@law
@given(
    some_records,
    some_records,
    some_ttls,
    st.sampled_from([1, 700]),
    st.sampled_from(list(SOURCES)),
    st.sampled_from(list(SHAPES)),
)
def test_record_by_record_it_is_a_topic_that_has_the_deletes(records, asked, ttl, times, source, shape):
    """``times``: as much longer, so that the clock goes in steps of many ms, other than those of the records."""
    records, asked = ([(key, value, ts * times // 3) for key, value, ts in rows] for rows in (records, asked))
    ttl *= times
    given_ = in_order(records, asked)
    standing = iter(with_deletes(records, ttl, tick_of(ttl)))
    replaced = [(topic, next(standing) if topic == "in" else [one]) for topic, one in given_]
    made = ran(
        lambda builder: SHAPES[shape](SOURCES[source](builder, ttl), builder),
        [(topic, [one]) for topic, one in given_],
    )
    wanted = ran(lambda builder: SHAPES[shape](SOURCES[source](builder, None), builder), replaced)
    assert by_key(made) == by_key(wanted)


@law
@given(
    some_records,
    some_records,
    some_ttls,
    st.sampled_from(list(SOURCES)),
    st.sampled_from(list(SHAPES)),
    some_batches,
    some_partitions,
    some_bits,
)
def test_any_cut_gives_the_same(records, asked, ttl, source, shape, every, partitions, bits):
    given_ = [(topic, [one]) for topic, one in in_order(records, asked)]

    def make(builder: cs.StreamsBuilder) -> Any:
        return SHAPES[shape](SOURCES[source](builder, ttl), builder)

    made, wanted = ran(make, given_, every, partitions, bits), ran(make, given_)
    assert values(left(made)) == values(left(wanted))
    if shape == "looked_up":
        assert by_key(made) == by_key(wanted)
