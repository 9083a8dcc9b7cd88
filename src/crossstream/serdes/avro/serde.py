"""Avro: payloads of one schema. `registry_avro` has those behind the frame of a schema registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.gc_pause import paused_gc
from crossstream.serdes import arrays, errors
from crossstream.serdes.avro.objects import Column, objects
from crossstream.serdes.avro.read import decoded
from crossstream.serdes.avro.resolve import resolved
from crossstream.serdes.avro.rows import read_row, write_row
from crossstream.serdes.avro.schema import References, column_type, parse, record_of, unusable, with_fields
from crossstream.serdes.avro.single import Reader
from crossstream.serdes.avro.types import Form, checked, form_of, schema_text
from crossstream.serdes.avro.write import fitted, written, written_attributes
from crossstream.serdes.contract import NO_READER, ByColumns, Readers, Serde
from crossstream.serdes.description import Described
from crossstream.serdes.json.plain import NATIVE
from crossstream.serdes.json.shapes import NoColumn, rows_of
from crossstream.serdes.json.typed import TypedJson
from crossstream.serdes.json.typed import json as json_serde


def avro(schema: Any, type: Any = None) -> Serde:
    """Avro payloads of one schema, without a frame and without a container.

    ``schema``: an Avro schema, as JSON text or as a dict; or a Python type, from which one is derived. ``type``: the
    Python type of the values, where the schema is given too. Without a type callables get dicts and single values.

    Raises `SerdeError` (CS-404) for what is not a schema.

    >>> avro("string").serialize("é")
    b'\\x04\\xc3\\xa9'
    >>> order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    >>> avro(order).deserialize(b"\\x0e")
    {'id': 7}
    """
    text, of = declared(schema, type)
    return Avro(text, of)


def declared(schema: Any, type: Any, references: References = ()) -> tuple[str, TypedJson | None]:
    given = isinstance(schema, str | dict | list)
    text = schema_text(schema)
    kind = type if given else schema
    if not given and type is not None:
        raise unusable(type, "the schema is derived from another type already")
    of = None if kind is None else typed(kind)
    form_of(text, references, of)
    return text, of


def typed(kind: Any) -> TypedJson:
    made = json_serde(kind)
    if not isinstance(made, TypedJson):
        raise unusable(kind, "type= takes a Python type, such as a dataclass")
    return made


@lru_cache(maxsize=2048)
def reader_of(
    writer: str,
    writer_references: References,
    text: str,
    references: References,
    names: frozenset[str] | None,
) -> Reader | str:
    """How payloads of a writer are read, some fields of the reader's record or all; a text: why they cannot be."""
    node = parse(text, references)
    if names is not None:
        node = with_fields(node, names)
    try:
        return resolved(parse(writer, writer_references), node)
    except ValueError as error:
        return str(error)
    except SerdeError as error:
        return error.what


Group = tuple[Any, pa.LargeBinaryArray, Reader, int]
"""The rows of some payloads, the payloads, their reader, and the bytes in front of each."""


