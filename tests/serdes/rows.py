"""Arrow arrays as they come out of slicing and computing, and settings, for tests of the serdes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
"""For laws whose examples are large: time is not what they are about."""

GARBAGE = b"\xff{garbage"


def awkward(rows: Sequence[bytes | None]) -> pa.LargeBinaryArray:
    """The rows as a slice of a longer array, with garbage before, after, and under every null."""
    cells = [GARBAGE, *(GARBAGE if row is None else row for row in rows), None, GARBAGE]
    texts = [GARBAGE if cell is None else cell for cell in cells]
    valid = np.array([True, *(row is not None for row in rows), False, True])
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    bits = np.packbits(valid, bitorder="little").tobytes()
    buffers = [pa.py_buffer(bits), pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    whole = pa.Array.from_buffers(pa.large_binary(), len(cells), buffers)
    return whole[1 : 1 + len(rows)]


def plain(rows: Sequence[bytes | None]) -> pa.LargeBinaryArray:
    return pa.array(rows, pa.large_binary())
