"""Fields of events and of transaction metadata in Avro, as columns. Records of several schemas may be mixed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.serdes.avro.read import decoded
from crossstream.serdes.avro.resolve import resolved
from crossstream.serdes.avro.schema import References, parse, with_fields
from crossstream.serdes.avro.single import Reader
from crossstream.serdes.registry.client import RegistrySettings
from crossstream.serdes.registry.serde import check_ids, split_frames


def avro_columns(
    values: pa.LargeBinaryArray,
    registry: RegistrySettings,
    of_source: Sequence[str],
    of_transaction: Sequence[str],
) -> pl.DataFrame:
    """The fields of ``source`` and ``transaction`` of each event; null of what is no event, or cannot be decoded."""
    inside = {"source": tuple(of_source), "transaction": tuple(of_transaction)}
    parts, places = [], []
    for rows, column in _records(values, registry, tuple(inside), inside):
        fields = {one.name: one for one in column.struct.unnest().get_columns()}
        made = {
            name: _texts(fields.get(outer), name, len(rows))
            for outer, names in inside.items()
            for name in names
        }
        parts.append(pl.DataFrame(made))
        places.append(rows)
    nothing = pl.DataFrame(schema=dict.fromkeys((*of_source, *of_transaction), pl.String))
    found = pl.concat([nothing, *parts]).with_columns(row=np.concatenate([np.empty(0, np.int64), *places]))
    every = pl.DataFrame({"row": np.arange(len(values))})
    return every.join(found, on="row", how="left", maintain_order="left").drop("row")


def avro_rows(
    values: pa.LargeBinaryArray, registry: RegistrySettings, names: Sequence[str]
) -> list[dict[str, Any]]:
    """These fields of each record; none of what cannot be decoded."""
    found: list[dict[str, Any]] = [{} for _ in range(len(values))]
    for rows, column in _records(values, registry, tuple(names), {}):
        for row, one in zip(rows.tolist(), column.to_list(), strict=True):
            found[row] = one
    return found


def _texts(record: pl.Series | None, name: str, rows: int) -> pl.Series:
    """A field of a record as text: numbers and enums, too."""
    if record is None or not isinstance(record.dtype, pl.Struct) or name not in record.struct.fields:
        return pl.Series(name, [None] * rows, pl.String)
    return record.struct.field(name).cast(pl.String)


def _records(
    values: pa.LargeBinaryArray,
    registry: RegistrySettings,
    names: tuple[str, ...],
    inside: Mapping[str, Collection[str]],
) -> Iterator[tuple[np.ndarray, pl.Series]]:
    """The records of each schema, and which they are; without those that cannot be decoded."""
    frames = split_frames(values)
    schemas, _ = check_ids(registry, frames.ids, "AVRO")
    for id, schema in schemas.items():
        reader = _reader(
            schema.text, schema.references, names, tuple(sorted((k, tuple(v)) for k, v in inside.items()))
        )
        rows = np.flatnonzero(frames.ids == id)
        payload = frames.payload.take(pa.array(rows))
        column, faults = (None, {}) if reader is None else decoded(reader, payload)
        if faults:
            good = np.setdiff1d(np.arange(len(rows)), list(faults))
            rows, payload = rows[good], payload.take(pa.array(good))
            column = None if reader is None else decoded(reader, payload)[0]
        if isinstance(column, pl.Series) and isinstance(column.dtype, pl.Struct):
            yield rows, column


@lru_cache(maxsize=64)
def _reader(
    text: str, references: References, names: tuple[str, ...], inside: tuple[tuple[str, tuple[str, ...]], ...]
) -> Reader | None:
    """None: the schema is no record, or has none of the fields."""
    try:
        writer = parse(text, references)
        if writer.kind != "record" or not {one.name for one in writer.fields} & set(names):
            return None
        return resolved(writer, with_fields(writer, set(names), dict(inside)))
    except (SerdeError, ValueError):
        return None
