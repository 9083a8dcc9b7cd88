"""Python types as serdes, and the declared types of what functions read and return.

Types are checked while the topology is built. An expression reads columns, and columns have types. So its input needs
a declared type: of a serde (a class, a schema), of an annotation, or of another expression. The type of its result
follows.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, UnionType
from typing import Any, TypeAlias
from uuid import UUID

import polars as pl
import pyarrow as pa

from crossstream import serdes
from crossstream.columns.field_of import FieldOf
from crossstream.columns.functions import ALL, WHOLE, Function, fields_of, projection_of, result_type
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, ProcessingError, SerdeError, caller_location
from crossstream.graph.nodes import Node
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.json.plain import SchemaJson, UntypedJson, typed_as
from crossstream.serdes.own import columns_in, known
from crossstream.serdes.primitives import Boolean, Bytes, Number, String, Uuid

AsSerde: TypeAlias = serdes.Serde | type[Any] | Mapping[str, Any]
"""A serde, a dict of Polars types, or a type that has a serde: str, bytes, int, float, bool, UUID, dict, list, or a
class with fields."""

SerdeField: TypeAlias = Any
"""The type of a field of an option object: `AsSerde` when it is given, and a serde when it is read."""

_BY_TYPE: Mapping[Any, EngineSerde] = MappingProxyType(
    {
        str: String(),
        bytes: Bytes(),
        int: Number("int64"),
        float: Number("float64"),
        bool: Boolean(),
        UUID: Uuid(),
        dict: UntypedJson(),
        list: UntypedJson(),
    }
)

TYPES = "str, bytes, int, float, bool, UUID, dict, list, or a class with fields, such as a dataclass"
"""The types that stand for a serde, as errors list them."""


def as_serde(given: Any) -> Any:
    """The serde of a type or of a schema; anything else unchanged. int and float have 64 bits.

    >>> as_serde(str) == serdes.string(), as_serde(dict) == serdes.json()
    (True, True)
    """
    if isinstance(given, type) and given in _BY_TYPE:
        return _BY_TYPE[given]
    is_schema = isinstance(given, pl.Schema | pl.Struct | pa.Schema) or (isinstance(given, dict) and given)
    return serdes.json(given) if is_schema or _has_fields(given) else given


def _has_fields(given: Any) -> bool:
    """Whether it is a class with declared fields, or a generic type such as ``list[Order]``."""
    if typing.get_origin(given) is not None:
        return True
    if not isinstance(given, type) or callable(getattr(given, "deserialize", None)):
        return False
    is_record = (
        dataclasses.is_dataclass(given) or typing.is_typeddict(given) or hasattr(given, "_field_defaults")
    )
    return is_record or hasattr(given, "__struct_fields__") or hasattr(given, "__attrs_attrs__")


_PLAIN_HINTS = (Any, None, type(None), object, str, int, float, bool, dict, list, tuple, ...)
_PLAIN_ORIGINS = (typing.Union, UnionType, dict, list, tuple)
"""Types that JSON keeps, or that say nothing."""

_ABOUT_TYPES = ("CS-401", "CS-404")
"""Errors of this package's serdes for a type that they cannot write."""

Inputs = Mapping[str, Node]
"""What a function reads, by the names of its arguments: ``value``; or ``left``, ``right`` and the like."""


def value_dtype(node: Node) -> pl.DataType | None:
    """The declared type of a node's values; None if it has no declared type."""
    return columns_in(node.value or node.value_type)


def key_dtype(node: Node) -> pl.DataType | None:
    return columns_in(node.key or node.key_type)


_BY_COLUMN: Mapping[str, EngineSerde] = MappingProxyType(
    {
        "String": String(),
        "Int64": Number("int64"),
        "Int32": Number("int32"),
        "Int16": Number("int16"),
        "Float64": Number("float64"),
        "Boolean": Boolean(),
        "Binary": Bytes(),
    }
)
"""The serde of a key or a value of this type of columns."""


def declared_key(node: Node) -> EngineSerde | None:
    """The serde of the keys: the node's, or that of a plain type that a function declares."""
    declared = node.key_type
    if node.key is not None or declared is None or declared.dtype is None:
        return node.key
    return _BY_COLUMN.get(str(declared.dtype))


def declared_value(node: Node) -> EngineSerde | None:
    """The serde of the values: the node's, or that of the type that a function declares; fields are JSON."""
    declared = node.value_type
    if node.value is not None or declared is None:
        return node.value
    if declared.dtype is None or isinstance(declared.dtype, pl.Struct | pl.List):
        return declared
    return _BY_COLUMN.get(str(declared.dtype))


