"""What `agg` refuses, what it says, and what its state does."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import agg, serdes
from crossstream.operators.aggregate.builtin import exact, sketch
from crossstream.operators.aggregate.builtin.composition import AggregateParts
from crossstream.operators.aggregate.builtin.parts import PartRows, empty_state
from crossstream.planning.layouts import KEY_VALUE, SESSIONS, WINDOWED, aggregates, layout_of, read_as

TEXT = serdes.string()
VALUE = serdes.json({"n": pl.Int64, "x": pl.Float64, "s": pl.String})


def grouped(value: Any = VALUE, table: bool = False) -> Any:
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=value)
    if not table:
        return builder.stream("s", consumed).group_by_key()
    return builder.table("s", consumed).group_by(
        lambda key, row: ("g", row), cs.Grouped(key=TEXT, value=value)
    )


@pytest.mark.parametrize(
    ("columns", "code", "says"),
    [
        ({}, "CS-104", "agg without aggregates makes empty rows"),
        ({"a": pl.col("n") * 2}, "CS-104", "a of agg is a Polars expression that is not made of aggregates"),
        (
            {"a": pl.col("n").first()},
            "CS-104",
            "a of agg is a Polars expression that is not made of aggregates",
        ),
        ({"a": pl.col("n").sum() + pl.col("n")}, "CS-111", "a of agg reads 'n', beside its aggregates"),
        ({"a": pl.col("n").sum() + pl.col("n").std()}, "CS-111", "a of agg"),
        ({"a": pl.col("m").sum()}, "CS-114", "the field of sum of agg reads the field 'm'"),
        ({"a": 7}, "CS-104", "a of agg is 7"),
        ({"a": agg.count}, "CS-104", "a of agg is the function count itself"),
        ({"a": agg.sum(3)}, "CS-104", "the field of sum is 3"),  # type: ignore[arg-type]
        ({"a": agg.sum("m")}, "CS-114", "the field of sum of agg reads the field 'm'"),
        ({"a": agg.sum("s")}, "CS-114", "a of agg is the sum of a field of type String"),
        ({"a": agg.sum(pl.col("n").sum())}, "CS-111", "reads other records than its own (Sum)"),
        ({"a": agg.count() + pl.col("n")}, "CS-111", "a of agg reads 'n', beside its aggregates"),
        ({"a": agg.count().pipe(lambda n: n.max())}, "CS-111", "a of agg combines groups (Max)"),
        ({"a": agg.max("s") / 2}, "CS-114", "a of agg does not fit its aggregates"),
    ],
)
def test_what_is_refused(columns: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(cs.TopologyError) as error:
        grouped().agg(**columns)
    assert error.value.code == code
    assert says in str(error.value)
    assert error.value.next


def test_values_need_a_declared_type() -> None:
    with pytest.raises(cs.TopologyError) as error:
        grouped(serdes.json()).agg(total=agg.sum("n"))
    assert error.value.code == "CS-113"
    grouped(serdes.json()).agg(number=agg.count())


def test_a_serde_that_cannot_write_the_results() -> None:
    with pytest.raises(cs.TopologyError) as error:
        grouped().agg(cs.Materialized(value=serdes.int64()), total=agg.sum("n"))
    assert error.value.code == "CS-115"


def run(table: Any, *records: tuple[str, Any], **settings: Any) -> tuple[list[Any], dict[str, int]]:
    table.to_stream().to("out")
    with cs.TopologyTestDriver(table._draft.finish(), **settings) as driver:
        topic = driver.create_input_topic("s", TEXT, VALUE)
        for ts, (key, value) in enumerate(records):
            topic.pipe_input(key, value, timestamp=ts)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, serdes.json())
        return [(record.key, record.value) for record in out.read_records()], driver.metrics()["dropped"]


def test_expressions_downstream_know_the_types() -> None:
    table = grouped().agg(total=agg.sum("n"), mean=agg.mean("x")).filter(pl.col("total") > 2)
    found, _ = run(table, ("a", {"n": 1, "x": 0.5}), ("a", {"n": 3, "x": None}), ("b", {"n": 2}))
    assert found == [("a", {"total": 4, "mean": 0.5})]


def test_polars_expressions_of_aggregates() -> None:
    table = grouped().agg(
        average=(pl.col("n") * 2).sum() / pl.len(),
        most=pl.col("x").max().round(1),
        nothing=pl.sum("n"),
        known=pl.col("n").count() + 10,
        range=pl.max_horizontal(pl.col("n").min(), pl.col("n").mean()),
    )
    found, _ = run(table, ("a", {"n": 1, "x": 0.26}), ("a", {"n": 4}), ("b", {"x": 1.0}))
    assert dict(found) == {
        "a": {"average": 5.0, "most": 0.3, "nothing": 5, "known": 12, "range": 2.5},
        "b": {"average": 0.0, "most": 1.0, "nothing": 0, "known": 10, "range": None},
    }


def test_values_that_are_no_struct() -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("s", cs.Consumed(key=TEXT, value=serdes.int64())).group_by_key()
    stream.agg(most=agg.max("value"), keys=agg.collect_set("key")).to_stream().to("out")
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("s", TEXT, serdes.int64()).pipe_input("a", 7)
        record = driver.create_output_topic("out", TEXT, serdes.json()).read_record()
    assert record.value == {"most": 7, "keys": ["a"]}


def test_a_group_without_rows_has_no_row() -> None:
    table = grouped(table=True).agg(number=agg.count(), least=agg.min("n"))
    found, _ = run(table, ("a", {"n": 1}), ("b", {"n": 2}), ("a", None), ("b", None))
    assert found == [
        ("g", {"number": 1, "least": 1}),
        ("g", {"number": 2, "least": 1}),
        ("g", {"number": 1, "least": 2}),
        ("g", None),
    ]


def test_what_is_no_number_in_json_is_null() -> None:
    found, _ = run(grouped().agg(share=agg.sum("n") / agg.sum("x")), ("a", {"n": 0, "x": 0.0}))
    assert found == [("a", {"share": None})]


MOST = 2**63 - 1


@pytest.mark.parametrize("every", [1, 100])
def test_a_sum_beyond_64_bits_is_an_error(every: int) -> None:
    records = [("a", {"n": MOST}), ("a", {"n": -1}), ("a", {"n": 1}), ("a", {"n": 1})]
    with pytest.raises(cs.ProcessingError, match="beyond 64 bits") as error:
        run(grouped().agg(total=agg.sum("n")), *records, commit_every=every)
    assert error.value.code == "CS-501"
    assert error.value.where["offset"] == 3


def test_a_record_that_a_sum_cannot_take_is_skipped_whole() -> None:
    records = [("a", {"n": MOST}), ("a", {"n": 1}), ("a", {"n": -5}), ("b", {"n": 1})]
    for every in (1, 2, 100):
        table = grouped().agg(total=agg.sum("n"), number=agg.count())
        found, dropped = run(table, *records, commit_every=every, processing_errors="skip")
        assert dict(found) == {"a": {"total": MOST - 5, "number": 2}, "b": {"total": 1, "number": 1}}
        assert dropped == {"s.agg: failed": 1}


def test_a_table_never_skips_what_it_could_not_take_away_again() -> None:
    records = [("a", {"n": MOST}), ("b", {"n": 1})]
    with pytest.raises(cs.ProcessingError, match="beyond 64 bits"):
        run(grouped(table=True).agg(total=agg.sum("n")), *records, processing_errors="skip")


def test_nan_is_an_error() -> None:
    table = grouped().agg(total=agg.sum(pl.col("x") / 0))
    with pytest.raises(cs.ProcessingError, match="which JSON does not have"):
        run(table, ("a", {"x": 0.0}))


def test_null_values_belong_to_no_group_in_windows_either() -> None:
    table = grouped().windowed_by("10 ms").agg(number=agg.count())
    builder_out = table.to_stream().map(lambda key, value: (key.key, value))
    builder_out.to("out", cs.Produced(key=TEXT, value=serdes.json()))
    with cs.TopologyTestDriver(table._draft.finish()) as driver:
        topic = driver.create_input_topic("s", TEXT, VALUE)
        topic.pipe_input("a", None, timestamp=1)
        topic.pipe_input("a", {"n": 1}, timestamp=2)
        out = driver.create_output_topic("out", TEXT, serdes.json())
        assert out.read_values() == [{"number": 1}]
        assert driver.metrics()["dropped"] == {"s.agg: null-value": 1}


COLUMNS = {
    "number": agg.count(),
    "known": agg.count("n"),
    "total": agg.sum("n"),
    "exact": agg.sum("x"),
    "mean": agg.mean("x"),
    "least": agg.min("n"),
    "most": agg.max("s"),
    "first": agg.first("s"),
    "last": agg.last("s"),
    "all": agg.collect("n"),
    "set": agg.collect_set("s"),
    "different": agg.approx_distinct("n"),
}


def state_of(parts: AggregateParts, rows: list[tuple[int, float, str | None]], groups: int) -> dict[str, Any]:
    """The state columns of groups 0, 1, … that each have all these rows; without any, of nothing."""
    fields = [
        pl.Series([row[place] for row in rows] * groups, dtype=kind) for place, kind in enumerate(KINDS)
    ]
    states = {}
    for key, part in parts.parts.items():
        states[key] = empty_state(part, groups)
        if rows:
            begins = np.arange(len(rows) * groups) % len(rows) == 0
            items = None if key[1] is None else fields[key[1]]
            states[key] = part.run(items, PartRows.of(begins), states[key])[1]
    return parts.columns(states)


KINDS = (pl.Int64, pl.Float64, pl.String)
"""Of the fields, in the order in which the aggregates name them."""


@pytest.mark.parametrize("cut", range(5))
def test_two_states_become_one(cut: int) -> None:
    """Of windows that are merged: the rows of the left one came first."""
    node = grouped().agg(**COLUMNS)._node
    parts = AggregateParts.of(node.columns)
    assert len(node.columns.fields) == 3
    rows = [(1, 0.1, "a"), (5, 0.2, None), (1, 1e16, "b"), (-2, -1e16, "a")]
    whole = state_of(parts, rows, 2)
    visible, state = parts.merged(state_of(parts, rows[:cut], 2), state_of(parts, rows[cut:], 2))
    same, again = parts.merged(whole, state_of(parts, [], 2))
    assert visible.to_list() == same.to_list()
    assert parts.merged(state, state_of(parts, [], 2))[0].to_list() == visible.to_list()
    assert again.keys() == state.keys()
    assert visible[0] == {
        "number": 4,
        "known": 4,
        "total": 5,
        "exact": math.fsum([0.1, 0.2]),
        "mean": math.fsum([0.1, 0.2]) / 4,
        "least": -2,
        "most": "b",
        "first": "a",
        "last": "a",
        "all": [1, 5, 1, -2],
        "set": ["a", "b"],
        "different": 3,
    }


def test_states_whose_sum_is_beyond_64_bits_do_not_become_one() -> None:
    parts = AggregateParts.of(grouped().agg(total=agg.sum("n"))._node.columns)
    full = state_of(parts, [(MOST, 0.0, None)], 1)
    with pytest.raises(cs.ProcessingError, match="beyond 64 bits"):
        parts.merged(full, full)


def test_a_layout_is_known_by_its_kind() -> None:
    parts = AggregateParts.of(grouped().agg(**COLUMNS)._node.columns)
    for plain in (KEY_VALUE, WINDOWED, SESSIONS):
        layout = aggregates(parts.layout, plain)
        assert layout_of(layout.kind) == layout
        assert layout.expires == plain.expires
        assert read_as(layout.kind) == plain.kind


@pytest.mark.parametrize("count", [1, 10, 100, 1_000, 5_000, 100_000])
def test_a_sketch_is_within_its_error(count: int) -> None:
    entries = sketch.hashed(pa.array([b"%d" % number for number in range(count)], pa.large_binary()))
    found = sketch.running_registers(np.zeros(count, np.int64), entries, np.arange(count))
    weights, filled = np.array([found.weights.sum()]), np.array([found.filled.sum()])
    assert abs(int(sketch.estimate(weights, filled)[0]) - count) <= 0.07 * count


@pytest.mark.parametrize("every", [1, 3, 100])
def test_sums_of_decimals_are_exact(every: int) -> None:
    value = serdes.json({"d": pl.Decimal(38, 2)})
    builder = cs.StreamsBuilder()
    table = builder.table("s", cs.Consumed(key=TEXT, value=value))
    by_all = table.group_by(lambda key, row: ("g", row), cs.Grouped(key=TEXT, value=value))
    by_all.agg(cs.Materialized(store="t"), total=agg.sum("d"), mean=agg.mean("d"))
    most = Decimal("999999999999999999999999999999999999.99")
    given_ = [("a", "0.10"), ("b", "-0.30"), ("c", str(most)), ("d", f"-{most}"), ("a", "0.20"), ("d", None)]
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        topic = driver.create_input_topic("s", TEXT, value)
        held: dict[str, Decimal] = {}
        for key, text in [*given_, ("c", None)]:
            topic.pipe_input(key, {"d": None if text is None else Decimal(text)})
            held[key] = Decimal(text or 0)
            if every == 1:
                found = driver.get_key_value_store("t").get("g")
                with localcontext(Context(prec=60)):
                    assert found["total"] == sum(held.values())
        driver.commit()
        found = driver.get_key_value_store("t").get("g")
        assert found == {"total": Decimal("-0.10"), "mean": pytest.approx(-0.05)}
        topic.pipe_input("e", {"d": most})
        driver.commit()
        with pytest.raises(cs.ProcessingError, match="more than 38 digits"):
            topic.pipe_records([("f", {"d": most})] * every)


@pytest.mark.parametrize(
    "values", [[5e-324, 1.7e308, -1.7e308], [0.1] * 10, [1e308] * 2, [-0.0], [2**53, 1, 1]]
)
def test_a_sum_of_floats_is_rounded_once(values: list[float]) -> None:
    rows = np.zeros(len(values), np.int64)
    nothing = pa.nulls(1, pa.large_binary())
    last = np.array([len(values) - 1])
    digits = exact.digits_of_floats(np.array(values, float))
    found = exact.rounded(*exact.total_so_far(digits, nothing, rows, rows[:1], last))
    wanted = math.inf if values[0] == 1e308 else math.fsum(values)
    assert found.tolist() == [wanted]


ZEROS = [("p", 0.0), ("m", -0.0), ("p", 0.0)]


@pytest.mark.parametrize("every", [1, 9])
def test_the_zero_of_another_group_is_no_extreme(every: int) -> None:
    """p had −0.0 as its largest value, for the two zeros are equal, and m's came last. There is one zero."""
    made = grouped().agg(high=agg.max("x"), low=agg.min("x"), all=agg.collect("x"), set=agg.collect_set("x"))
    rows = results(made, [(key, {"n": 1, "x": x, "s": "a"}) for key, x in ZEROS], every)
    assert [math.copysign(1, row["high"]) for row in rows.values()] == [1, 1]
    assert str(rows["p"]) == str({"high": 0.0, "low": 0.0, "all": [0.0, 0.0], "set": [0.0]})


