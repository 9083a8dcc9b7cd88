"""Columns of a store as the record batches that Spark expects of a Python data source."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from crossstream.columns.flat import TIME
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.query.feed import Changed
from crossstream.query.table import Column, StoreTable
from crossstream.storage.columns import Columns

_ZONED = "timezone" in inspect.signature(to_arrow_schema).parameters
"""Whether the zone of timestamps has to be said, which is the one of the earlier versions."""


def schema_of(columns: Sequence[Column], *, changes: bool = False) -> StructType:
    """Columns as Spark declares them; those of ``changes`` come last."""
    fields = [pa.field(column.name, column.type) for column in columns]
    fields += CHANGES if changes else ()
    return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)


CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
CHANGES = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, TIME),
)
"""What a stream has beside the columns of its table, as Delta's change feed and Spark's ``changes`` have it."""
_NAMES = tuple(field.name for field in CHANGES)


@dataclass(frozen=True)
class Output:
    """The columns that Spark asks for, and the schema of the record batches it takes.

    ``columns``: those of the store; ``changes``: whether those of changes may be among the others.
    """

    columns: tuple[Column, ...]
    schema: pa.Schema
    changes: bool = False

    @classmethod
    def of(cls, table: StoreTable, schema: StructType, *, changes: bool = False) -> Output:
        """Raises `StateError` CS-711 for a column that the store does not have."""
        wanted = to_arrow_schema(schema, timezone="UTC") if _ZONED else to_arrow_schema(schema)
        of_store = [field for field in wanted if not (changes and field.name in _NAMES)]
        return cls(tuple(_asked(table.column(field.name), field.type) for field in of_store), wanted, changes)

    def batch(self, table: StoreTable, rows: Columns, changed: Changed | None = None) -> pa.RecordBatch:
        """Rows as Spark takes them; ``changed``: what has become of them.

        Raises `SerdeError` for bytes that the serdes cannot read, `StateError` CS-711 for a type that does not fit.
        """
        found = iter(table.arrays(rows, self.columns))
        said = {} if changed is None else _said(changed, len(rows["key"]))
        arrays = [said[field.name] if field.name in said else next(found) for field in self.schema]
        fitting = [_cast(*one) for one in zip(arrays, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(fitting, schema=self.schema)


def _said(changed: Changed, count: int) -> dict[str, pa.Array]:
    values = (changed.kind, changed.batch, changed.time * 1000)
    scalars = (pa.scalar(value, field.type) for value, field in zip(values, CHANGES, strict=True))
    return {name: pa.repeat(scalar, count) for name, scalar in zip(_NAMES, scalars, strict=True)}


def _asked(column: Column, kind: pa.DataType) -> Column:
    """Key or value as a whole, asked for as BINARY, are the bytes."""
    is_bytes = column.part in ("key", "value") and column.field is None and kind == pa.binary()
    return replace(column, type=pa.large_binary()) if is_bytes else column


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        what = f"the column {field.name!r} is {array.type}, and does not fit {field.type}: {error}"
        raise refuse(
            "CS-711", what, "leave the schema out, or ask for the types that printSchema() shows"
        ) from None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors of ours leave without what led to them: Spark prints all of it."""
    try:
        yield
    except CrossStreamError as error:
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None) from None