def typed(function: Function, operator: str, role: str, inputs: Inputs, **others: pl.DataType) -> Function:
    """The function with the serde of its result. ``others``: more columns that an expression may read.

    Raises CS-113 for an expression over values without a declared type, CS-114 for one that does not fit the type,
    CS-115 for one that does not give one value for each record.
    """
    if function.expression is None:
        return replace(function, returns=_annotated(function))
    key = next(iter(inputs.values()))
    types: dict[str, pl.DataType | None] = {name: value_dtype(node) for name, node in inputs.items()}
    what = f"the {role} of {operator}"
    _check_declared(what, operator, function, key, inputs)
    fields = types.get(WHOLE)
    free = isinstance(fields, pl.Struct) and {field.name for field in fields.fields}
    types.update({name: dtype for name, dtype in others.items() if not free or name not in free})
    try:
        dtype = result_type(function, key_dtype(key), types)
    except ProcessingError as error:
        raise _wrong_form(error.what, operator, error.next) from None
    except (pl.exceptions.ColumnNotFoundError, pl.exceptions.StructFieldNotFoundError) as error:
        raise _no_field(what, operator, function, types, str(error)) from None
    except (pl.exceptions.SchemaError, pl.exceptions.InvalidOperationError) as error:
        raise _misfit(what, operator, str(error)) from None
    except (Exception, pl.exceptions.PanicException):  # a function in `map_batches` may raise anything
        return function  # without rows it may fail, and with rows not
    return replace(function, returns=typed_as(dtype))


def check_fits(operator: str, declared: EngineSerde | None, given: EngineSerde | None) -> None:
    """Refuses (CS-115) a serde that cannot write the declared type of the values."""
    if not isinstance(declared, SchemaJson) or given is None:  # an annotation may be wrong
        return
    try:
        calls.encode_series(given, pl.Series([], dtype=declared.dtype))
    except SerdeError as error:
        if error.code not in _ABOUT_TYPES:
            return  # a custom serde may fail without rows
        what = f"the values of {operator} do not fit the serde {given.name}: {error.what}"
        raise refuse("CS-115", what, error.next, **caller_location(operator)) from None


def named_field(name: str, operator: str, role: str, inputs: Inputs) -> Function:
    """``foreign_key="customer_id"``: an expression where the type is declared, else a look-up of the field.

    Raises CS-114 for a field that the declared type does not have.
    """
    node = inputs[WHOLE]
    if isinstance(value_dtype(node), pl.Struct) and name not in ("key", WHOLE):
        return typed(Function(expression=pl.col(name), with_key=True, role=role), operator, role, inputs)
    known = _attributes(getattr(node.value or node.value_type, "type", None))
    if known is None and value_dtype(node) is not None and not isinstance(value_dtype(node), pl.Struct):
        known = ()  # text, a number or a list
    if known is not None and name not in known:
        raise _missing(f"the {role} of {operator}", operator, name, sorted(known))
    return Function(call=FieldOf(name), role=role)


def _attributes(kind: Any) -> Collection[str] | None:
    """The names of the fields of a class; None if they are unknown."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    names: Collection[str] | None = getattr(kind, "__struct_fields__", None)
    return names


def check_refers(operator: str, role: str, function: Function, left: Node, right: Node) -> None:
    """Refuses (CS-134) a key that a function takes from ``left``, of a type that the keys of ``right`` never have."""
    dtype = (None if function.returns is None else function.returns.dtype) or _hinted(function, left)
    if dtype is not None and right.key is not None:
        check_key_type(operator, role, dtype, right.key, right)


def check_key_type(operator: str, role: str, dtype: pl.DataType, key: EngineSerde, right: Node) -> None:
    """Refuses (CS-134) keys of a type that ``key``, the serde of the keys of ``right``, cannot write."""
    try:
        calls.encode_series(key, pl.Series([], dtype=dtype))
    except SerdeError as error:
        if error.code not in _ABOUT_TYPES:
            return  # a custom serde may fail without rows
        raise refuse(
            "CS-134",
            f"the {role} of {operator} is {dtype}, and the keys of {right.name} are {key.name}: "
            "no row would find a partner",
            f"declare both alike, the keys of {right.name} by key=…; or convert it: in an expression by "
            "cast(…), or in a function",
            **caller_location(operator),
        ) from None


def _hinted(function: Function, left: Node) -> pl.DataType | None:
    """The type that a callable's annotation declares for its result, or a class for its field; None: unknown."""
    call: Any = function.call
    try:
        if isinstance(call, FieldOf):
            hint = typing.get_type_hints(getattr(left.value or left.value_type, "type", None))[call.name]
        else:
            hint = typing.get_type_hints(getattr(call, "__wrapped__", call))["return"]
    except Exception:  # annotations are for readers; one that is not a type is no fault
        return None
    kinds = [part for part in typing.get_args(hint) or (hint,) if part is not type(None)]
    serde = _BY_TYPE.get(kinds[0]) if len(kinds) == 1 and isinstance(kinds[0], type) else None
    return None if serde is None else serde.dtype


def checked_predicate(function: Function, operator: str) -> Function:
    """The predicate. Raises CS-115 for an expression that is not Boolean."""
    dtype = None if function.returns is None else function.returns.dtype
    if function.expression is not None and dtype not in (None, pl.Boolean, pl.Null):
        step = "compare or cast inside the expression, for instance pl.col('price') > 10"
        raise _wrong_form(f"the predicate of {operator} gives {dtype}, not Boolean", operator, step)
    return function