class AvroValues(ByColumns, ABC):
    """What both serdes have in common: everything but the frame."""

    __slots__ = ()

    of: TypedJson | None
    varied: ClassVar[bool] = True

    @property
    @abstractmethod
    def name(self) -> str:
        """As `Serde.name`."""

    @property
    @abstractmethod
    def form(self) -> Form:
        """How values are read and written."""

    @abstractmethod
    def _groups(
        self, data: pa.LargeBinaryArray, names: frozenset[str] | None
    ) -> tuple[list[Group], dict[int, str]]:
        """The payloads by their schema, and the reasons of those that have none."""

    def _framed(self, payload: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
        return payload

    @property
    def declared(self) -> Form | None:
        """The form, if the schema is known."""
        return self.form

    @property
    def dtype(self) -> pl.DataType | None:
        columns = self.declared and self.declared.columns
        return None if isinstance(columns, NoColumn) else columns

    @property
    def some_columns(self) -> pl.DataType | None:
        return self.declared and self.declared.some_columns

    @property
    def unfit_for_keys(self) -> str | None:
        return self.declared and self.declared.unfit_for_keys

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        dense: Sequence[Any] = [value for value in values if value is not None]
        if not dense:
            return arrays.null_rows(len(values))
        with paused_gc():
            attributes = self.form.attributes if len(dense) > arrays.FEW else None
            if attributes is not None and set(map(type, dense)) == {attributes[0]}:
                direct = written_attributes(self.form.node, dense, attributes[1], self.name)
                if direct is not None:
                    return self._framed(arrays.with_nulls(direct, there))
            if self.of is not None:
                dense = self._plain(dense)
            plain = checked(self.form.node, dense, self.name)
            payload = self._few_written(plain) if len(plain) <= arrays.FEW else None
            if payload is None:
                payload = written(self.form.node, plain, self.name)
        return self._framed(arrays.with_nulls(payload, there))

    def _few_written(self, plain: Sequence[Any]) -> pa.LargeBinaryArray | None:
        """The payloads of a few values, one by one; None: it takes columns."""
        if self.form.rows is None:
            return None
        try:
            rows = msgspec.to_builtins(plain, builtin_types=NATIVE)  # `checked` leaves flat ones as structs
            return arrays.binary_rows([write_row(self.form.rows[1], row) for row in rows])
        except Exception:  # whatever is odd, columns say why
            return None

    def _few_read(self, data: pa.LargeBinaryArray) -> list[Any] | None:
        """The objects of a few payloads of the declared schema, one by one; None: it takes columns."""
        head = self._head()
        if self.form.rows is None or head is None:
            return None
        read = self.form.rows[0]
        try:
            rows = data.to_pylist()
            if not all(row is None or row.startswith(head) for row in rows):
                return None
            made = [None if row is None else read_row(read, row, len(head)) for row in rows]
            return made if self.of is None else self._instances(made)
        except Exception:  # as above
            return None

    def _head(self) -> bytes | None:
        """What is in front of payloads of the declared schema."""
        return b""

    def _plain(self, values: Sequence[Any]) -> Sequence[Any]:
        """Instances of the type as dicts and single values."""
        assert self.of is not None
        instances = self.of.instances(values)
        try:
            made: Sequence[Any] = msgspec.to_builtins(instances, builtin_types=NATIVE)
        except (TypeError, ValueError) as error:
            raise errors.misfit(self.name, values[0], str(error)) from error
        if self.form.is_narrower:
            for row, reason in self._misfits(made).items():
                raise errors.unreadable(self.name, values[row], reason)
        return made

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        column = fitted(self.form.node, values, self.name)
        there = column.is_not_null().to_numpy()
        dense = column.drop_nulls() if column.null_count() else column
        payload = written(self.form.node, dense, self.name)
        if self.form.is_narrower:
            self._check_written(payload, dense)
        return self._framed(arrays.with_nulls(payload, there))

    def _check_written(self, payload: pa.LargeBinaryArray, values: pl.Series) -> None:
        text = self._own_text()
        reader = reader_of(*text, *text, None)
        assert isinstance(reader, Reader)
        column, _ = decoded(reader, payload)
        for row, reason in self._misfits(objects(column, self.form.node)).items():
            raise errors.unreadable(self.name, values[row], reason)

    @abstractmethod
    def _own_text(self) -> tuple[str, References]:
        """The declared schema, and what it refers to."""

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        with paused_gc():
            few = self._few_read(data) if len(data) <= arrays.FEW else None
            if few is not None:
                return few
            parts = self._read(data, None)
            made: list[Any] = [None] * len(data)
            for rows, column in parts:
                build = self.form.build if isinstance(column, pl.Series) else None
                values = objects(column, self.form.node) if build is None else build(column)  # type: ignore[arg-type]
                if len(values) == len(data):
                    made = values
                    continue
                for row, value in zip(rows.tolist(), values, strict=True):
                    made[row] = value
            return made if self.of is None or self.form.build is not None else self._instances(made)

    def _instances(self, values: list[Any]) -> list[Any]:
        assert self.of is not None
        try:
            made: list[Any] = msgspec.convert(values, rows_of(self.of.type), builtin_types=NATIVE)
            return made
        except Exception as error:  # msgspec's errors, and whatever a __post_init__ raises
            raise errors.undecodable_rows(self.name, self._misfits(values) or {0: str(error)}) from error

    def _misfits(self, values: Sequence[Any]) -> dict[int, str]:
        """The values that are not of the type, and why."""
        found: dict[int, str] = {}
        if self.of is not None:
            for row, value in enumerate(values):
                try:
                    if value is not None:
                        msgspec.convert(value, self.of.type, builtin_types=NATIVE)
                except Exception as error:  # as above
                    found[row] = str(error)
        return found

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        form = self.form
        record = record_of(form.node)
        names = None if fields is None or record is None else frozenset(fields)
        if names is not None and record is not None:
            known = [one.name for one in record.fields]
            if unknown := names.difference(known):
                raise errors.unknown_fields(self.name, unknown, known)
        dtype = form.columns if names is None else column_type(with_fields(form.node, names))
        if isinstance(dtype, NoColumn):
            raise errors.no_column(self.name, dtype.reason)
        parts = self._read(data, names)
        if form.is_narrower:
            self.decode_objects(data)
        return _whole(parts, len(data), dtype)

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NO_READER
    ) -> pl.Series:
        """As `EngineSerde.decode_checked`: all fields are always checked."""
        record = record_of(self.form.node)
        known = () if record is None else [one.name for one in record.fields]
        return self.decode_series(data, [name for name in fields if name in known])

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        found: list[bool] = self.decode_checked(data, ()).is_null().to_list()
        return found

    def _read(self, data: pa.LargeBinaryArray, names: frozenset[str] | None) -> list[tuple[Any, Column]]:
        groups, faults = self._groups(data, names)
        parts = []
        for rows, payload, reader, head in groups:
            column, found = decoded(reader, payload, head)
            faults.update({int(rows[row]): reason for row, reason in found.items()})
            parts.append((rows, column))
        if faults:
            raise errors.undecodable_rows(self.name, faults)
        return parts


