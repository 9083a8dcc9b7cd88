"""The columns that are read of an Iceberg table, by their ids: a name may pass from one column to another.

The ids are those of the schema that the application was built with (`LakeTable.schema`), also of fields in structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from crossstream.error_codes import refuse
from crossstream.graph.lake import LakeTable

_ID = b"PARQUET:field_id"
Names = Mapping[int, str]
"""The names that the application has for columns and fields in them, by id."""


def chosen(table: LakeTable, schema: Schema, columns: Sequence[str]) -> Schema:
    """These columns, as a schema has them, with the names that the application has for them."""
    read = [table.schema.field(name) for name in columns if name in table.schema.names]
    ids = {field.name: number for field in read for number in _id_of(field)}
    by_id = {field.field_id: field for field in schema.fields}
    by_name = {field.name: field for field in schema.fields}
    found = (by_id.get(ids[name]) if name in ids else by_name.get(name) for name in columns)
    names = dict(_names(read))
    pairs = zip(columns, found, strict=True)
    return Schema(*(named(_renamed(field, names), name) for name, field in pairs if field is not None))


def check_columns(table: LakeTable, before: Schema | None, after: Schema, number: int) -> None:
    """Raises `SourceError` CS-617 if a commit changed which column, or field in it, is meant by a name that is read."""
    if before is None or before.schema_id == after.schema_id:
        return
    for one, name in _meant(table, before):
        was, now = before.find_column_name(one), after.find_column_name(one)
        if now is not None and after.find_field(one).name == name:
            continue
        if now is not None:
            what = f"the column {was!r} is called {now!r} since version {number}"
        elif was in after.column_names:
            what = f"the column {was!r} was dropped, and another one has its name since version {number}"
        else:
            what = f"the column {was!r} was dropped: version {number} does not have it"
        raise refuse("CS-617", f"the table {table.table}: {what}", topic=table.topic, version=number)


def named(field: NestedField, name: str) -> NestedField:
    return field if field.name == name else field.model_copy(update={"name": name})


def _meant(table: LakeTable, before: Schema) -> Iterator[tuple[int, str]]:
    """The columns and fields that are read, as a schema has them, with the names of the application."""
    for field in before.fields:
        if field.name in table.needed:
            yield field.field_id, field.name
    read = [table.schema.field(name) for name in table.needed if name in table.schema.names]
    known = before.field_ids
    yield from ((one, name) for one, name in _names(read) if one in known)


def _names(fields: Iterable[pa.Field]) -> Iterator[tuple[int, str]]:
    """The names of fields, and of those in them, by id."""
    for field in fields:
        yield from ((number, field.name) for number in _id_of(field))
        kind = field.type
        if pa.types.is_struct(kind):
            yield from _names(list(kind))
        elif pa.types.is_map(kind):
            yield from _names([kind.key_field, kind.item_field])
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            yield from _names([kind.value_field])


def _renamed(field: NestedField, names: Names) -> NestedField:
    kind = _renamed_type(field.field_type, names)
    name = names.get(field.field_id, field.name)
    return named(field if kind == field.field_type else field.model_copy(update={"field_type": kind}), name)


def _renamed_type(kind: IcebergType, names: Names) -> IcebergType:
    """A type whose fields have the names of the application."""
    if isinstance(kind, StructType):
        return StructType(*(_renamed(field, names) for field in kind.fields))
    if isinstance(kind, ListType):
        element = _renamed_type(kind.element_type, names)
        return ListType(kind.element_id, element, element_required=kind.element_required)
    if isinstance(kind, MapType):
        key, value = _renamed_type(kind.key_type, names), _renamed_type(kind.value_type, names)
        return MapType(kind.key_id, key, kind.value_id, value, value_required=kind.value_required)
    return kind


def _id_of(field: pa.Field) -> list[int]:
    """Its id, if it has one."""
    found = (field.metadata or {}).get(_ID)
    return [] if found is None else [int(found)]
