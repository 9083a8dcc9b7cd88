"""Random cases for the join of a table with several others, and their runs by the driver and the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.conformance.runner import Ran, read
from tests.laws.engine import Way, as_taken, assert_same_tables, assert_same_tables_by_record, with_one_time
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


def check_by_record(case: Case, way: Way) -> None:
    """C: what each record gives, with its timestamp and headers; the drops; the store."""
    case, way = {**case, "inputs": with_headers(case["inputs"])}, with_one_time(case, way)
    ran = run_driver(build(case, way), case, way)
    assert_same_tables_by_record(case["inputs"], ran, run_reference(case))


def check_any_batches(case: Case, way: Way) -> None:
    """T after every batch."""
    way = with_one_time(case, way)
    check_in_batches(case, way, run_driver(build(case, way), case, way))
