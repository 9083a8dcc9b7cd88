"""Streams that look up tables, in the driver: null keys, versions of derived tables, one record both ways."""

from __future__ import annotations

import pytest

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)
PRODUCED = cs.Produced(key=TEXT, value=TEXT)
HOUR = cs.Materialized(store="versions", history_retention="1 hour")


def both(left, right):
    return f"{left},{right or '∅'}"


def run(builder, *records, every=1):
    """What comes out of the topic "out", and the drops. Records: topic, key, value, timestamp."""
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        for topic, key, value, timestamp in records:
            driver.create_input_topic(topic, TEXT, TEXT).pipe_input(key, value, timestamp)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, TEXT).read_key_values()
        return out, driver.metrics()


def keyed_by_value(stream):
    return stream.select_key(lambda value: None if value == "nobody" else value)


# Null keys


@pytest.mark.parametrize("every", [1, 10])
def test_null_keys_of_a_re_keyed_stream(every):
    """Kafka's inner join removes them where the stream is moved, without a word; here they are counted (8.19)."""
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("stream", CONSUMED), builder.table("table", CONSUMED)
    keyed_by_value(stream).join(table, both, cs.Joined(value=TEXT)).to("out", PRODUCED)
    records = [("table", "a", "row", 0), ("stream", "x", "nobody", 1), ("stream", "x", "a", 2)]
    out, metrics = run(builder, *records, every=every)
    assert out == [("a", "a,row")]
    assert metrics["dropped"] == {"stream.select_key.join(table): null-key-repartition": 1}
    assert metrics["dropped-records-total"] == 0


def test_null_keys_pass_to_a_left_join():
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("stream", CONSUMED), builder.table("table", CONSUMED)
    moved = keyed_by_value(stream).repartition(cs.Repartitioned(key=TEXT, value=TEXT))
    moved.left_join(table, both).to("out", PRODUCED)
    out, metrics = run(builder, ("stream", "x", "nobody", 1))
    assert out == [(None, "nobody,∅")]
    assert metrics["dropped"] == {}


def test_null_keys_are_dropped_by_an_inner_join_above_a_left_one():
    """The left join below lets them through the re-keying, so they are the inner join's to count."""
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("stream", CONSUMED), builder.table("table", CONSUMED)
    first = keyed_by_value(stream).join(table, both, cs.Joined(name="first"))
    first.left_join(table, both).to("out", PRODUCED)
    out, metrics = run(builder, ("stream", "x", "nobody", 1))
    assert out == []
    assert metrics["dropped"] == {"first: null-key": 1}
    assert metrics["dropped-records-total"] == 1


def test_null_keys_stop_at_a_repartitioning_without_a_left_join_below():
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("stream", CONSUMED), builder.table("table", CONSUMED)
    moved = keyed_by_value(stream).repartition(cs.Repartitioned(key=TEXT, value=TEXT, name="moved"))
    moved.join(table, both).to("out", PRODUCED)
    stream.left_join(table, both).foreach(lambda key, value: None)
    _, metrics = run(builder, ("stream", "x", "nobody", 1))
    assert metrics["dropped"] == {"moved: null-key-repartition": 1}


def test_null_keys_stop_at_a_repartitioning_of_what_a_left_join_looks_up():
    """No null key gets from there to the join, which has them of its other stream only."""
    builder = cs.StreamsBuilder()
    stream, other = builder.stream("stream", CONSUMED), builder.stream("table", CONSUMED)
    moved = keyed_by_value(other).repartition(cs.Repartitioned(key=TEXT, value=TEXT, name="moved"))
    stream.left_join(moved.to_table(), both).foreach(lambda key, value: None)
    moved.to("out", PRODUCED)
    out, metrics = run(builder, ("table", "x", "nobody", 1), ("table", "x", "a", 2))
    assert out == [("a", "a")]
    assert metrics["dropped"] == {"moved: null-key-repartition": 1}


# One record, several ways


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("first", ["record", "result"])
def test_a_stream_merged_with_its_join_has_the_results_first(first, every):
    """A record goes to the join before it goes to what merges it, which was built later; whichever is named first."""
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("stream", CONSUMED), builder.table("table", CONSUMED)
    joined = stream.left_join(table, both)
    merged = stream.merge(joined) if first == "record" else joined.merge(stream)
    merged.to("out", PRODUCED)
    records = [("table", "a", "row", 0), ("stream", "a", "1", 1), ("stream", "a", "2", 2)]
    out, _ = run(builder, *records, every=every)
    assert out == [("a", "1,row"), ("a", "1"), ("a", "2,row"), ("a", "2")]


