"""The versions of a table, made by any operator: those of one record at a time, also if all come in one batch."""

from __future__ import annotations

import pytest

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)
KEPT = {"materialized": cs.Materialized(store="result", value=TEXT, history_retention="1 hour")}
EITHER = {"keyed_by": cs.LeftOrRight, "foreign_key": lambda value: "k", **KEPT}
LATE = [("table", "k", "a", 10), ("table", "k", "b", 20), ("table", "k", "c", 30), ("table", "k", "l", 15)]


def both(left, right):
    return f"{left},{right}"


def row_wise(build):
    return lambda builder, table: build(table)


def with_other(build):
    return lambda builder, table: build(table, builder.table("other", CONSUMED))


def with_global(builder, table):
    other = builder.global_table("other", CONSUMED)
    return table.left_join(other, both, foreign_key=lambda value: "k", **KEPT)


def with_many(table, other):
    by = {"one": (other, lambda value: "k")}
    return table.left_join_many(by, lambda left, rows: both(left, rows["one"]), **KEPT)


ROW_WISE = {
    "filter": row_wise(lambda table: table.filter(bool, **KEPT)),
    "filter of a filter": row_wise(lambda table: table.filter(bool).filter(bool, **KEPT)),
    "map_values": row_wise(lambda table: table.map_values(lambda value: value, **KEPT)),
    "stream": row_wise(lambda table: table.to_stream().peek(id).to_table(**KEPT)),
}
JOINS = {
    "join": with_other(lambda table, other: table.join(other, both, **KEPT)),
    "foreign key": with_other(
        lambda table, other: table.join(other, both, foreign_key=lambda value: "k", **KEPT)
    ),
    "looked up by foreign key": with_other(
        lambda table, other: other.join(
            table, lambda left, right: both(right, left), foreign_key=lambda value: "k", **KEPT
        )
    ),
    "right by foreign key": with_other(lambda table, other: table.right_join(other, both, **EITHER)),
    "outer by foreign key": with_other(lambda table, other: table.outer_join(other, both, **EITHER)),
    "join of many": with_other(with_many),
    "join with a global table": with_global,
    "filter of a join": with_other(lambda table, other: table.join(other, both).filter(bool, **KEPT)),
}


@pytest.mark.parametrize("every", [1, 2, 100])
@pytest.mark.parametrize("operator", ROW_WISE.values(), ids=ROW_WISE)
def test_a_late_row_of_a_table_with_versions_is_a_version_in_between(operator, every):
    assert versions(operator, "1 hour", every, LATE) == ["a", "l", "b", "c"]


@pytest.mark.parametrize("every", [1, 2, 100])
@pytest.mark.parametrize(
    "operator", [ROW_WISE[name] for name in ("filter", "filter of a filter", "map_values")]
)
def test_a_late_row_of_a_table_without_versions_is_its_row_now(operator, every):
    """And so is its result: it holds from when on the one before it did."""
    assert versions(operator, None, every, LATE) == ["a", "a", "b", "l"]


@pytest.mark.parametrize("every", [1, 2, 100])
def test_a_late_record_of_a_stream_is_a_version_in_between(every):
    assert versions(ROW_WISE["stream"], None, every, LATE) == ["a", "l", "b", "c"]


@pytest.mark.parametrize("every", [1, 2, 100])
@pytest.mark.parametrize("operator", JOINS.values(), ids=JOINS)
@pytest.mark.parametrize(("history", "now"), [(None, "l,o"), ("1 hour", "c,o")])
def test_a_join_has_the_rows_there_are_now_and_passes_late_versions_over(operator, history, now, every):
    assert versions(operator, history, every, [("other", "k", "o", 1), *LATE]) == ["a,o", "a,o", "b,o", now]


@pytest.mark.parametrize("every", [1, 100])
@pytest.mark.parametrize("kind", ["foreign key", "join with a global table", "right by foreign key"])
def test_a_result_with_an_older_time_holds_from_when_on_that_before_it_did(kind, every):
    """A right row that is late makes a result that is; but it is the row there is now."""
    records = [("other", "k", "b1", 2), ("table", "k", "x", 26), ("other", "k", "b2", 3)]
    with run(JOINS[kind], None, every, records) as driver:
        store = driver.get_versioned_store("result")
        ((key, now),) = store.all()
        assert now == "x,b2"
        assert [store.get(key, as_of_time=time) for time in (3, 25, 26)] == [None, None, "x,b2"]


@pytest.mark.parametrize("every", [1, 100])
def test_a_result_is_never_too_old_to_be_kept(every):
    """What its row is made of is there, so it is the row, however far time has gone on."""
    records = [("table", "late", "x", 10_000_000), ("table", "k", "x", 5), ("other", "k", "o", 5)]
    with run(JOINS["join"], None, every, [("other", "late", "o", 0), *records]) as driver:
        assert dict(driver.get_versioned_store("result").all()) == {"k": "x,o", "late": "x,o"}
        assert driver.metrics()["dropped"] == {}


def versions(operator, history, every, records):
    """The values of the one key between the timestamps of the table, and its value now."""
    with run(operator, history, every, records) as driver:
        store = driver.get_versioned_store("result")
        ((key, now),) = store.all()
        assert store.get(key, as_of_time=30) == now
        assert store.get(key, as_of_time=9) is None
        return [*(store.get(key, as_of_time=time) for time in (12, 17, 29)), now]


def run(operator, history, every, records):
    builder = cs.StreamsBuilder()
    kept = None if history is None else cs.Materialized(store="table", history_retention=history)
    operator(builder, builder.table("table", CONSUMED, kept))
    driver = cs.TopologyTestDriver(builder.build(), commit_every=every)
    for topic, key, value, timestamp in records:
        driver.create_input_topic(topic, TEXT, TEXT).pipe_input(key, value, timestamp)
    driver.commit()
    return driver
