"""Record batches put together."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from crossstream.records import RECORDS, concat

cells = st.none() | st.binary(max_size=3)
numbers = st.integers(0, 2**40)
rows = st.fixed_dictionaries(
    {"key": cells, "value": cells, "timestamp": numbers, "offset": numbers, "headers": cells}
)


@given(st.lists(st.lists(rows, max_size=4), min_size=1, max_size=4), st.integers(0, 3))
def test_concatenation_has_all_rows_in_order(parts, skipped):
    """Also of batches that are empty, and of slices."""
    batches = [pa.RecordBatch.from_pylist(part, schema=RECORDS).slice(skipped) for part in parts]
    whole = concat(batches)
    whole.validate(full=True)
    assert whole.schema == RECORDS
    assert whole.to_pylist() == [row for part in parts for row in part[skipped:]]
