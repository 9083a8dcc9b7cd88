"""The columns of a lake table as its source declares them: put in order, cast where nothing is lost, refused else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.lake import LakeTable

_SIGNED = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 3, pa.int64(): 4}
_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind),
    lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind),
    pa.types.is_struct,
    pa.types.is_map,
    pa.types.is_dictionary,
)
"""Types of one meaning, whatever their layout: Arrow's cast knows what of their parts fits."""


def conform(table: LakeTable, batch: pa.RecordBatch, version: int) -> pa.RecordBatch:
    """The columns that are read, in order and in their types; null where a file does not have them.

    Raises `SourceError` CS-617 for a column of a type that does not fit.
    """
    return cast_to(table, batch, table.needed, version)


def cast_to(table: LakeTable, batch: pa.RecordBatch, names: Sequence[str], version: int) -> pa.RecordBatch:
    """As `conform`, of some of the columns."""
    columns = []
    for name in names:
        wanted = table.schema.field(name).type
        place = batch.schema.get_field_index(name)
        if place < 0:
            columns.append(pa.nulls(batch.num_rows, wanted))
            continue
        column = batch.column(place)
        if column.type != wanted:
            if not fits(column.type, wanted):
                raise _other_type(table, name, column.type, version)
            try:
                column = column.cast(wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise _other_type(table, name, column.type, version) from error
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def check_schema(table: LakeTable, schema: pa.Schema, version: int) -> None:
    """Raises `SourceError` CS-617 if a commit changed the schema to one without a column that is read, or of a type
    that does not fit. A column that came later than the commit is null until then.
    """
    for name in table.needed:
        place = schema.get_field_index(name)
        if place >= 0 and not fits(schema.field(place).type, table.schema.field(name).type):
            raise _other_type(table, name, schema.field(place).type, version)
        if place < 0 and version > table.described:
            what = f"version {version} of {table.table} has no column {name!r}: it was dropped or renamed"
            raise refuse("CS-617", what, topic=table.topic, version=version)


def fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a type is one of another, and means the same."""
    if kind == wanted or pa.types.is_null(kind):
        return True
    if any(is_kind(kind) and is_kind(wanted) for is_kind in _KINDS):
        return True
    if kind in _SIGNED and wanted in _SIGNED:
        return _SIGNED[kind] <= _SIGNED[wanted]
    if pa.types.is_float64(wanted):
        return pa.types.is_float32(kind) or (kind in _SIGNED and kind != pa.int64())
    if pa.types.is_decimal(kind) and pa.types.is_decimal(wanted):
        digits = wanted.precision - wanted.scale - (kind.precision - kind.scale)
        return bool(digits >= 0 and wanted.scale >= kind.scale)
    if pa.types.is_timestamp(wanted):
        if pa.types.is_timestamp(kind):
            return (kind.tz is None) == (wanted.tz is None)
        return pa.types.is_date(kind) and wanted.tz is None
    return False


def _other_type(table: LakeTable, name: str, kind: pa.DataType, version: int) -> CrossStreamError:
    what = (
        f"the column {name!r} of {table.table} is {kind} in version {version}, "
        f"and is read as {table.schema.field(name).type}"
    )
    return refuse("CS-617", what, topic=table.topic, version=version)
