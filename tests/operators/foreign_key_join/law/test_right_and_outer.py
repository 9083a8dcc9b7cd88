"""Right and outer joins by foreign key: the rows of inner and left joins, and right rows nobody refers to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.conformance.compare import assert_same_table
from tests.conformance.runner import read
from tests.laws.effort import law
from tests.laws.engine import Way, as_taken, rows_of, run_engine, ways
from tests.laws.strategies import Case, foreign_key_cases
from tests.reference import Output, final_table, fold, run

KINDS = ("right", "outer")
HALF = {"right": "inner", "outer": "left"}


@law
@given(foreign_key_cases(KINDS))
def test_the_reference_is_the_relational_join(case: Case) -> None:
    """After every input; each row changes once, and its old value is what was told before."""
    table: dict[Any, Any] = {}
    for count, outputs in enumerate(run(case).outputs, 1):
        assert len({output.key for output in outputs}) == len(outputs)
        for output in outputs:
            assert output.old == table.get(output.key)
            table[output.key] = output.value
        rows = {key: value for key, value in table.items() if value is not None}
        assert rows == final_table({**case, "inputs": case["inputs"][:count]})


@law
@given(foreign_key_cases(KINDS), ways())
def test_right_is_inner_and_outer_is_left_and_the_right_rows_without_referrer(case: Case, way: Way) -> None:
    rows = rows_of(run_engine(case, way))
    half = rows_of(run_engine({**case, "type": HALF[case["type"]]}, way))
    assert {left: value for (left, right), value in rows.items() if right is None} == half
    alone = {right: value for (left, right), value in rows.items() if left is None}
    assert alone.items() <= rows_without_referrer(case, way).items()
    assert all(value.startswith("∅,") for value in alone.values())


def rows_without_referrer(case: Case, way: Way) -> dict[Any, str]:
    """What the joiner makes of each right row that a flipped join finds no left row for."""
    rights = {key: value for key, value in right_rows(case, way).items() if key is not None}
    return {key: f"∅,{value}" for key, value in rights.items()}


def right_rows(case: Case, way: Way) -> dict[Any, Any]:
    """The right table: a left join of it with a table that has no row."""
    inputs = [{**item, "side": "left"} for item in case["inputs"] if item["side"] == "right"]
    params = {**case["params"], "left_versioned_ms": case["params"]["right_versioned_ms"]}
    template = {"template": "{left}", "missing": "∅"}
    flipped = {**case, "operator": "table-table", "type": "left", "inputs": inputs}
    ran = run_engine({**flipped, "params": {**params, "joiner": template}}, Way(way.partitions))
    return rows_of(ran)


TEXT = serdes.string()
SIDES = ("left", "right")


@law
@given(foreign_key_cases(KINDS, versioned=False), ways(), st.booleans())
def test_results_can_be_filtered_kept_and_joined_further(case: Case, way: Way, kept: bool) -> None:
    """A filter asks for old values; a second join refers to the right table from the rows of the first."""
    builder = cs.StreamsBuilder()
    left, right = (builder.table(side, cs.Consumed(key=TEXT, value=TEXT)) for side in SIDES)
    join = getattr(left, {"right": "right_join", "outer": "outer_join"}[case["type"]])
    first = join(
        right,
        lambda mine, other: f"{mine},{other}",
        foreign_key=lambda row: row.split(";")[0] if row[0] != "-" else None,
        keyed_by=cs.LeftOrRight,
        materialized=cs.Materialized(store="first", value=TEXT) if kept else None,
    )
    chosen = first.filter(lambda key, row: key.left is None or "y" not in row)
    chosen.to_stream().to("chosen", cs.Produced(value=TEXT))
    second = chosen.outer_join(
        right,
        lambda mine, other: f"{mine}/{other}",
        foreign_key=lambda key, row: key.right or row[0],
        keyed_by=cs.LeftOrRight,
    )
    either = serdes.left_or_right(TEXT, TEXT)
    second.to_stream().to("second", cs.Produced(value=TEXT))

    taken = as_taken(case, way)["inputs"]
    emitted: dict[str, list[Output]] = {"chosen": [], "second": []}
    serde = {"chosen": either, "second": serdes.left_or_right(either, TEXT)}
    with way.driver(builder.build()) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in SIDES}
        results = {name: driver.create_output_topic(name, serde[name], TEXT) for name in emitted}
        for count, ended in way.pipe(driver, topics, case["inputs"]):
            if ended:
                wanted = meaning(case["type"], taken[:count])
                for name, topic in results.items():
                    emitted[name] += read(topic)
                    assert_same_table(emitted[name], wanted[name])
    assert {name: fold(rows).keys() for name, rows in emitted.items()} == {
        name: rows.keys() for name, rows in meaning(case["type"], taken).items()
    }


def meaning(kind: str, inputs: list[Any]) -> dict[str, dict[Any, str]]:
    """Both tables, from the last rows of the inputs."""
    tables: dict[str, dict[Any, Any]] = {"left": {}, "right": {}}
    for item in inputs:
        tables[item["side"]][item["key"]] = item["value"]
    left, right = (
        {key: value for key, value in tables[side].items() if None not in (key, value)} for side in SIDES
    )
    named = {key: row.split(";")[0] if row[0] != "-" else None for key, row in left.items()}
    first = {
        (key, None): f"{left[key]},{right.get(name)}"
        for key, name in named.items()
        if kind == "outer" or name in right
    }
    first |= {(None, key): f"None,{right[key]}" for key in right.keys() - set(named.values())}
    chosen = {key: row for key, row in first.items() if key[0] is None or "y" not in row}
    again = {key: key[1] or row[0] for key, row in chosen.items()}
    second: dict[Any, str] = {(key, None): f"{chosen[key]}/{right.get(name)}" for key, name in again.items()}
    second |= {(None, key): f"None/{right[key]}" for key in right.keys() - set(again.values())}
    return {"chosen": chosen, "second": second}
