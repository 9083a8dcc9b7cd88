"""The headers of a join's results, where it says of which side they are."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from crossstream.records import decode_headers, encode_headers
from crossstream.storage.columns import valid

Headers = Literal["left", "right", "both"]
"""Of the left side, of the right one, or those of the left one and then those of the right one."""

Column: TypeAlias = Any
"""`pyarrow.LargeBinaryArray` of packed headers (see `records.py`), null where there are none; None: nowhere any."""


def headers_of(wanted: Headers, left: Column | None, right: Column | None) -> Column | None:
    """The headers of results, from those of their sides."""
    if wanted != "both":
        return left if wanted == "left" else right
    if left is None or right is None:
        return right if left is None else left
    there = valid(left), valid(right)
    rows = np.where(there[0], 0, len(left)) + np.arange(len(left))
    either = pa.concat_arrays([left, right]).take(pa.array(rows))
    two = np.flatnonzero(there[0] & there[1])
    if not len(two):
        return either
    made = [_joined(left[row].as_py(), right[row].as_py()) for row in two.tolist()]
    place = np.arange(len(left))
    place[two] = len(left) + np.arange(len(two))
    return pa.concat_arrays([either, pa.array(made, pa.large_binary())]).take(pa.array(place))


def _joined(left: bytes, right: bytes) -> bytes | None:
    return encode_headers([*decode_headers(left), *decode_headers(right)])
