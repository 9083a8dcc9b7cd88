"""What `KStream` and `KTable` share: a node of a draft, and how a child is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from crossstream.algebra.functions import Function
from crossstream.dsl.checks import check_option
from crossstream.dsl.draft import Draft
from crossstream.dsl.options import Materialized, Named
from crossstream.dsl.serde_rules import needed_key, stored_value
from crossstream.dsl.typed import check_fits
from crossstream.errors import TopologyError
from crossstream.serdes import Serde
from crossstream.topology.graph import JoinKind, Node, StoreSpec
from crossstream.topology.location import here

N = TypeVar("N", bound=Node)

OPERATORS: Mapping[JoinKind, str] = MappingProxyType(
    {"inner": "join", "left": "left_join", "outer": "outer_join"}
)
"""The methods that make the kinds of joins."""

_NOT_YET = MappingProxyType({"KStream": ("group_by", "group_by_key"), "KTable": ("group_by", "suppress")})
"""Methods of Kafka Streams that come with aggregations."""


def no_attribute(handle: object, name: str) -> NoReturn:
    """The ``__getattr__`` of handles: what there will be says so, what there is none of is as Python tells it.

    A user's subclass says the same as the class of ours that it is made from.
    """
    awaited = any(name in _NOT_YET.get(kind.__name__, ()) for kind in type(handle).__mro__)
    what = f"no {name} yet: see Status in README.md" if awaited else f"no attribute {name!r}"
    raise AttributeError(f"{type(handle).__name__!r} object has {what}", name=name, obj=handle)


def given_name(operator: str, named: Named | None, **others: type[object]) -> str | None:
    """The name in ``named``; CS-105 if it is something else. ``others``: as for `check_option`."""
    option = check_option(operator, "named", named, Named, **others)
    return None if option is None else option.name


def misplaced_name(operator: str, place: str) -> TopologyError:
    """CS-105: a `Named` in the place of something else, as in Java's overloads."""
    return TopologyError(
        f"{place} of {operator} is a Named",
        code="CS-105",
        where=here(operator),
        next='name the argument: named=Named("…")',
    )


def child(
    draft: Draft, kind: type[N], path: str, parent: Node, name: str | None = None, /, **attributes: Any
) -> N:
    """A new node below ``parent``, with the parent's serdes and shape unless ``attributes`` say otherwise."""
    kept: dict[str, Any] = {"parents": (parent.name,), "shape": parent.shape}
    for part in ("key", "value"):
        kept[part], kept[f"{part}_type"] = getattr(parent, part), getattr(parent, f"{part}_type")
    made = {**kept, **attributes}
    check_fits(path.partition("(")[0], made["value_type"], made["value"])
    return draft.add(kind, path, name, **made)


def table_result(
    operator: str,
    left: Node,
    joiner: Function,
    materialized: Materialized | None,
    either: Serde | None = None,
) -> dict[str, Any]:
    """Joiner, serdes and store of a join of tables: keyed like the left side, or by ``either``."""
    option = check_option(operator, "materialized", materialized, Materialized)
    asked = option or Materialized()
    key = needed_key(operator, either or left.key, asked.key, "materialized=Materialized(key=…)")
    made = made_value(joiner, asked, left)
    store: StoreSpec | None = None if option is None else option.spec(key, made["value"])
    return {"joiner": returning(joiner, made["value"]), "key": key, "store": store, **made}


def made_value(function: Function, asked: Materialized, like: Node) -> dict[str, Any]:
    """The serde of the values that a function makes for a table, and of their type. ``like``: the (left) input."""
    value = stored_value(asked.value, function.returns, queryable=asked.store is not None, like=like.value)
    return {"value": value, "value_type": function.returns}


def returning(function: Function, value: Serde | None) -> Function:
    """The function, whose results have the type of the serde, if that declares one."""
    return function if value is None or value.dtype is None else replace(function, returns=value)


def check_same_builder(operator: str, mine: Draft, other: Draft) -> None:
    """CS-130: operators connect only what one builder made."""
    if mine is not other:
        raise TopologyError(
            f"the two inputs of {operator} come from different builders",
            code="CS-130",
            where=here(operator),
            next="make both with one StreamsBuilder",
        )
