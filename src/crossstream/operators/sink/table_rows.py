"""The columns of a table that a sink writes, and the records that they cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.changes import Changes
from crossstream.columns.flat import (
    Format,
    Layout,
    NoSuchColumn,
    flat_columns,
    layout_of,
    other_keys,
    table_type,
)
from crossstream.graph.nodes import TableSink
from crossstream.operators.sink.in_postgres import Unfit, check_in_postgres

_NULLS = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that are no values of a partition: how the log and the folders write that there is no value."""
LONGEST_FOLDER = 255
"""Bytes of a file's name: each value of a partition is one, such as ``day=2026-01-01``."""

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Of the years 1 and 9999, since 1970: what readers in SQL and Python have."""
_DAY = 86_400_000_000
"""Microseconds."""
_LIMITED = (pa.types.is_decimal, pa.types.is_temporal, pa.types.is_nested)
"""The types of columns that may not hold a value of the type before; all others are as wide, or wider."""


def layout(node: TableSink) -> Layout:
    """The columns of a sink's table. Raises `NoSuchColumn`."""
    key = None if node.key is None else node.key.dtype
    value = None if node.value is None else node.value.dtype
    assert value is not None, "checked when the sink was made"
    return layout_of(node.form, key, value, node.keys, node.timestamp)


def other_type(form: Format, there: pa.Field, wanted: pa.Field) -> str | None:
    """How the column of a table differs in type from the one that is written; None: it does not."""
    with suppress(NoSuchColumn):
        if table_type(form, there.type, "") == wanted.type:
            return None
    return f"{wanted.name} is {there.type} there and {wanted.type} here"


def never_null(node: TableSink) -> tuple[str, ...]:
    """The columns that surely have values: a table has no null keys, but fields of a key may be null."""
    if not node.upserts or node.key is None or node.key.dtype is None:
        return ()
    whole = (
        node.form == "postgres" or not node.key.dtype.is_nested()
    )  # a primary key has no nulls: `check_in_postgres`
    return layout(node).keys if whole else ()


def holds_any(kind: pa.DataType) -> bool:
    """Whether a partition of a Delta table holds every value of the type."""
    numbers = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale <= 0)
    return bool(numbers or pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def unfit_rows(node: TableSink, changes: Changes) -> list[tuple[int, str]]:
    """(row, reason) of the records that a column of the table cannot hold, each once.

    What stops the writer of a table would stop it again at each start, so such a record is found before.
    """
    columns = layout(node)
    checks = {
        place: check
        for place, field in enumerate(columns.schema)
        if field.name != node.timestamp and (check := _check_of(node, field, columns))
    }
    found: dict[int, str] = {}
    flat = flat_columns(changes, columns) if checks else []
    for place, check in checks.items():
        field = columns.schema.field(place)
        for row, reason in _refused(check, flat[place], 0):
            found.setdefault(row, f"its column {field.name!r}: {reason}")
    for row, name, key, own in other_keys(changes, columns):
        found.setdefault(row, f"its column {name!r} is the key, {key!r}, and a field, {own!r}")
    return sorted(found.items())


def _check_of(node: TableSink, field: pa.Field, columns: Layout) -> Callable[[pa.Array], None] | None:
    """Raises `Unfit` for a column with a value that the table cannot hold; None: it holds all."""
    is_partition = field.name in node.partition_by
    further = partial(_check_partition, field.name) if is_partition else _nothing
    if node.form == "postgres":
        is_key = node.upserts and field.name in columns.keys
        further = partial(check_in_postgres, is_key=is_key, keys=len(columns.keys))
    elif not (is_partition or any(is_of(field.type) for is_of in _LIMITED)):
        return None

    def check(column: pa.Array) -> None:
        try:
            cast = column.cast(field.type)
            cast.validate(full=True)
        except pa.ArrowException as error:
            raise Unfit(str(error)) from error
        _check_times(cast)
        further(cast)

    return check


def _nothing(column: pa.Array) -> None: ...


def _refused(check: Callable[[pa.Array], None], column: pa.Array, first: int) -> list[tuple[int, str]]:
    try:
        check(column)
    except Unfit as error:
        if len(column) == 1:
            return [(first, str(error))]
        # Taken, for a cast of a slice of lists casts what is in the other lists, too.
        halves = np.array_split(np.arange(len(column)), 2)
        return [
            one
            for half in halves
            for one in _refused(check, column.take(pa.array(half)), first + int(half[0]))
        ]
    return []


def _check_times(column: pa.Array) -> None:
    """Of dates and timestamps, also those in structs and lists."""
    kind = column.type
    if pa.types.is_nested(kind):
        for part in column.flatten() if pa.types.is_struct(kind) else [column.flatten()]:
            _check_times(part)
        return
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return
    whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
    scale = 1 if pa.types.is_date(kind) else _DAY
    ends = pc.min_max(column.view(whole))
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is not None and not (_FIRST_DAY * scale <= least and most < (_LAST_DAY + 1) * scale):
        raise Unfit("it is before the year 1, or after the year 9999")


def _check_partition(name: str, column: pa.Array) -> None:
    """What delta-rs writes as another value, or does not write."""
    if pa.types.is_decimal(column.type) and column.type.scale > 0:
        least = pc.min(column).as_py()
        if least is not None and least < 0:
            raise Unfit(
                f"it is the partition {least}, and deltalake writes no negative decimals with a fraction there"
            )
    if not pa.types.is_string(column.type):
        return
    for text in _NULLS:
        if pc.any(pc.equal(column, text)).as_py():
            raise Unfit(f"it is the partition {text!r}, which is null in a Delta table")
    surely_fits = (LONGEST_FOLDER - len(quote(f"{name}="))) // 3  # a byte becomes three, such as %20
    long = pc.greater(pc.binary_length(column), surely_fits)
    for value in pc.unique(column.filter(long)).to_pylist():
        length = len(quote(f"{name}={value}", safe="="))
        if length > LONGEST_FOLDER:
            raise Unfit(
                f"it is a partition whose folder has a name of {length} bytes; {LONGEST_FOLDER} are possible"
            )
