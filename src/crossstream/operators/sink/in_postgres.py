"""What a column of Postgres cannot hold: a letter that its text does not have, and keys that no index takes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.in_postgres import is_json

KEY_BYTES = 2_600
"""Of all text and bytes in a key: an entry of a B-tree has 2,704, with its numbers."""
_BYTES = (pa.types.is_string, pa.types.is_binary)


class Unfit(Exception):
    """A value that the column cannot hold; the text says why."""


def check_in_postgres(column: pa.Array, *, is_key: bool, keys: int) -> None:
    """Raises `Unfit` for a column of a table; of a key with so many columns, if ``is_key``."""
    _check_text(column)
    if is_json(column.type):
        _check_finite(column)
    if not is_key:
        return
    if column.null_count:
        raise Unfit("it is null, and a part of the primary key, which has no nulls")
    if any(is_of(column.type) for is_of in _BYTES):
        longest, most = pc.max(pc.binary_length(column)).as_py() or 0, KEY_BYTES // keys
        if longest > most:
            raise Unfit(f"it has {longest} bytes, and a part of this key at most {most}")


def _check_text(column: pa.Array) -> None:
    """Of text, also in structs and lists."""
    if pa.types.is_string(column.type) and pc.any(pc.match_substring(column, "\0")).as_py():
        raise Unfit("it has the letter NUL, which text in Postgres does not have")
    for part in _parts(column):
        _check_text(part)


def _check_finite(column: pa.Array) -> None:
    """Of what is JSON there."""
    if pa.types.is_floating(column.type) and pc.any(pc.invert(pc.is_finite(column))).as_py():
        raise Unfit("it has NaN or an infinity in it, and is JSON there, which has neither")
    for part in _parts(column):
        _check_finite(part)


def _parts(column: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(column.type):
        return list(column.flatten())
    return [column.flatten()] if pa.types.is_list(column.type) else []
