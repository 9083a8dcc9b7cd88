"""JSON text, many rows at once, to objects and back: msgspec does the work in one call for all rows.

Reading: rows are joined by newlines and decoded as JSON Lines. That must never move a value to another row,
so it is done only if every row begins with ``{`` or ``[`` and ends with ``}`` or ``]`` (or is ``null``). A
value cannot then reach across two rows: msgspec takes no raw newline in a string, and nowhere in JSON does a
closing bracket stand before an opening one, or before ``null``, with nothing but space between. So every row
holds at least one value, and as many values as rows means exactly one each. In any other case, and
whenever something fails, rows are decoded one by one, and what that gives is the answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.errors import CrossStreamError
from crossstream.gc_pause import paused_gc
from crossstream.serdes import arrays, errors
from crossstream.serdes.json.shapes import KEPT

CHUNK = 8192
"""Rows decoded at once: an object for each, between text and columns, stays in the cache (decision 0027)."""

Decoder = msgspec.json.Decoder[Any]

Read = Callable[[Any], Any]

Encoder = msgspec.json.Encoder

encoder = Encoder()

sorting_encoder = Encoder(order="deterministic")
"""Writes sets, and dicts, sorted, so that equal ones have one text."""


def with_numbers(encode: Encoder) -> Encoder:
    """The encoder that writes decimals as numbers, with all of their digits."""
    return Encoder(order=encode.order, decimal_format="number")


_KEPT = (*KEPT, msgspec.Raw)
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""How such a float begins in MessagePack; other bytes may begin like that too.

JSON has no NaN and no infinities, and msgspec writes null in their place. So a text without a null holds none. Of other
objects their MessagePack, which has every float in 9 bytes, shows which of them are to be searched.
"""

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Any escape, whole surrogate pairs first; the group is there for half of a pair.

Such a half, as JavaScript writes an emoji that was cut, is legal in JSON, but neither a `str` that can be written nor a
column holds it. msgspec refuses any text with one, also where it skips the field. So it gets the text with another
character in its place, and then with a second one: what it makes of both alike does not depend on the half.
"""

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
    """The whole object."""
    return value


def decode_rows(data: pa.LargeBinaryArray, decoder: Decoder, serde: str, read: Read = whole) -> list[Any]:
    """An object for every row; ``decoder`` must take ``null``. Raises `SerdeError` (CS-402).

    ``read``: the part of an object that functions read. Halves of surrogate pairs are refused there only.
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
    """Row by row, whether it is a null."""
    chunks = (data.slice(start, CHUNK) for start in range(0, len(data), CHUNK))
    return [
        value is None for rows in chunks for value in decode_rows(rows, decoder, serde, lambda value: None)
    ]


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
        raise errors.undecodable(serde, _BEYOND.sub(_HINT, str(error)), row) from error


def _lines(data: pa.LargeBinaryArray) -> memoryview | None:
    """The rows as JSON Lines, null rows as ``null``; None if it is not certain where each row ends."""
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


def encode_rows(values: Sequence[Any], serde: str, encode: Encoder = encoder) -> pa.LargeBinaryArray:
    """The JSON of every object, None → null. Raises `SerdeError` (CS-403)."""
    lines = _lines_of(values, encode) if len(values) > arrays.FEW else None
    if lines:
        cut = _cut(lines, len(values))
        if cut is not None:
            check_finite(values, [lines], serde)
            return _without_null_text(cut, values, serde)
    return arrays.binary_rows(_texts(values, serde, encode))


def encode_row(value: Any, serde: str, encode: Encoder = encoder) -> bytes | None:
    """The JSON of one object. Raises `SerdeError` (CS-403)."""
    return _texts([value], serde, encode)[0]


def _texts(values: Sequence[Any], serde: str, encode: Encoder) -> list[bytes | None]:
    texts = [None if value is None else _text_of(value, serde, encode) for value in values]
    check_finite(values, texts, serde)
    return texts


def _lines_of(values: Sequence[Any], encode: Encoder) -> bytes | None:
    """The JSON Lines of all objects; None if one has no JSON."""
    try:
        return encode.encode_lines(values)
    except Exception:
        return None


def _text_of(value: Any, serde: str, encode: Encoder) -> bytes:
    try:
        text = encode.encode(value)
    except Exception as error:
        next = "return dicts, lists, str, int, float, bool or dataclasses"
        raise errors.no_bytes_for(serde, value, str(error), next) from error
    if text == _NULL_TEXT and not isinstance(value, float):
        raise errors.null_text(serde, value)
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
            raise errors.null_text(serde, values[row])
    return arrays.nulled(rows, nulls)


def check_finite(values: Sequence[Any], texts: Iterable[bytes | None], serde: str) -> None:
    """Raises `SerdeError` (CS-403) for the first value in which a float is not finite. ``texts``: their JSON."""
    if any(text is not None and b"null" in text for text in texts) and _is_suspect(values):
        for value in filter(_is_suspect, values):
            if (refusal := not_finite(value, serde)) is not None:
                raise refusal


def not_finite(value: Any, serde: str) -> CrossStreamError | None:
    """The error of a value in which a float is not finite; None if all are."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=_KEPT)
    except Exception:  # it has no JSON at all
        return None
    pending = [("", plain)]
    while pending:
        path, item = pending.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return errors.not_finite(serde, plain, item, path)
        if isinstance(item, dict):
            pending += [(f"{path}.{name}" if path else str(name), one) for name, one in item.items()]
        elif isinstance(item, list | tuple | set | frozenset):
            pending += [(f"{path}[]", one) for one in item]
    return None


def _is_suspect(value: Any) -> bool:
    try:
        return _NOT_FINITE.search(msgspec.msgpack.encode(value)) is not None
    except Exception:  # MessagePack has no integers of more than 64 bits
        return True


def without_halves(
    row: bytes, decode: Callable[[bytes], Any], read: Callable[[Any], Any]
) -> tuple[Any, str | None] | None:
    """The value of a row, and the path to the first half in what is ``read`` of it (None: there is none there).

    None for a row that has no halves at all. Raises what ``decode`` raises.
    """
    first, second = (_with_halves_as(row, escape) for escape in (rb"\ufffd", rb"\ufffe"))
    if first == second:
        return None
    value = decode(first)
    return value, _difference(*(_plain(read(one)) for one in (value, decode(second))))


def _with_halves_as(row: bytes, escape: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: escape if found[1] else found[0], row)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=KEPT)


def _difference(one: Any, other: Any) -> str | None:
    """The path to a part in which two plain values differ; None if they do not."""
    pending = [("", one, other)]
    while pending:
        path, one, other = pending.pop()
        if isinstance(one, dict):
            names = [f"{path}.{name}" if path else str(name) for name in one]
            if list(one) != list(other):
                return next((name for name, its in zip(names, other, strict=False) if its not in one), path)
            pending += zip(names, one.values(), other.values(), strict=True)
        elif isinstance(one, list | tuple):
            if len(one) != len(other):  # of sets
                return f"{path}[]"
            pending += [(f"{path}[]", *pair) for pair in zip(one, other, strict=True)]
        elif one != other and one == one:  # NaN, the default of a field, is no difference
            return path
    return None
