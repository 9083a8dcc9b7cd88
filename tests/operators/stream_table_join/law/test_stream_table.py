"""The stream–table join, through the driver, against the plain reference."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from crossstream.operators.stream_table_join import kernel as stream_table
from tests.laws.effort import law
from tests.laws.engine import Way, check_records, run_engine, ways
from tests.laws.rescaling import rescaling
from tests.laws.strategies import Case, stream_table_cases

WAITED = [
    {"side": "left", "key": "a", "value": "x0", "ts": 0},
    {"side": "left", "key": "a", "value": "x1", "ts": 1},
]
"""The second record lets the first one go, which keeps its own headers."""


@law
@given(stream_table_cases(busy=True), ways(), st.sampled_from([0, 10**9]))
def test_records_are_told_apart_or_sorted_by_key_and_find_the_same(case: Case, way: Way, more: int) -> None:
    """Which of the two is done depends on how many records there are for a row of the table."""
    with patch.object(stream_table, "_MORE", more):
        check_records(case, way)


@law
@given(stream_table_cases(kinds=("left",)), ways())
def test_left_is_inner_and_the_records_without_a_row(case: Case, way: Way) -> None:
    left, inner = (
        Counter(output for outputs in run_engine(one, way).outputs for output in outputs)
        for one in (case, {**case, "type": "inner"})
    )
    assert inner <= left
    assert all(output.value.endswith(",∅") for output in left - inner)


@law
@given(
    stream_table_cases(kinds=("left",), busy=True),
    ways(),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_rescaling_loses_no_record_that_waits(case: Case, way: Way, numbers: list[int]) -> None:
    """Clocks that meet in one partition let records go, some perhaps earlier; each comes out once."""
    params = {**case["params"], "table_versioned_ms": 1000, "stream_grace_ms": 7}
    beats = [{"side": "left", "key": f"beat {n}", "value": f"beat {n}", "ts": 10_000} for n in range(60)]
    ran = run_engine({**case, "params": params, "inputs": [*case["inputs"], *beats]}, way, rescaling(numbers))
    records = [item for item in case["inputs"] if item["side"] == "left" and item["value"] is not None]
    found = Counter((o.key, o.value.split(",")[0], o.ts) for outputs in ran.outputs for o in outputs)
    assert found == Counter((item["key"], item["value"], item["ts"]) for item in records)
