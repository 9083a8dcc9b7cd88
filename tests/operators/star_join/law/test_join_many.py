"""The join of a table with several others, through the driver, against the plain reference and against a chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.conformance.compare import assert_same_by_input
from tests.conformance.runner import Ran, per_batch, read
from tests.laws.effort import cases, law
from tests.laws.engine import (
    Way,
    as_taken,
    assert_same_tables,
    assert_same_tables_by_record,
    check_store,
    rows_of,
    ways,
    with_headers_of,
    with_one_time,
)
from tests.laws.rescaling import rescaling
from tests.laws.strategies import HISTORIES, VALUES, Case, keys, records, with_headers
from tests.reference import Output, Result, fold
from tests.reference.chain import SIDES, headers_of
from tests.reference.join_many import JoinMany
from tests.reference.records import Change, Record
from tests.reference.tables import TableSource, make_table

TEXT = serdes.string()
FOREIGN = ("a", "b", "c", "-")


@dataclass(frozen=True)
class Right:
    """A right table: what the joiner calls it, the input it is, and the part of a left row that refers to it."""

    name: str
    side: str
    index: int

    def of(self, row: str) -> str | None:
        part = row.split(";")[self.index]
        return None if part == "-" else part

    def expression(self) -> pl.Expr:
        part = pl.col("value").str.split(";").list.get(self.index)
        return pl.when(part != "-").then(part)


ONE, TWO = Right("one", "right", 0), Right("two", "third", 1)
EXTRA = [
    Right("own", "left", 2),
    Right("again", "right", 2),
    Right("same", "right", 0),
    Right("a_third", "third", 2),
]


def rows(draw: st.DrawFn) -> st.SearchStrategy[str | None]:
    parts = st.sampled_from(FOREIGN)
    return st.none() | st.builds("{};{};{};{}".format, parts, parts, parts, st.sampled_from(VALUES))


@st.composite
def many_cases(draw: st.DrawFn, versioned: bool = True, max_size: int = 16) -> Case:
    """Left rows with up to three foreign keys that move, go and come back; right rows that come and go."""
    row = rows(draw)
    right = (keys, st.none() | st.sampled_from(VALUES))
    chosen = draw(st.lists(st.sampled_from(EXTRA), max_size=1))
    return {
        "type": draw(st.sampled_from(["inner", "left"])),
        "rights": [ONE, TWO, *chosen][draw(st.integers(0, 1)) :],
        "histories": {side: draw(HISTORIES) if versioned else None for side in SIDES},
        "inputs": draw(records({"left": (keys, row), "right": right, "third": right}, max_size)),
    }


def joined(key: Any, left: str, rows: dict[str, str | None]) -> str:
    return "|".join([left, *(f"{name}:{'∅' if row is None else row}" for name, row in rows.items())])


def expressed(rights: list[Right]) -> pl.Expr:
    named = [
        pl.concat_str(pl.lit(f"{name}:"), pl.col(name).fill_null("∅"))
        for name in sorted(r.name for r in rights)
    ]
    return pl.concat_str(pl.col("left"), *named, separator="|")


def build(case: Case, way: Way, streamed: bool = False) -> cs.Topology:
    """``streamed``: its changes are a stream that is joined, so that all of them are there."""
    builder = cs.StreamsBuilder()
    tables = {side: table(builder, side, case["histories"][side]) for side in SIDES}
    by_column = way.functions == "expressions"
    others = {
        right.name: (tables[right.side], right.expression() if by_column else right.of)
        for right in case["rights"]
    }
    method = tables["left"].join_many if case["type"] == "inner" else tables["left"].left_join_many
    joiner = expressed(case["rights"]) if by_column else (lambda left, rows: joined(None, left, rows))
    stored = cs.Materialized(store="result", value=TEXT) if way.stored else None
    result = method(others, joiner, materialized=stored)
    result.to_stream().to("results", cs.Produced(value=TEXT))
    if streamed:
        nothing = builder.table("nothing", cs.Consumed(key=TEXT, value=TEXT))
        changes = result.to_stream().filter(lambda value: value is not None)
        changes.join(nothing, lambda value, row: row).to("none", cs.Produced(value=TEXT))
    return builder.build()


def table(builder: cs.StreamsBuilder, side: str, history: int | None) -> Any:
    stored = cs.Materialized(store=f"{side}-versions", history_retention=history)
    return builder.table(side, cs.Consumed(key=TEXT, value=TEXT), None if history is None else stored)


def run_driver(
    topology: cs.Topology,
    case: Case,
    way: Way,
    between: Callable[[cs.TopologyTestDriver], None] = lambda driver: None,
    chunk: int | None = None,
    left: Any = TEXT,
) -> Ran:
    """``between``: is called after each batch. ``chunk``: rows that the join makes at a time. ``left``: a serde."""
    outputs: list[list[Output]] = []
    with way.driver(topology, chunk) as driver:
        topics = {
            side: driver.create_input_topic(side, TEXT, left if side == "left" else TEXT) for side in SIDES
        }
        results = driver.create_output_topic("results", TEXT, TEXT)
        for _, ended in way.pipe(driver, topics, case["inputs"]):
            if ended:
                between(driver)
            outputs.append(read(results))
        store = dict(driver.get_key_value_store("result").all()) if way.stored else None
        metrics = driver.metrics()
    return Ran(outputs, store, metrics["dropped-records-total"], metrics["dropped"])


def run_reference(case: Case) -> Result:
    dropped: Counter[str] = Counter()
    sources = {side: TableSource(make_table(case["histories"][side]), dropped) for side in SIDES}
    rights = {right.name: ((lambda key, row, of=right.of: of(row)), right.side) for right in case["rights"]}
    join = JoinMany(case["type"], joined, dict(sorted(rights.items())), dropped)
    used = {"left", *(side for _, side in rights.values())}
    outputs = []
    for item in case["inputs"]:
        record = Record(item["key"], item["value"], item["ts"], headers_of(item))
        side = item["side"]
        changes: dict[str, Change | None] = dict.fromkeys([side])
        for change in sources[side].receive(record):
            changes[side] = change
        outputs.append(
            [Output.of(change) for change in join.receive(changes)] if item["side"] in used else []
        )
    return Result(outputs, fold(output for one in outputs for output in one), +dropped)


def check_in_batches(case: Case, way: Way, ran: Ran) -> None:
    expected = run_reference(as_taken(case, way))
    assert_same_tables(way.ends(len(case["inputs"])), ran, expected)


BEHIND_ITSELF: Case = {
    "type": "inner",
    "rights": [ONE, TWO, EXTRA[0]],
    "histories": {"left": 4, "right": None, "third": None},
    "inputs": [
        {"side": "left", "key": "a", "value": None, "ts": 1},
        {"side": "left", "key": "a", "value": None, "ts": 0},
    ],
}
"""A left table that is a right one, too, has a record behind its latest version: it is dropped in both places."""


@law
@given(many_cases(), ways(by_record=True))
@example(BEHIND_ITSELF, Way())
def test_one_record_at_a_time_is_the_reference(case: Case, way: Way) -> None:
    case = {**case, "inputs": with_headers(case["inputs"])}
    way = with_one_time(case, way)
    ran, expected = run_driver(build(case, way), case, way), run_reference(case)
    assert_same_tables_by_record(case["inputs"], ran, expected)


@law
@given(many_cases(), ways())
def test_no_cut_into_batches_changes_the_table(case: Case, way: Way) -> None:
    way = with_one_time(case, way)
    check_in_batches(case, way, run_driver(build(case, way), case, way))


@law
@given(many_cases(max_size=30), ways(), st.sampled_from([None, 1, 3]))
def test_every_change_is_there_in_any_batches_where_a_stream_wants_it(
    case: Case, way: Way, chunk: int | None
) -> None:
    check_every_change(case, way, chunk=chunk)


@law
@given(many_cases(versioned=False), ways(), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_change_is_there_with_other_numbers_of_partitions_between_batches(
    case: Case, way: Way, numbers: list[int]
) -> None:
    check_every_change(case, way, between=rescaling(numbers))


def check_every_change(case: Case, way: Way, **how: Any) -> None:
    case, way = {**case, "inputs": with_headers(case["inputs"])}, with_one_time(case, way)
    ran = run_driver(build(case, way, streamed=True), case, way, **how)
    taken, ends = as_taken(case, way), way.ends(len(case["inputs"]))
    expected = run_reference(taken)
    wanted = with_headers_of(taken["inputs"], expected)
    assert_same_by_input(per_batch(ran.outputs, ends), per_batch(wanted, ends))
    assert ran.dropped == expected.dropped.total(), (ran.reasons, expected.dropped)
    check_store(ran, expected)


@cases(0.3)
@given(many_cases(max_size=60), ways())
def test_many_rows_in_a_batch_do_not_change_the_table(case: Case, way: Way) -> None:
    way = with_one_time(case, way)
    check_in_batches(case, way, run_driver(build(case, way), case, way))


@law
@given(many_cases(versioned=False), ways(functions=["expressions"]))
def test_expressions_give_what_callables_give(case: Case, way: Way) -> None:
    way = with_one_time(case, way)
    check_in_batches(case, way, run_driver(build(case, way), case, way))


@law
@given(many_cases(versioned=False), ways(), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_other_numbers_of_partitions_between_batches_do_not_change_the_table(
    case: Case, way: Way, numbers: list[int]
) -> None:
    """What is derived is made again in the first batch after; the topics keep their partitions."""
    way = with_one_time(case, way)
    check_in_batches(case, way, run_driver(build(case, way), case, way, rescaling(numbers)))


@law
@given(many_cases(versioned=False), ways())
def test_it_is_a_chain_of_foreign_key_joins(case: Case, way: Way) -> None:
    builder = cs.StreamsBuilder()
    tables = {side: builder.table(side, cs.Consumed(key=TEXT, value=TEXT)) for side in SIDES}
    chain = tables["left"]
    for right in sorted(case["rights"], key=lambda right: right.name):
        chain = (chain.join if case["type"] == "inner" else chain.left_join)(
            tables[right.side],
            lambda row, other, name=right.name: f"{row}|{name}:{'∅' if other is None else other}",
            foreign_key=lambda row, of=right.of: of(row.split("|")[0]),
        )
    chain.to_stream().to("results", cs.Produced(value=TEXT))
    way = replace(way, stored=frozenset())
    chained = run_driver(builder.build(), case, way)
    many = run_driver(build(case, way), case, way)
    ends = way.ends(len(case["inputs"]))
    for count in range(1, len(ends) + 1):
        one, other = (
            [output for batch in per_batch(ran.outputs, ends)[:count] for output in batch]
            for ran in (chained, many)
        )
        assert {k: v for k, (v, _) in fold(one).items()} == {k: v for k, (v, _) in fold(other).items()}


@law
@given(many_cases(), ways())
def test_left_is_inner_and_the_rows_that_lack_a_partner(case: Case, way: Way) -> None:
    left, inner = (
        rows_of(run_driver(build(one, way), one, way))
        for one in ({**case, "type": kind} for kind in ("left", "inner"))
    )
    assert inner.items() <= left.items()
    assert all("∅" in value for key, value in left.items() if key not in inner)


def test_rows_that_keep_their_foreign_keys_are_not_remembered_anew() -> None:
    builder = cs.StreamsBuilder()
    orders, rights = (builder.table(name, cs.Consumed(key=TEXT, value=TEXT)) for name in ("orders", "right"))
    one = {"one": (rights, pl.col("value").str.slice(0, 1))}
    orders.join_many(one, pl.col("left"), named=cs.Named("bills"))
    with cs.TopologyTestDriver(builder.build(), partitions=1, commit_every=1_000) as driver:
        topic = driver.create_input_topic("orders", TEXT, TEXT)

        def remembered(rows: dict[str, str | None]) -> int:
            for key, value in rows.items():
                topic.pipe_input(key, value)
            driver.commit()
            return driver._stores.versions["bills.references", 0].batch

        assert remembered({"o1": "a1", "o2": "b1"}) == 0
        assert remembered({"o1": "a2", "o2": "b2", "o3": None}) == 0
        assert remembered({"o1": "a3", "o2": "a3"}) == 2
        assert remembered({"o1": None}) == 3
