"""JSON text, many rows at once, to objects and back: msgspec does the work in one call for all rows.

Reading: rows are joined by newlines and decoded as JSON Lines. That must never move a value to another row,
so it is done only if every row begins with ``{`` or ``[`` and ends with ``}`` or ``]`` (or is ``null``). A
value cannot then reach across two rows: msgspec takes no raw newline in a string, and nowhere in JSON does a
closing bracket stand before an opening one, or before ``null``, with nothing but space between. So every row
holds at least one value, and as many values as rows means exactly one each. In any other case, and
whenever something fails, rows are decoded one by one, and what that gives is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.gc_pause import paused_gc
from crossstream.serdes import arrays, refusals
from crossstream.serdes.json_decimals import plainly
from crossstream.serdes.json_finite import check_finite
from crossstream.serdes.json_halves import without_halves

Decoder = msgspec.json.Decoder[Any]

Read = Callable[[Any], Any]

encoder = msgspec.json.Encoder()

_NEWLINE = pa.scalar(b"\n", arrays.LARGE_BINARY)
_NULL_TEXT = b"null"
_NULL = pa.scalar(_NULL_TEXT, arrays.LARGE_BINARY)
_OPEN, _CLOSE = np.zeros(256, np.bool_), np.zeros(256, np.bool_)
_OPEN[list(b"{[")] = True
_CLOSE[list(b"}]")] = True
_BEYOND = re.compile(r"Expected `int` (<= 9223372036854775807|>= -9223372036854775808)( - at `.*`)?")
_HINT = (
    r"an integer beyond the 64 bits with a sign that its column has\2; 64 bits without a sign are pl.UInt64, "
    "or pa.uint64(), in a schema"
)


def whole(value: Any) -> Any:
    """All of an object is read."""
    return value


def decode_rows(data: pa.LargeBinaryArray, decoder: Decoder, serde: str, read: Read = whole) -> list[Any]:
    """An object for every row; ``decoder`` must take ``null``. Raises `SerdeError` (CS-402).

    ``read``: what is looked at of an object. Halves of surrogate pairs are refused there only.
    """
    if len(data) > arrays.FEW and (lines := _lines(data)) is not None:
        try:
            with paused_gc():
                values = decoder.decode_lines(lines)
        except Exception:
            values = []
        if len(values) == len(data):
            return values
    return [None if row is None else decode_row(row, decoder, serde, read) for row in data.to_pylist()]


def nulls(data: pa.LargeBinaryArray, decoder: Decoder, serde: str) -> list[bool]:
    """Row by row, whether it is a null; nothing of the others is read."""
    return [value is None for value in decode_rows(data, decoder, serde, lambda value: None)]


def decode_row(row: bytes, decoder: Decoder, serde: str, read: Read = whole) -> Any:
    """The object of one row. Raises `SerdeError` (CS-402)."""
    try:
        try:
            return decoder.decode(row)
        except Exception as error:
            found = without_halves(row, decoder.decode, read)
            if found is None:
                raise
            value, half = found
            if half is not None:
                place = f" in field {half}" if half else ""
                raise ValueError(f"half of a surrogate pair{place}, which is not valid Unicode") from error
            return value
    except Exception as error:  # msgspec's errors, those of UTF-8, and whatever a __post_init__ raises
        raise refusals.undecodable(serde, _BEYOND.sub(_HINT, str(error)), row) from error


def _lines(data: pa.LargeBinaryArray) -> memoryview | None:
    """The rows as JSON Lines, null rows as ``null``; None if they cannot be told apart for certain."""
    filled = data.fill_null(_NULL) if data.null_count else data
    positions, content = arrays.offsets(filled), arrays.content(filled)
    begins, ends = positions[:-1], positions[1:]
    if (begins == ends).any():
        return None
    bracketed = _OPEN[content[begins]] & _CLOSE[content[ends - 1]]
    if not bracketed.all() and not _all_null_text(content, begins[~bracketed], ends[~bracketed]):
        return None
    rows = pa.LargeListArray.from_arrays(pa.array([0, len(filled)], pa.int64()), filled)
    return memoryview(pc.binary_join(rows, _NEWLINE).buffers()[2])


def _all_null_text(content: arrays.Content, begins: arrays.Offsets, ends: arrays.Offsets) -> bool:
    if (ends - begins != len(_NULL_TEXT)).any():
        return False
    return all((content[begins + at] == byte).all() for at, byte in enumerate(_NULL_TEXT))


def encode_rows(values: Sequence[Any], serde: str) -> pa.LargeBinaryArray:
    """The JSON of every object, None → null. Raises `SerdeError` (CS-403)."""
    lines = plainly(_lines_of, values)[0] if len(values) > arrays.FEW else None
    if lines:
        cut = _cut(lines, len(values))
        if cut is not None:
            check_finite(values, [lines], serde)
            return _without_null_text(cut, values, serde)
    return arrays.binary_rows(_texts(values, serde))


def encode_row(value: Any, serde: str) -> bytes | None:
    """The JSON of one object. Raises `SerdeError` (CS-403)."""
    return _texts([value], serde)[0]


def _texts(values: Sequence[Any], serde: str) -> Sequence[bytes | None]:
    texts = plainly(partial(_texts_of, serde=serde), values)
    check_finite(values, texts, serde)
    return texts


def _lines_of(values: Sequence[Any]) -> list[bytes | None]:
    """One text, the JSON Lines of all objects; None if one has no JSON."""
    try:
        return [encoder.encode_lines(values)]
    except Exception:
        return [None]


def _texts_of(values: Sequence[Any], serde: str) -> list[bytes | None]:
    return [None if value is None else _text_of(value, serde) for value in values]


def _text_of(value: Any, serde: str) -> bytes:
    try:
        text = encoder.encode(value)
    except Exception as error:
        raise refusals.no_bytes_for(
            serde,
            value,
            str(error),
            "return dicts, lists, str, int, float, bool or dataclasses",
        ) from error
    if text == _NULL_TEXT and not isinstance(value, float):
        raise refusals.null_text(serde, value)
    return text


def _cut(lines: bytes, rows: int) -> pa.LargeBinaryArray | None:
    """JSON Lines as an array; None if there are more newlines than rows (in a `msgspec.Raw`)."""
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    if len(ends) != rows:
        return None
    positions = np.empty(2 * rows + 1, np.int64)
    positions[0], positions[1::2], positions[2::2] = 0, ends, ends + 1
    with_newlines = arrays.binary_array(positions, lines)
    return with_newlines.take(pa.array(np.arange(0, 2 * rows, 2)))


def _without_null_text(rows: pa.LargeBinaryArray, values: Sequence[Any], serde: str) -> pa.LargeBinaryArray:
    """Rows whose object is None as nulls. Raises CS-403 for another object whose JSON is ``null``."""
    four = np.diff(arrays.offsets(rows)) == len(_NULL_TEXT)
    if not four.any():
        return rows
    nulls = pc.equal(rows, _NULL).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(nulls).tolist():
        if values[row] is not None:
            raise refusals.null_text(serde, values[row])
    return pc.if_else(pa.array(nulls), pa.scalar(None, arrays.LARGE_BINARY), rows)