def _whole(parts: list[tuple[Any, Column]], rows: int, dtype: pl.DataType) -> pl.Series:
    """The column of several parts, null where there is none."""
    if len(parts) == 1 and len(parts[0][0]) == rows:
        made = parts[0][1]
        assert isinstance(made, pl.Series)
        return made
    if not parts:
        return arrays.null_series(rows, dtype)
    dense = pl.concat([column for _, column in parts if isinstance(column, pl.Series)], rechunk=True)
    source = np.full(rows, -1, np.int64)
    source[np.concatenate([rows for rows, _ in parts])] = np.arange(len(dense))
    return dense.gather(pl.Series(pa.array(source, mask=source < 0)))


def _there(data: pa.LargeBinaryArray) -> tuple[Any, pa.LargeBinaryArray]:
    there = arrays.validity(data)
    return (np.arange(len(data)), data) if there is None else (np.flatnonzero(there), data.drop_null())


@dataclass(frozen=True, slots=True)
class Avro(AvroValues):
    """See `avro`. ``schema``: its JSON. ``of``: the type of the values; None: dicts and single values."""

    schema: str
    of: TypedJson | None = None

    @property
    def name(self) -> str:
        return f"avro[{self.form.title}]"

    @property
    def form(self) -> Form:
        return form_of(self.schema, (), self.of)

    def described(self) -> Described:
        return Described(self.name, "avro", text=self.schema)

    def _own_text(self) -> tuple[str, References]:
        return self.schema, ()

    def _groups(
        self, data: pa.LargeBinaryArray, names: frozenset[str] | None
    ) -> tuple[list[Group], dict[int, str]]:
        reader = reader_of(self.schema, (), self.schema, (), names)
        assert isinstance(reader, Reader)
        rows, payload = _there(data)
        return [(rows, payload, reader, 0)] if len(rows) else [], {}
