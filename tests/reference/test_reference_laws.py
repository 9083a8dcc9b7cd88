"""The laws, on the reference itself: what can be said of a join without saying how it is made."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.effort import cases
from tests.laws.strategies import (
    Case,
    chain_cases,
    flipped,
    foreign_key_cases,
    stream_cases,
    stream_global_cases,
    stream_table_cases,
    table_cases,
)
from tests.reference import Output, final_table, fold, pairs_and_unmatched, run
from tests.reference.chain import headers_of
from tests.reference.records import NULL_KEY

law = cases(2.5)

any_table_case = table_cases() | foreign_key_cases() | chain_cases()


# Tables


@law
@given(any_table_case)
def test_after_every_input_the_fold_is_the_relational_join(case: Case) -> None:
    outputs = run(case).outputs
    for count in range(len(case["inputs"]) + 1):
        changelog = (output for one in outputs[:count] for output in one)
        rows = {key: value for key, (value, _) in fold(changelog).items()}
        assert rows == final_table(first(case, count))


@law
@given(any_table_case)
def test_a_record_changes_each_row_once(case: Case) -> None:
    for outputs in run(case).outputs:
        keys = [output.key for output in outputs]
        assert len(keys) == len(set(keys))


@law
@given(any_table_case)
def test_the_old_row_is_the_one_emitted_before(case: Case) -> None:
    table: dict[Any, Any] = {}
    for output in run(case).changelog:
        assert output.old == table.get(output.key)
        table[output.key] = output.value


@law
@given(table_cases(kinds=("inner", "outer")))
def test_a_flipped_table_join_is_the_join_of_flipped_tables(case: Case) -> None:
    assert run(case).outputs == run(flipped(case)).outputs


@law
@given(table_cases(kinds=("left",)) | foreign_key_cases(kinds=("left",)))
def test_left_is_inner_and_the_left_rows_without_partner(case: Case) -> None:
    left, inner = run(case).rows, run({**case, "type": "inner"}).rows
    assert inner.items() <= left.items()
    assert all(value.endswith(",∅") for key, value in left.items() if key not in inner)


@law
@given(table_cases(kinds=("outer",)))
def test_outer_is_left_and_the_right_rows_without_partner(case: Case) -> None:
    outer, left = run(case).rows, run({**case, "type": "left"}).rows
    assert left.items() <= outer.items()
    assert all(value.startswith("∅,") for key, value in outer.items() if key not in left)


@law
@given(any_table_case, st.data())
def test_how_the_tables_interleave_does_not_matter_in_the_end(case: Case, data: st.DataObject) -> None:
    assert run(case).rows == run(interleaved(case, data)).rows


@law
@given(table_cases() | foreign_key_cases(), st.data())
def test_versioned_tables_may_come_in_any_order(case: Case, data: st.DataObject) -> None:
    params = {**case["params"], "left_versioned_ms": 1000, "right_versioned_ms": 1000}
    inputs = [{**item, "ts": number} for number, item in enumerate(case["inputs"])]
    shuffled = data.draw(st.permutations(inputs))
    ordered = run({**case, "params": params, "inputs": inputs})
    assert run({**case, "params": params, "inputs": shuffled}).rows == ordered.rows


@law
@given(table_cases(lag=0) | foreign_key_cases(lag=0))
def test_versions_make_no_difference_to_records_in_order(case: Case) -> None:
    plain = {**case["params"], "left_versioned_ms": None, "right_versioned_ms": None}
    versioned = {**case["params"], "left_versioned_ms": 5, "right_versioned_ms": 0}
    assert run({**case, "params": plain}).outputs == run({**case, "params": versioned}).outputs


@law
@given(table_cases())
def test_a_table_result_is_never_older_than_its_trigger(case: Case) -> None:
    for item, outputs in zip(case["inputs"], run(case).outputs, strict=True):
        assert all(output.ts >= item["ts"] for output in outputs)


@law
@given(foreign_key_cases())
def test_a_right_row_stamps_the_foreign_key_results_it_makes(case: Case) -> None:
    for item, outputs in zip(case["inputs"], run(case).outputs, strict=True):
        if item["side"] == "right":
            assert all(output.ts == item["ts"] for output in outputs)
        else:
            assert all(output.ts >= item["ts"] for output in outputs)


@law
@given(table_cases(versioned=False))
def test_tables_drop_null_keys_and_nothing_else(case: Case) -> None:
    null_keys = sum(item["key"] is None for item in case["inputs"])
    assert run(case).dropped == Counter({NULL_KEY: null_keys} if null_keys else {})


# Streams


@law
@given(stream_cases(on_time=True))
def test_records_on_time_give_the_relational_join(case: Case) -> None:
    pairs, unmatched = pairs_and_unmatched(case)
    assert Counter(run(case).changelog) == pairs + unmatched


@law
@given(stream_cases(on_time=True, self_join=True))
def test_a_stream_joined_with_itself_is_the_join_of_two_copies(case: Case) -> None:
    pairs, unmatched = pairs_and_unmatched(case)
    assert Counter(run(case).changelog) == pairs + unmatched


@law
@given(stream_cases(self_join=True) | stream_cases())
def test_an_outer_record_has_pairs_or_one_unmatched_row(case: Case) -> None:
    """Also when records are late (8.2). Values are all different, so a result names its records."""
    seen: Counter[tuple[str, str]] = Counter()
    alone: Counter[tuple[str, str]] = Counter()
    for output in run(case).changelog:
        left, right = output.value.split(",")
        rows = [("left", left), ("right", right)]
        rows = [row for row in rows if row[1] != "∅"]
        (seen if len(rows) == 2 else alone).update(rows)
    assert max(alone.values(), default=1) == 1
    assert not seen.keys() & alone.keys()


@law
@given(stream_cases() | stream_cases(self_join=True))
def test_late_records_give_no_pair_twice_and_none_outside_the_window(case: Case) -> None:
    emitted = Counter(output for output in run(case).changelog if "∅" not in output.value)
    assert emitted <= pairs_and_unmatched(case)[0]


@law
@given(stream_cases(kinds=("left", "outer")))
def test_an_unmatched_row_comes_when_its_window_closes(case: Case) -> None:
    window = case["params"]["window"]
    stream_time = -1
    for item, outputs in zip(case["inputs"], run(case).outputs, strict=True):
        stream_time = max(stream_time, item["ts"])
        for output in outputs:
            if "∅" in output.value and output.key is not None:
                ahead = window["after_ms" if output.value.endswith(",∅") else "before_ms"]
                assert output.ts + ahead + window["grace_ms"] < stream_time


@law
@given(stream_cases(kinds=("inner", "outer")))
def test_a_flipped_stream_join_is_the_join_of_flipped_streams(case: Case) -> None:
    there, back = run(case), run(flipped(case))
    assert [Counter(one) for one in there.outputs] == [Counter(one) for one in back.outputs]
    assert there.dropped == back.dropped


@law
@given(stream_cases(eager=True) | stream_cases(eager=True, self_join=True))
def test_eager_joins_are_the_inner_join_and_unmatched_rows_at_once(case: Case) -> None:
    inner = run({**case, "type": "inner"})
    for item, outputs, pairs in zip(case["inputs"], run(case).outputs, inner.outputs, strict=True):
        assert [output for output in outputs if "∅" not in output.value] == pairs
        assert all(output.ts == item["ts"] for output in outputs if "∅" in output.value)


@law
@given(stream_cases(self_join=True, kinds=("inner",), nulls=False))
def test_an_inner_self_join_is_the_join_of_a_stream_and_its_copy(case: Case) -> None:
    copies = [{**item, "side": side} for item in case["inputs"] for side in ("left", "right")]
    twice = {**case, "params": {**case["params"], "self_join": False}, "inputs": copies}
    outputs = run(twice).outputs
    joined = [Counter(a + b) for a, b in zip(outputs[::2], outputs[1::2], strict=True)]
    assert [Counter(one) for one in run(case).outputs] == joined


# Streams and tables


@law
@given(stream_table_cases(kinds=("left",)) | stream_global_cases(kinds=("left",)))
def test_left_lookups_are_inner_lookups_and_those_without_row(case: Case) -> None:
    inner = run({**case, "type": "inner"})
    for outputs, found in zip(run(case).outputs, inner.outputs, strict=True):
        assert [output for output in outputs if not output.value.endswith(",∅")] == found


@law
@given(stream_table_cases(kinds=("left",)))
def test_a_left_lookup_gives_every_stream_record_at_most_once(case: Case) -> None:
    """Exactly once without grace; with it, what still waits is missing."""
    given_ = [item for item in case["inputs"] if item["side"] == "left" and item["value"] is not None]
    emitted = Counter((o.key, o.value.split(",")[0], o.ts) for o in run(case).changelog)
    waited = Counter((item["key"], item["value"], item["ts"]) for item in given_) - emitted
    assert emitted <= Counter((item["key"], item["value"], item["ts"]) for item in given_)
    grace = case["params"]["stream_grace_ms"]
    newest = max((item["ts"] for item in given_ if item["key"] is not None), default=0)
    assert all(grace is not None and ts > newest - grace for _, _, ts in waited)


@law
@given(stream_table_cases())
def test_a_grace_period_of_nothing_makes_no_difference(case: Case) -> None:
    params = {**case["params"], "table_versioned_ms": 1000}
    at_once, graced = ({**params, "stream_grace_ms": grace} for grace in (None, 0))
    assert run({**case, "params": at_once}).outputs == run({**case, "params": graced}).outputs


@law
@given(stream_table_cases(grace=False, nulls=False))
def test_a_versioned_table_that_came_first_is_read_as_of_each_record(case: Case) -> None:
    table = [item for item in case["inputs"] if item["side"] == "right"]
    stream = [item for item in case["inputs"] if item["side"] == "left"]
    params = {**case["params"], "table_versioned_ms": 1000}
    found = run({**case, "type": "left", "params": params, "inputs": table + stream}).outputs[len(table) :]
    for item, outputs in zip(stream, found, strict=True):
        valid = [row for row in table if row["key"] == item["key"] and row["ts"] <= item["ts"]]
        valid.sort(key=lambda row: row["ts"])  # stable: of equal timestamps the last
        row = valid[-1]["value"] if valid else None
        assert outputs == [Output(item["key"], f"{item['value']},{row or '∅'}", item["ts"], headers_of(item))]


@law
@given(stream_table_cases(grace=False, nulls=False))
def test_a_global_table_read_by_the_stream_key_is_a_table(case: Case) -> None:
    table = {**case["params"], "table_versioned_ms": None}
    everywhere = {
        **case,
        "operator": "stream-globaltable",
        "params": {**table, "key_mapper": {"kind": "key"}},
    }
    assert run(everywhere).outputs == run({**case, "params": table}).outputs


def first(case: Case, count: int) -> Case:
    return {**case, "inputs": case["inputs"][:count]}


def interleaved(case: Case, data: st.DataObject) -> Case:
    """The same inputs, each side in its order, merged anew."""
    sides = {
        item["side"]: [i for i in case["inputs"] if i["side"] == item["side"]] for item in case["inputs"]
    }
    inputs = []
    while sides:
        side = data.draw(st.sampled_from(sorted(sides)))
        inputs.append(sides[side].pop(0))
        sides = {side: left for side, left in sides.items() if left}
    return {**case, "inputs": inputs}
