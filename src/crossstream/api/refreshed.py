"""Static tables that are read again: a DataFrame or a function, its rows in wire form, and what differs between two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from crossstream.api.plain_frames import column_names
from crossstream.api.spark_types import arrow_schema
from crossstream.durations import Duration, to_milliseconds
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location, type_and_text
from crossstream.serdes import calls
from crossstream.serdes.plain_columns import PlainRows, plain_rows
from crossstream.serdes.plain_types import column_type

T = TypeVar("T")
OPERATOR = "global_table_from"
_KINDS = "a DataFrame of Spark, a pyarrow Table or a Polars DataFrame"


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows that were read: ``rows`` has their key and value in wire form; ``nulls``: rows without a key, left out."""

    rows: pl.DataFrame
    nulls: int


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A table that is read again. ``read``: gives it; ``types``: of the columns that are read.

    ``every``: after how many ms; None: at each start only. ``where``: the place that errors name.
    """

    read: Callable[[], Any]
    rows: PlainRows
    types: Mapping[str, pl.DataType]
    every: int | None
    where: Mapping[str, Any]

    def reading(self) -> Reading:
        """The rows now, which pass through this process.

        Raises `SourceError` CS-621 if they cannot be read, a column is gone or has another type, or a key occurs twice.
        """
        table = self._called(self.read)
        self._check(schema_of(table, self.where))
        table = self._called(lambda: rows_of(table, self.rows.read))
        parts = [self._wire(batch) for batch in table.to_batches()]
        rows = pl.concat(parts) if parts else _wired(pa.array([], pa.large_binary()), [])
        kept = rows.filter(pl.col("key").is_not_null())
        self._check_keys(kept, rows, table)
        return Reading(kept, rows.height - kept.height)

    def _called(self, call: Callable[[], T]) -> T:
        """What a call gives that may run code of the user, or Spark."""
        try:
            return call()
        except CrossStreamError as error:
            raise error.at(**self.where) from error.__cause__
        except Exception as error:
            raise self._refused(f"it cannot be read: {type_and_text(error)}", "see the cause") from error

    def _wire(self, batch: pa.RecordBatch) -> pl.DataFrame:
        values = calls.encode_series(self.rows.value, self.rows.value_series(batch))
        return _wired(self.rows.key_wire(batch), values)

    def _check(self, schema: pa.Schema) -> None:
        """Raises CS-621 for columns that were read at the start and are not the same now. New ones are left out."""
        for name, dtype in self.types.items():
            places = schema.get_all_field_indices(name)
            if len(places) != 1:
                there = ", ".join(schema.names) or "none"
                gone = f"its column {name} is gone: the columns are {there}"
                what = f"it has several columns {name}" if places else gone
                raise self._refused(what, "give the column back, or change the topology and start again")
            field = schema.field(places[0])
            if column_type(field, self.where) != dtype:
                what = f"its column {name} is of type {field.type} now, and was {dtype} when the topology was built"
                raise self._refused(what, "cast it to the type it had, or start again with the new one")

    def _check_keys(self, kept: pl.DataFrame, rows: pl.DataFrame, table: pa.Table) -> None:
        if kept["key"].n_unique() == kept.height:
            return
        place = int((rows["key"].is_duplicated() & rows["key"].is_not_null()).arg_true()[0])
        row = table.select(list(self.rows.keys)).slice(place, 1).to_pylist()[0]
        named = ", ".join(f"{name}={value!r}" for name, value in row.items())
        count = rows.filter(pl.col("key") == pl.lit(rows["key"][place])).height
        names = " and ".join(self.rows.keys)
        step = f"make {names} unique, with a WHERE or .dropDuplicates([…]), or name other columns in key="
        raise self._refused(f"it has {count} rows with the key {named}", step)

    def _refused(self, what: str, step: str) -> CrossStreamError:
        return refuse("CS-621", what, step, **self.where)


def refreshed_of(
    given: Any, key: str | Sequence[str], columns: Sequence[str] | None, refresh: Duration | None
) -> Refreshed:
    """What `StreamsBuilder.global_table_from` was given, checked.

    Raises `TopologyError`: CS-150 for what is no static table, and columns and types that it cannot read, CS-101 for
    arguments that name no columns, CS-110 for a refresh that is no duration; CS-621 for a function that raises.
    """
    where = caller_location(OPERATOR)
    every = (
        None
        if refresh is None
        else to_milliseconds(refresh, "refresh", minimum=1, code="CS-110", unclear="refuse")
    )
    is_function = callable(given) and not _is_table(given)
    read = given if is_function else lambda: given
    try:
        table = read()
    except Exception as error:
        what = f"the function that gives the table raised {type_and_text(error)}"
        raise refuse("CS-621", what, "see the cause", **where) from error
    schema = schema_of(table, where)
    chosen = None if columns is None else column_names("columns", columns, where)
    rows = plain_rows(schema, column_names("key", key, where), chosen, where)
    if rows.key is None:
        step = 'name its columns: key="id" or key=["shop", "id"]'
        raise refuse("CS-101", "key= names no column, and the rows of a table have a key", step, **where)
    types = {name: column_type(schema.field(name), where) for name in rows.read}
    return Refreshed(read, rows, types, every, where)


def difference(before: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """What makes the rows ``before`` the rows ``now``: rows that are new or other, then keys that are gone.

    >>> before = pl.DataFrame({"key": [b"a", b"b", b"c"], "value": [b"1", b"2", b"3"]})
    >>> difference(before, pl.DataFrame({"key": [b"a", b"b"], "value": [b"1", b"5"]})).rows()
    [(b'b', b'5'), (b'c', None)]
    """
    new = now.join(before, on=["key", "value"], how="anti", maintain_order="left")
    gone = before.join(now, on="key", how="anti", maintain_order="left")
    return pl.concat([new, gone.with_columns(value=pl.lit(None, pl.Binary()))])


def _wired(keys: pa.Array, values: Any) -> pl.DataFrame:
    return pl.DataFrame(
        {"key": pl.Series(keys, dtype=pl.Binary()), "value": pl.Series(values, dtype=pl.Binary())}
    )


def _is_table(given: Any) -> bool:
    return isinstance(given, pa.Table | pl.DataFrame) or hasattr(given, "isStreaming")


def schema_of(table: Any, where: Mapping[str, Any]) -> pa.Schema:
    """The columns of a table. Raises CS-150 for what is no static table."""
    if getattr(table, "isStreaming", False):
        step = "follow it with builder.table_from(…), or read the table without readStream"
        raise refuse("CS-150", "the DataFrame is a streaming one, which is not read again", step, **where)
    if not _is_table(table):
        kind = type(table).__name__
        step = f"pass {_KINDS}, or a function () that gives one"
        raise refuse("CS-150", f"{OPERATOR} takes a static DataFrame, not {kind}", step, **where)
    if isinstance(table, pl.DataFrame):
        return table.head(0).to_arrow().schema
    return table.schema if isinstance(table, pa.Table) else arrow_schema(table)


def rows_of(table: Any, columns: Sequence[str]) -> pa.Table:
    """The rows of a table in these columns, which are there once.

    A DataFrame of Spark may have noted the files of a table when it was made, so it is asked to look again. Over Spark
    Connect it is planned for each reading.
    """
    if isinstance(table, pl.DataFrame):
        return table.select(columns).to_arrow()
    if isinstance(table, pa.Table):
        return table.select(list(columns))
    if (planned := getattr(table, "_jdf", None)) is not None:
        planned.queryExecution().analyzed().refresh()
    return table.select(*[f"`{name.replace('`', '``')}`" for name in columns]).toArrow()
