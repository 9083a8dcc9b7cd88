"""Joins without a joiner: the result has the fields of both sides.

Where both types are declared, the result is an expression with a declared type, and no Python runs for any record.
Otherwise a callable merges dicts; it finds fields of the same name only when it meets them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
import polars as pl

from crossstream.api.checks import function_of
from crossstream.api.types import Inputs, typed
from crossstream.columns.field_of import FieldOf
from crossstream.columns.functions import Function
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.graph.nodes import ForeignKeyKind, Node
from crossstream.serdes.json.plain import UntypedJson


@dataclass(frozen=True, slots=True)
class prefixed:
    """For ``on_merge``: every field of the other side gets this prefix in the result of the join.

    Orders that are joined by ``customer_id`` with customers that have ``id`` have ``customer_id`` once with the prefix
    ``customer_``: both fields are the same key.

    >>> import crossstream as cs
    >>> builder = cs.StreamsBuilder()
    >>> orders, customers = builder.table("orders"), builder.table("customers")
    >>> orders.join(customers, foreign_key="customer", on_merge=cs.prefixed("customer_"))
    <KTable orders.join(customers)>
    """

    prefix: str

    def __post_init__(self) -> None:
        given: object = self.prefix
        if not isinstance(given, str) or not given:
            step = 'write the beginning of the new names: cs.prefixed("customer_")'
            raise refuse("CS-101", f"prefixed({self.prefix!r}) is not a prefix", step, **caller_location())


OnMerge: TypeAlias = Literal["raise", "keep-left", "keep-right"] | prefixed
"""What happens to fields that both sides of a join without a joiner have. "raise" refuses them."""

_NAMES = ("raise", "keep-left", "keep-right")


def joiner_of(
    operator: str,
    kind: ForeignKeyKind,
    joiner: Any,
    on_merge: OnMerge,
    sides: Inputs,
    *,
    key: Function | None = None,
    values: tuple[str, ...] | None = None,
) -> Function:
    """The joiner of two sides, checked; without one, a function that merges their fields.

    ``key``: what takes the key of the other side from the left value.
    Raises as `function_of`; CS-101 for another ``on_merge``, CS-136 for one beside a joiner, for values without
    fields, and for fields that both sides have.
    """
    given: object = on_merge
    if not (isinstance(given, prefixed) or (isinstance(given, str) and given in _NAMES)):
        raise refuse(
            "CS-101",
            f"{operator}(on_merge={on_merge!r}) is not one of the choices",
            f'choose {", ".join(map(repr, _NAMES))}, or cs.prefixed("…_")',
            **caller_location(operator),
        )
    if joiner is not None:
        if on_merge != "raise":
            what = f"{operator} has a joiner, which makes the result, and on_merge, which is for joins without one"
            raise _error(operator, what, "keep one of them")
        if isinstance(joiner, str):
            raise refuse(
                "CS-104",
                f"the joiner of {operator} is {joiner!r}, not a function",
                f"name the argument: foreign_key={joiner!r} or key_selector={joiner!r}",
                **caller_location(operator),
            )
        return function_of(operator, "joiner", joiner, sides, values=values)
    left, right = sides.values()
    fields = _fields(operator, left), _fields(operator, right)
    if None in fields:
        return Function(call=Merge(on_merge, _field_of(key)), role="joiner", returns=UntypedJson())
    expression = _merged(operator, kind, fields[0] or {}, fields[1] or {}, on_merge, right, _field_of(key))
    return typed(Function(expression=expression, with_key=True, role="joiner"), operator, "joiner", sides)


def many_joiner_of(operator: str, joiner: Any, sides: Inputs) -> Function:
    """The joiner of a join with several tables; without one, ``{**left, "customer": {…}, "product": {…}}``."""
    if joiner is not None:
        return function_of(operator, "joiner", joiner, sides, values=("left", "rows"))
    types = {name: _fields(operator, node) for name, node in sides.items()}
    if None in types.values():
        return Function(call=merge_rows, role="joiner", returns=UntypedJson())
    rights = [pl.col(name) for name in sides if name != "left"]
    kept = [_field("left", name) for name in types["left"] or () if name not in sides]
    expression = pl.struct(*kept, *rights)
    return typed(Function(expression=expression, with_key=True, role="joiner"), operator, "joiner", sides)


ANY_FIELD = ""
"""Stands for the field that a function of the user reads; which one is not known."""


def _field_of(key: Function | None) -> str | None:
    """The field of the left value that is the key of the other side; None: there is no such field."""
    if key is None:
        return None
    if isinstance(key.call, FieldOf):
        return key.call.name
    if key.expression is None:
        return ANY_FIELD
    names = key.expression.meta.root_names()
    return names[0] if len(names) == 1 and key.expression.meta.eq(pl.col(names[0])) else None


def _fields(operator: str, node: Node) -> Mapping[str, pl.DataType] | None:
    """The declared fields of values; None if they are not declared, or not all of them have columns."""
    serde = node.value or node.value_type
    dtype = None if serde is None else serde.dtype
    if isinstance(dtype, pl.Struct):
        return {field.name: field.dtype for field in dtype.fields}  # type: ignore[misc]
    if dtype is not None and serde is not None:
        what = f"{operator} without a joiner merges fields, and the values of {node.name} are {serde.name}"
        others = "rows" if operator.endswith("_many") else "right"
        raise _error(operator, what, f"pass a joiner, such as lambda left, {others}: …")
    return None


def _merged(
    operator: str,
    kind: ForeignKeyKind,
    left: Mapping[str, pl.DataType],
    right: Mapping[str, pl.DataType],
    on_merge: OnMerge,
    other: Node,
    key: str | None,
) -> pl.Expr:
    prefix = on_merge.prefix if isinstance(on_merge, prefixed) else ""
    names = {prefix + name: name for name in right}
    both = [name for name in left if name in names]
    is_key = both == [key] and _are_one(left[both[0]], right[names[both[0]]])
    if both and not (on_merge in ("keep-left", "keep-right") or (prefix and is_key)):
        shown = ", ".join(map(repr, both))
        what = f"{operator} without a joiner would give {shown} twice: both sides have {'them' if both[1:] else 'it'}"
        first = other.name.partition(".")[0]
        step = f'write on_merge="keep-left", "keep-right" or cs.prefixed("{first}_"); or pass a joiner'
        if prefix:
            named = f", or name the foreign key by its field: {both[0]!r}" if key == ANY_FIELD else ""
            step = f"choose another prefix{named}"
        raise _error(operator, what, step)
    columns = []
    for name in left:
        if name not in both:
            columns.append(_field("left", name))
            continue
        first, second = ("right", "left") if on_merge == "keep-right" else ("left", "right")
        missing = kind in ("right", "outer") if first == "left" else kind in ("left", "outer")
        mine, theirs = left[name], right[names[name]]
        if missing and mine != theirs:
            what = f"{operator} without a joiner: {name!r} is {mine} on one side and {theirs} on the other"
            raise _error(operator, what, 'write on_merge=cs.prefixed("…_"), or pass a joiner')
        sides = {"left": _field("left", name), "right": _field("right", names[name])}
        kept = sides[first]
        if missing:
            kept = pl.when(pl.col(first).is_null()).then(sides[second]).otherwise(kept)
        columns.append(kept.alias(name))
    columns += [_field("right", name).alias(new) for new, name in names.items() if new not in both]
    return pl.struct(*columns)


def _are_one(kind: pl.DataType, other: pl.DataType) -> bool:
    """Whether values of both types may be the same key."""
    return kind == other or (kind.is_integer() and other.is_integer())


def _field(side: str, name: str) -> pl.Expr:
    return pl.col(side).struct.field(name)


@dataclass(frozen=True, slots=True)
class Merge:
    """Merges two values of undeclared type; a side that is missing has no fields. ``key``: as of `_field_of`."""

    on_merge: OnMerge
    key: str | None = None

    def __call__(self, left: Any, right: Any) -> dict[str, Any]:
        mine, theirs = fields_of_value(left), fields_of_value(right)
        if isinstance(self.on_merge, prefixed):
            theirs = {self.on_merge.prefix + name: value for name, value in theirs.items()}
        both = [name for name in mine if name in theirs]
        if self.on_merge == "keep-left":
            return {**mine, **theirs, **{name: mine[name] for name in both}}
        if self._is_one_key(both) and mine[both[0]] == theirs[both[0]]:
            return {**mine, **{name: value for name, value in theirs.items() if name not in mine}}
        if both and self.on_merge != "keep-right":
            raise ValueError(
                f"both sides have the field {', '.join(map(repr, both))}: "
                'write on_merge="keep-left", "keep-right" or cs.prefixed("…_"), or pass a joiner'
            )
        return {**mine, **theirs}

    def _is_one_key(self, both: list[str]) -> bool:
        """Whether the only field of both sides is the key by which they are joined."""
        return isinstance(self.on_merge, prefixed) and len(both) == 1 and self.key in (both[0], ANY_FIELD)


def merge_rows(left: Any, rows: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the left value, and each row under its name."""
    return {**fields_of_value(left), **rows}


def fields_of_value(value: Any) -> dict[str, Any]:
    """The fields of a dict or an object by name; none of None. Raises TypeError for a value without fields."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    if (
        dataclasses.is_dataclass(value)
        or isinstance(value, msgspec.Struct)
        or hasattr(value, "__attrs_attrs__")
    ):
        found: dict[str, Any] = msgspec.to_builtins(value)
        return found
    raise TypeError(
        f"a join without a joiner merges fields, and {type(value).__name__} has none: pass a joiner"
    )


def _error(operator: str, what: str, step: str) -> CrossStreamError:
    return refuse("CS-136", what, step, **caller_location(operator))
