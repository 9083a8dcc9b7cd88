"""Rows that become null leave the others what they are, also in a slice."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import crossstream
from crossstream.serdes import arrays


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("count", range(5))
def test_the_others_stay(first: int, count: int) -> None:
    rows = [bytes([97 + n]) * (n + 2) for n in range(first + count)]
    data = pa.array(rows, arrays.LARGE_BINARY)[first:]
    for missing in product([False, True], repeat=count):
        made = arrays.nulled(data, np.array(missing, np.bool_))
        made.validate(full=True)
        assert made.type == data.type
        assert made.to_pylist() == [
            None if gone else row for gone, row in zip(missing, rows[first:], strict=True)
        ]


def test_nothing_uses_what_reads_other_bytes() -> None:
    """`pyarrow.compute.if_else` gives wrong bytes for a slice before version 24."""
    sources = Path(crossstream.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if ".if_else(" in path.read_text()] == []
