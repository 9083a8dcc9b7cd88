"""Records as columns that Spark takes: it has no integers without a sign."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession

from crossstream.columns.values import Values
from crossstream.errors import SerdeError

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def column_of(values: Values) -> pa.Array:
    """A column of the values: of the declared type, or the text of JSON and the bytes of others without one.

    Raises `SerdeError`: CS-404 for a type Arrow has not.
    """
    if not values.declared():
        is_json = values.serde is not None and values.serde.name.partition("[")[0] == "json"
        return values.wire().cast(pa.string() if is_json else pa.binary())
    series = values.series()
    try:
        array = series.to_arrow()
    except pa.ArrowException as error:
        raise _refused(str(series.dtype)) from error
    return array.cast(pa.string() if pa.types.is_null(array.type) else _signed(array.type))


def frame_of(spark: SparkSession, columns: Mapping[str, pa.Array]) -> DataFrame:
    """A DataFrame of these columns. Raises `SerdeError` CS-404 for a type Spark has not."""
    try:
        return spark.createDataFrame(pa.table(dict(columns)))
    except PySparkTypeError as error:
        types = ", ".join(f"{name} {column.type}" for name, column in columns.items())
        raise _refused(types) from error


def _signed(kind: pa.DataType) -> pa.DataType:
    """The type, with the next wider signed integers for those without a sign, in structs and lists too."""
    if isinstance(kind, pa.StructType):
        return pa.struct([field.with_type(_signed(field.type)) for field in kind])
    if isinstance(kind, pa.LargeListType):
        return pa.large_list(kind.value_field.with_type(_signed(kind.value_type)))
    return _WIDER.get(kind, kind)


def _refused(types: str) -> SerdeError:
    return SerdeError(
        f"Spark has no columns of these types: {types}",
        code="CS-404",
        next="change the type before: map_values(…), then repartition(cs.Repartitioned(value=serdes.json({…})))",
    )