# Versions


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize(("derive", "row"), [("filter", "old"), ("map_values", "old"), ("kept", "new")])
def test_what_is_derived_from_versions(derive, row, every):
    """A filter or mapping is read as of a time like the table itself, unless it has a store of its own (2.2.6)."""
    builder = cs.StreamsBuilder()
    table = builder.table("table", CONSUMED, HOUR)
    derived = {
        "filter": lambda: table.filter(lambda value: True),
        "map_values": lambda: table.map_values(lambda value: value),
        "kept": lambda: table.filter(lambda value: True, materialized=cs.Materialized(store="kept")),
    }[derive]()
    builder.stream("stream", CONSUMED).join(derived, both).to("out", PRODUCED)
    records = [("table", "k", "old", 100), ("table", "k", "new", 200), ("stream", "k", "late", 150)]
    if every == 1:
        assert run(builder, *records)[0] == [("k", f"late,{row}")]
    else:  # in one batch the record comes before the newer row
        assert run(builder, *records, every=every)[0] == [("k", "late,old")]


@pytest.mark.parametrize(("stored", "row", "dropped"), [(None, "new", 1), ("kept", "late", 0)])
def test_late_versions_of_a_derived_table(stored, row, dropped):
    """Behind the newest version a late one changes no join; a store of its own goes by arrival. As in Kafka 4.3."""
    builder = cs.StreamsBuilder()
    table, other = builder.table("table", CONSUMED, HOUR), builder.table("other", CONSUMED)
    kept = cs.Materialized(store=stored) if stored else cs.Materialized(value=TEXT)
    derived = table.filter(lambda value: True, materialized=kept)
    derived.join(other, both).to_stream().to("out", PRODUCED)
    records = [("table", "k", "new", 100), ("table", "k", "late", 50), ("other", "k", "o", 200)]
    out, metrics = run(builder, *records)
    assert out == [("k", f"{row},o")]
    assert metrics["dropped-records-total"] == dropped


# Streams made of tables


def tables_and_lookups(builder, kind):
    """A stream made of the table "rows", which has columns of its own for other readers, and one that knows of none."""
    kept = HOUR if kind == "versions" else None
    rows, others = builder.table("rows", CONSUMED, kept), builder.table("others", CONSUMED)
    if kind == "foreign keys":
        rows.join(others, both, foreign_key=lambda row: row).to_stream().to("joined", PRODUCED)
    return rows.to_stream(), builder.stream("stream", CONSUMED).left_join(others, both)


READERS = {
    "to_table": lambda stream, rows: stream.to_table(materialized=cs.Materialized(value=TEXT)).to_stream(),
    "a table": lambda stream, rows: stream.left_join(rows, lambda left, right: left, cs.Joined(value=TEXT)),
    "a stream": lambda stream, rows: stream.left_join(
        rows.to_stream(),
        lambda left, right: left,
        cs.JoinWindows.of(0, eager=True),
        cs.StreamJoined(value=TEXT),
    ),
    "another merge": lambda stream, rows: stream.merge(rows.to_stream()).repartition(
        cs.Repartitioned(key=TEXT, value=TEXT)
    ),
}


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("first", ["rows", "stream"])
@pytest.mark.parametrize("kind", ["versions", "foreign keys"])
@pytest.mark.parametrize("reader", READERS)
def test_a_stream_made_of_a_table_is_a_stream_like_others(reader, kind, first, every):
    """It can be merged with any, in either order, and read by key."""
    builder = cs.StreamsBuilder()
    table, looked_up = tables_and_lookups(builder, kind)
    merged = table.merge(looked_up) if first == "rows" else looked_up.merge(table)
    READERS[reader](merged, builder.table("apart", CONSUMED)).to("out", PRODUCED)
    records = [("rows", "a", "1", 5), ("stream", "b", "2", 5)]
    assert sorted(run(builder, *records, every=every)[0]) == [("a", "1"), ("b", "2,∅")]


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("joined", [False, True])
def test_what_a_record_itself_overtakes_is_no_record(joined, every):
    """One record puts three versions; the stream gets the last, whether or not a join wants every change."""
    builder = cs.StreamsBuilder()
    several = builder.stream("stream", CONSUMED).flat_map_values(
        lambda value: [value, value + "!", value + "?"]
    )
    stored = cs.Materialized(store="versions", key=TEXT, value=TEXT, history_retention="1 hour")
    stream = several.to_table(materialized=stored).to_stream()
    if joined:
        other = builder.global_table("other", CONSUMED)
        stream = stream.left_join(other, lambda left, right: left, key_selector=lambda value: None)
    stream.to("out", PRODUCED)
    assert run(builder, ("stream", "k", "a", 5), every=every)[0] == [("k", "a?")]


# The order of changes


