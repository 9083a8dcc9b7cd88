"""``headers=`` of joins: of the left side, of the right one, or of both, in any batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.faults.one_process import streams
from tests.laws.effort import cases
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import Inputs, known_keys, records
from tests.spark.world import World

TEXT = serdes.string()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)
VERSIONED = cs.Materialized(history_retention="1 day")
SIDES = ("left", "right")
WANTED = ["left", "right", "both"]
Pairs = tuple[tuple[str, bytes | None], ...]


def of(name: str | None) -> Pairs:
    """The headers of a record: none for some, and two of one name."""
    return () if name is None else (("of", name.encode()), ("of", None))


def expected(wanted: str, left: Pairs, right: Pairs) -> Pairs:
    return {"left": left, "right": right, "both": (*left, *right)}[wanted]


def paired(left: Any, right: Any) -> str:
    return f"{left}|{right}"


def stream_stream(builder: cs.StreamsBuilder, wanted: str) -> Any:
    left, right = (builder.stream(side, CONSUMED) for side in SIDES)
    return left.outer_join(right, paired, cs.JoinWindows.of("10 ms", eager=True), headers=wanted)


def stream_table(builder: cs.StreamsBuilder, wanted: str, stored: Any = None) -> Any:
    table = builder.table("right", CONSUMED, stored)
    return builder.stream("left", CONSUMED).left_join(table, paired, headers=wanted)


def stream_derived(builder: cs.StreamsBuilder, wanted: str) -> Any:
    table = builder.table("right", CONSUMED).map_values(str).filter(lambda row: True)
    return builder.stream("left", CONSUMED).left_join(table, paired, headers=wanted)


def stream_aggregate(builder: cs.StreamsBuilder, wanted: str) -> Any:
    stored = cs.Materialized(store="last", value=TEXT)
    table = builder.stream("right", CONSUMED).group_by_key().reduce(lambda _, last: last, materialized=stored)
    return builder.stream("left", CONSUMED).left_join(table, paired, headers=wanted)


def stream_global(builder: cs.StreamsBuilder, wanted: str) -> Any:
    table = builder.global_table("right", CONSUMED)
    return builder.stream("left", CONSUMED).left_join(
        table, paired, key_selector=cs.keyed(first), headers=wanted
    )


def stream_view(builder: cs.StreamsBuilder, wanted: str) -> Any:
    table = builder.global_table("right", CONSUMED)
    view = table.left_join(table, lambda left, right: left, key_selector=lambda row: "none")
    return builder.stream("left", CONSUMED).left_join(
        view, paired, key_selector=cs.keyed(first), headers=wanted
    )


def tables(builder: cs.StreamsBuilder, wanted: str, stored: Any = None) -> Any:
    left, right = (builder.table(side, CONSUMED, stored) for side in SIDES)
    return left.outer_join(right, paired, headers=wanted).to_stream()


def by_foreign_key(
    builder: cs.StreamsBuilder, wanted: str, kind: str = "left_join", stored: Any = None
) -> Any:
    """A left row refers to the right row that its last letter names."""
    left, right = builder.table("left", CONSUMED, stored), builder.table("right", CONSUMED, stored)
    keyed_by = {} if kind in ("join", "left_join") else {"keyed_by": cs.LeftOrRight}
    made = getattr(left, kind)(right, paired, foreign_key=referred, headers=wanted, **keyed_by).to_stream()
    return made.map(lambda key, value: (key.left or f"right {key.right}", value)) if keyed_by else made


def with_global(builder: cs.StreamsBuilder, wanted: str) -> Any:
    left, right = builder.table("left", CONSUMED), builder.global_table("right", CONSUMED)
    return left.left_join(right, paired, foreign_key=referred, headers=wanted).to_stream()


def referred(row: str) -> str:
    return "a" if row == "x" else "b"


def first(key: Any, value: Any) -> Any:
    return key


LOOKING_UP = {
    "table": stream_table,
    "versioned": lambda builder, wanted: stream_table(builder, wanted, VERSIONED),
    "derived": stream_derived,
    "aggregate": stream_aggregate,
    "global": stream_global,
    "view": stream_view,
}
TABLES = {"tables": tables, "versioned tables": lambda builder, wanted: tables(builder, wanted, VERSIONED)}


def run(build: Any, wanted: str, inputs: Inputs, way: Way) -> list[list[Any]]:
    builder = cs.StreamsBuilder()
    build(builder, wanted).to("results", PRODUCED)
    with way.driver(builder.build()) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in SIDES}
        results = driver.create_output_topic("results", TEXT, TEXT)
        ends, made = way.ends(len(inputs)), []
        for number, item in enumerate(inputs):
            topics[item["side"]].pipe_input(
                item["key"], item["value"], item["ts"], item["headers"], way.place(number)
            )
            if number + 1 in ends:
                driver.commit()
                made.append(results.read_records())
    return made


def with_headers(inputs: Inputs) -> list[dict[str, Any]]:
    """Each record with headers of its own, every third without."""
    return [{**item, "headers": of(None if n % 3 == 2 else str(n))} for n, item in enumerate(inputs)]


BY_FOREIGN_KEY = {
    "left": by_foreign_key,
    "inner": lambda builder, wanted: by_foreign_key(builder, wanted, "join"),
    "outer": lambda builder, wanted: by_foreign_key(builder, wanted, "outer_join"),
    "versioned": lambda builder, wanted: by_foreign_key(builder, wanted, stored=VERSIONED),
    "global": with_global,
}
values = st.none() | st.sampled_from("xy")
both_sides = records(dict.fromkeys(SIDES, (known_keys, values)), max_size=24, lag=0, step=1)


@cases(1.5)
@given(both_sides, ways(), st.sampled_from(sorted(LOOKING_UP)), st.sampled_from(WANTED))
def test_of_a_stream_that_looks_rows_up(inputs: Inputs, way: Way, kind: str, wanted: str) -> None:
    inputs = [{**item, "value": item["value"] or "z"} if kind == "aggregate" else item for item in inputs]
    inputs = with_headers(inputs)
    order = ("right", "left")
    rows: dict[str, tuple[str | None, Pairs]] = {}
    expecting = []
    for item in as_taken({"inputs": inputs}, way, order)["inputs"]:
        if item["side"] == "right":
            rows[item["key"]] = item["value"], item["headers"]
        elif item["value"] is not None:
            row, headers = rows.get(item["key"], (None, ()))
            found = expected(wanted, item["headers"], () if row is None else headers)
            expecting.append((item["key"], paired(item["value"], row), found))
    made = [
        (one.key, one.value, one.headers)
        for batch in run(LOOKING_UP[kind], wanted, inputs, way)
        for one in batch
    ]
    assert sorted(made, key=str) == sorted(expecting, key=str)


@cases(1.0)
@given(both_sides, ways(), st.sampled_from(sorted(TABLES)), st.sampled_from(WANTED))
def test_of_joins_of_tables(inputs: Inputs, way: Way, kind: str, wanted: str) -> None:
    inputs = with_headers(inputs)
    last: dict[str, dict[str, tuple[str, Pairs]]] = {side: {} for side in SIDES}
    for item in as_taken({"inputs": inputs}, way, SIDES)["inputs"]:
        last[item["side"]][item["key"]] = item["value"], item["headers"]
    rows = {one.key: one for batch in run(TABLES[kind], wanted, inputs, way) for one in batch}
    for key in {*last["left"], *last["right"]}:
        (left, its), (right, others) = (last[side].get(key, (None, ())) for side in SIDES)
        if left is None and right is None:
            continue
        found = expected(wanted, () if left is None else its, () if right is None else others)
        assert (rows[key].value, rows[key].headers) == (paired(left, right), found)


@cases(1.5)
@given(both_sides, ways(), st.sampled_from(sorted(BY_FOREIGN_KEY)), st.sampled_from(WANTED))
def test_of_joins_by_foreign_key(inputs: Inputs, way: Way, kind: str, wanted: str) -> None:
    inputs = with_headers(inputs)
    last: dict[str, dict[str, tuple[str, Pairs]]] = {side: {} for side in SIDES}
    order = ("right", "left") if kind == "global" else SIDES
    for item in as_taken({"inputs": inputs}, way, order)["inputs"]:
        last[item["side"]][item["key"]] = item["value"], item["headers"]
    made = [one for batch in run(BY_FOREIGN_KEY[kind], wanted, inputs, way) for one in batch]
    rows = {one.key: one for one in made}
    for key, (left, its) in last["left"].items():
        if left is None:
            continue
        right, others = last["right"].get(referred(left), (None, ()))
        if right is None and kind == "inner":
            continue
        found = expected(wanted, its, () if right is None else others)
        assert (rows[key].value, rows[key].headers) == (paired(left, right), found)
    named = {referred(left) for left, _ in last["left"].values() if left is not None}
    for key, (right, others) in last["right"].items() if kind == "outer" else ():
        if right is not None and key not in named:
            one = rows[f"right {key}"]
            assert (one.value, one.headers) == (paired(None, right), expected(wanted, (), others))


@cases(1.0)
@given(both_sides, ways(), st.sampled_from(WANTED))
def test_of_joins_of_streams(inputs: Inputs, way: Way, wanted: str) -> None:
    inputs = with_headers([{**item, "value": f"{item['value']}{n}"} for n, item in enumerate(inputs)])
    own = {item["value"]: item["headers"] for item in inputs}
    for batch in run(stream_stream, wanted, inputs, way):
        for one in batch:
            left, right = ("" if side == "None" else side for side in one.value.split("|"))
            assert one.headers == expected(wanted, own.get(left, ()), own.get(right, ())), one


@pytest.mark.parametrize("every", [1, 9])
@pytest.mark.parametrize("wanted", WANTED)
def test_of_streams_that_wait(wanted: str, every: int) -> None:
    builder = cs.StreamsBuilder()
    left, right = (builder.stream(side, CONSUMED) for side in SIDES)
    windows = cs.JoinWindows.of("10 ms")
    left.left_join(right, paired, windows, headers=wanted).to("results", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), commit_every=every, partitions=2) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in SIDES}
        topics["left"].pipe_input("a", "1", 1, of("1"))
        topics["left"].pipe_input("b", "2", 2, of("2"))
        topics["right"].pipe_input("b", "3", 3, of("3"))
        topics["right"].pipe_input("a", "4", 50, of("4"))
        driver.commit()
        found = driver.create_output_topic("results", TEXT, TEXT).read_records()
    assert sorted((one.value, one.headers) for one in found) == [
        ("1|None", expected(wanted, of("1"), ())),
        ("2|3", expected(wanted, of("2"), of("3"))),
    ]


def stores(build: Any, wanted: str | None) -> dict[str, str]:
    builder = cs.StreamsBuilder()
    build(builder, wanted).to("results", PRODUCED)
    topology = builder.build()
    with cs.TopologyTestDriver(topology) as driver:
        return {name: kind.split("/")[0] for name, kind in driver.plan.fingerprint().items()}


@pytest.mark.parametrize("kind", sorted({**LOOKING_UP, **TABLES, **BY_FOREIGN_KEY}))
def test_rows_have_headers_only_where_a_join_wants_them(kind: str) -> None:
    """A topology that begins to want them has other stores, so its state is not mistaken for the old one."""
    build = {**LOOKING_UP, **TABLES, **BY_FOREIGN_KEY}[kind]
    assert not any("headers" in found for found in stores(build, None).values())
    assert any("headers" in found for found in stores(build, "both").values())


def test_wrong_headers() -> None:
    for build in (stream_stream, stream_table, stream_global, tables, by_foreign_key, with_global):
        with pytest.raises(cs.TopologyError, match="'left' or 'right' or 'both'") as caught:
            build(cs.StreamsBuilder(), "middle")
        assert caught.value.code == "CS-101"


def test_rows_keep_their_headers_from_run_to_run(tmp_path: Path) -> None:
    """And where the application does not run, its store can be read."""
    builder, world = cs.StreamsBuilder(), World(tmp_path)
    world.create(left=1, right=1, results=1)
    table = builder.table("right", CONSUMED, cs.Materialized(store="rows"))
    builder.stream("left", CONSUMED).join(table, paired, headers="both").to("results", PRODUCED)
    topology = builder.build()
    for topic, name in (("right", "row"), ("left", "record")):
        world.append_wire(topic, [(b"a", name.encode(), 1, of(name))])
        with streams(topology, world.config()) as app:
            app.process_available()
            assert app.store("rows").get("a") == "row"
    assert [one.headers for one in world.read("results")] == [(*of("record"), *of("row"))]
    assert list(cs.open_store(world.config().state_path, "rows").all()) == [("a", "row")]


def test_a_store_with_headers_can_be_queried() -> None:
    builder = cs.StreamsBuilder()
    table = builder.table("right", CONSUMED, cs.Materialized(store="rows"))
    builder.stream("left", CONSUMED).join(table, paired, headers="right").to("results", PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("right", TEXT, TEXT).pipe_input("a", "1", 1, of("1"))
        assert list(driver.get_key_value_store("rows").all()) == [("a", "1")]