@pytest.mark.parametrize("every", [1, 9])
def test_sums_without_a_sign_use_all_of_their_64_bits(every: int) -> None:
    value = serdes.json({"u": pl.UInt64})
    columns = {"sum": agg.sum("u"), "mean": agg.mean("u")}
    rows: list[tuple[str, Any]] = [("k", {"u": 2**63}), ("k", {"u": 2**63 - 1}), ("j", {"u": 5})]
    assert results(grouped(value).agg(**columns), rows, every, value)["k"] == {
        "sum": 2**64 - 1,
        "mean": (2**64 - 1) / 2,
    }
    with pytest.raises(cs.ProcessingError, match="beyond 64 bits"):
        results(grouped(value).agg(**columns), [*rows, ("k", {"u": 1})], every, value)


def test_top_wants_a_number_and_what_decides() -> None:
    with pytest.raises(cs.TopologyError, match=r"CS-101.*at least one value, not 0"):
        agg.top(0, by="n")
    with pytest.raises(cs.TopologyError, match=r"CS-104.*a field of bottom is 5"):
        agg.bottom(1, 5)  # type: ignore[arg-type]
    with pytest.raises(cs.TopologyError, match=r"CS-114.*type"):
        grouped().agg(a=agg.top(1, by="value"))


def results(made: Any, rows: list[tuple[str, Any]], every: int, value: Any = VALUE) -> dict[str, Any]:
    """The last row of each group."""
    made.to("out")
    with cs.TopologyTestDriver(made._draft.finish(), commit_every=every) as driver:
        driver.create_input_topic("s", TEXT, value).pipe_records([cs.TestRecord(*row) for row in rows])
        driver.commit()
        return driver.create_output_topic("out", TEXT, serdes.json()).read_key_values_to_map()