def referring(builder, how):
    """Rows of the table "rows" with the rows of "others" they name; all changes of them are wanted."""
    rows = builder.table("rows", CONSUMED)
    if how == "global":
        return rows.join(builder.global_table("others", CONSUMED), both, foreign_key=lambda row: row)
    others = builder.table("others", CONSUMED)
    if how == "foreign key":
        return rows.join(others, both, foreign_key=lambda row: row)
    return rows.outer_join(others, both, foreign_key=lambda row: row, keyed_by=cs.LeftOrRight)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("wish", ["looked up", "followed"])
@pytest.mark.parametrize("how", ["foreign key", "global", "outer"])
def test_changes_made_by_foreign_key_are_in_order_for_everyone(how, wish, partitions):
    """A row that names one row and the other in turn ends with the last one, whoever reads its changes."""
    builder = cs.StreamsBuilder()
    result = referring(builder, how)
    stream = (
        result.to_stream(lambda key, value: key.left or key.right) if how == "outer" else result.to_stream()
    )
    seen = []
    stream.peek(lambda key, value: seen.append((key, value))).to("out", PRODUCED)
    keyed = builder.stream("stream", CONSUMED)
    if wish == "followed":
        stream.left_join(builder.global_table("third", CONSUMED), both, key_selector=lambda value: None)
    elif how == "outer":
        keyed.map(lambda key, value: (cs.LeftOrRight(left=key), value)).join(result, both)
    else:
        keyed.join(result, both)
    with cs.TopologyTestDriver(builder.build(), partitions=partitions, commit_every=100) as driver:
        others = driver.create_input_topic("others", TEXT, TEXT)
        others.pipe_input("a", "1", 1)
        others.pipe_input("b", "2", 2)
        driver.commit()
        rows = driver.create_input_topic("rows", TEXT, TEXT)
        for place, name in enumerate("abababa"):
            rows.pipe_input("k", name, 10 + place)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, TEXT).read_records()
    made = [(one.value, one.timestamp) for one in out if one.key == "k"]
    assert made == [(f"{name},{'ab'.index(name) + 1}", 10 + place) for place, name in enumerate("abababa")]
    assert [value for key, value in seen if key == "k"] == [value for value, _ in made]


@pytest.mark.parametrize("every", [1, 10])
def test_a_joiner_gets_the_same_of_a_record_that_waited_and_of_one_that_did_not(every):
    """Kept as JSON while it waits, a pair is a list; so it is if it comes too late to wait."""
    builder = cs.StreamsBuilder()
    stream, other = builder.stream("stream", CONSUMED), builder.table("other", CONSUMED)
    pairs = stream.left_join(other, lambda left, right: (left, left))
    joined = cs.Joined(value=serdes.json(), grace=10)
    pairs.left_join(builder.table("table", CONSUMED, HOUR), lambda left, right: repr(left), joined).to(
        "out", PRODUCED
    )
    records = [("stream", "k", "waits", 100), ("stream", "k", "late", 50), ("stream", "k", "next", 200)]
    assert run(builder, *records, every=every)[0] == [("k", "['late', 'late']"), ("k", "['waits', 'waits']")]


# One record both ways


@pytest.mark.parametrize("every", [1, 10])
def test_a_table_that_its_own_changes_look_up(every):
    builder = cs.StreamsBuilder()
    table = builder.table("table", CONSUMED)
    table.to_stream().join(table, both).to("out", PRODUCED)
    records = [("table", "k", "a", 1), ("table", "k", "b", 2), ("table", "k", None, 3)]
    out, metrics = run(builder, *records, every=every)
    assert out == [("k", "a,a"), ("k", "b,b")]
    assert metrics["dropped"] == {"table.to_stream.join(table): null-value": 1}


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("first", ["table", "stream"])
def test_the_way_that_was_built_first_is_taken_first(first, every):
    builder = cs.StreamsBuilder()
    source = builder.stream("source", CONSUMED)
    if first == "table":
        table = source.to_table()
        stream = source.map_values(str.upper)
    else:
        stream = source.map_values(str.upper)
        table = source.to_table()
    stream.left_join(table, both).to("out", PRODUCED)
    out, _ = run(builder, ("source", "k", "a", 1), ("source", "k", "b", 2), every=every)
    assert out == ([("k", "A,a"), ("k", "B,b")] if first == "table" else [("k", "A,∅"), ("k", "B,a")])


def test_a_failing_joiner_names_the_record():
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("stream", CONSUMED), builder.table("table", CONSUMED)
    stream.join(table, lambda left, right: 1 / 0, cs.Joined(name="told")).foreach(print)
    with pytest.raises(cs.ProcessingError) as caught:
        run(builder, ("table", "k", "row", 0), ("stream", "x", "v", 1), ("stream", "k", "v", 2))
    assert caught.value.where["operator"] == "told"
    assert (caught.value.where["topic"], caught.value.where["offset"]) == ("stream", 1)