def type_of_items(function: Function, operator: str) -> EngineSerde | None:
    """The serde of the items of the lists that an expression gives. Raises CS-115 for other results."""
    dtype = None if function.returns is None else function.returns.dtype
    if function.expression is None or dtype is None:
        return None
    if not isinstance(dtype, pl.List | pl.Null):
        step = "let it give a list for each record, for instance pl.col('items') or pl.concat_list('a', 'b')"
        raise _wrong_form(f"the mapper of {operator} gives {dtype}, not lists", operator, step)
    return typed_as(dtype.inner) if isinstance(dtype, pl.List) else None  # type: ignore[arg-type]


def _wrong_form(what: str, operator: str, step: str | None) -> CrossStreamError:
    return refuse("CS-115", what, step, **caller_location(operator))


def _check_declared(what: str, operator: str, function: Function, key: Node, inputs: Inputs) -> None:
    uses = projection_of(function)
    if "key" in uses and key_dtype(key) is None:
        raise _undeclared(what, operator, f"the keys of {key.name}", "key=str")
    for name, node in inputs.items():
        fields, serde = _read(function, name), node.value or node.value_type
        if fields is not None and value_dtype(node) is None:
            columns = ", ".join(f'"{field}": pl.…' for field in sorted(fields)) or '"id": pl.Int64, …'
            raise _undeclared(what, operator, f"the values of {node.name}", f"value={{{columns}}}")
        if fields is not None and serde is not None and serde.dtype is None:
            _check_columns(what, operator, serde, fields)


def _check_columns(what: str, operator: str, serde: EngineSerde, fields: Collection[str]) -> None:
    """Refuses (CS-114) ``fields`` without a column form; no fields: the whole value."""
    try:
        calls.decode_series(serde, pa.array([], pa.large_binary()), fields or None)
    except SerdeError as error:
        step = f"read other fields; or pass a callable: {error.next}"
        raise refuse("CS-114", f"{what}: {error.what}", step, **caller_location(operator)) from None


def _read(function: Function, name: str) -> frozenset[str] | None:
    """The fields of an input that an expression names; empty: the whole input; None: it does not read the input."""
    uses = projection_of(function)
    if name == WHOLE:
        whole = WHOLE in uses or ALL in uses
        names = frozenset() if whole else frozenset(uses.keys() - {"key"})
        return names if names or whole else None
    if name not in uses and ALL not in uses:
        return None
    return fields_of(function, name) or frozenset()


def _undeclared(what: str, operator: str, where: str, declaration: str) -> CrossStreamError:
    return refuse(
        "CS-113",
        f"{what} is an expression, but the type of {where} is not declared",
        f"declare it where they come from, by a class (value=Order) or a schema ({declaration}); after a"
        " callable, by its annotation (-> Order) or repartition(value=…); or pass a callable",
        **caller_location(operator),
    )


def _no_field(
    what: str, operator: str, function: Function, types: Mapping[str, pl.DataType | None], reason: str
) -> CrossStreamError:
    known = sorted(
        {field.name for dtype in types.values() if isinstance(dtype, pl.Struct) for field in dtype.fields}
    )
    read = {
        *(projection_of(function).keys() - {"key", WHOLE, ALL, *types}),
        *(field for name in types if name != WHOLE for field in fields_of(function, name) or ()),
    }
    missing = sorted(name for name in read if name not in known) or [reason.splitlines()[0]]
    return _missing(what, operator, missing[0], known)


def _missing(what: str, operator: str, name: str, known: Sequence[str]) -> CrossStreamError:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return refuse(
        "CS-114",
        f"{what} reads the field {name!r}, which the declared type does not have",
        (
            f"did you mean {' or '.join(map(repr, close))}?"
            if close
            else f"its fields are: {', '.join(known) or 'none, it is one value'}"
        ),
        **caller_location(operator),
    )


def _misfit(what: str, operator: str, reason: str) -> CrossStreamError:
    return refuse(
        "CS-114",
        f"{what} does not fit the declared type: {reason.splitlines()[0]}",
        "change the expression, or the declared type",
        **caller_location(operator),
    )


def _annotated(function: Function) -> EngineSerde | None:
    """The serde of a callable's return annotation, where plain JSON would change the value."""
    call: Any = function.call
    try:
        hint = typing.get_type_hints(getattr(call, "__wrapped__", call)).get("return")
        return None if _is_plain(hint) else known(serdes.json(hint))
    except Exception:  # annotations are for readers; one that is not a type is no fault
        return None


def _is_plain(hint: Any) -> bool:
    """Whether plain JSON says the same: ``dict[str, Any]``, ``list[int] | None``."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN_HINTS or isinstance(hint, typing.TypeVar) or origin is typing.Literal:
        return True
    if origin not in _PLAIN_ORIGINS or (origin is dict and parts[0] not in (str, Any)):
        return False
    return all(map(_is_plain, parts))
