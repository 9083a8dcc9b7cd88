"""The operators of a topology as plain data, with what decides their rows (decision 0049).

Every field of a node is noted, so that a new operator needs no line here. What a node says beside: which of its
settings decide nothing that is kept (`Node.settings_aside`), and what its sinks' rows are made of.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.columns.functions import Function
from crossstream.graph.callables import defined_at, digest, is_plain, noted_function, plain_text
from crossstream.graph.node import Graph, Node
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.description import as_data
from crossstream.storage.noted import NotedFunction, NotedNode

_OF_ALL = frozenset(one.name for one in fields(Node)) - {"store"}
"""The fields that every node has; they are noted by their own names."""
_OF_STORE = ("history_retention", "retention", "ttl", "clock")
"""What is kept of rows, and for how long."""

Same = Mapping[tuple[str, str], str]
"""Codes of functions that count as others, by operator and role."""


def noted_nodes(
    topology: Graph, same: Same | None = None, changed: Iterable[str] = ()
) -> dict[str, NotedNode]:
    """The operators by name, parents first.

    ``same``: functions that count as other ones, by operator and role: their codes. ``changed``: operators that count
    as changed, whatever they say.
    """
    found: dict[str, NotedNode] = {}
    marked = set(changed)
    for node in topology:
        settings, functions = noted_settings(node)
        made = NotedNode(
            name=node.name,
            kind=node.public_name,
            shape=node.shape,
            parents=node.parents,
            topics=node.topics,
            is_named=node.is_named,
            store=(node.queryable_name or "") if node.store is not None else "",
            key=serde_text(node.key or node.key_type),
            value=serde_text(node.value or node.value_type),
            settings=settings,
            functions=functions,
            words=dict(node.words),
            **_sink_rows(topology, node),
        )
        meaning = meaning_of(made, node, [found[name].meaning for name in node.parents], same or {})
        if node.name in marked:
            meaning = digest([meaning, "changed"])
        found[node.name] = msgspec.structs.replace(made, meaning=meaning)
    return found


def meaning_of(noted: NotedNode, node: Node, above: Iterable[str], same: Same) -> str:
    """A hash over what decides the rows of an operator. ``above``: the meanings of its parents."""
    own = [noted.kind, noted.shape, noted.key, noted.value]
    return digest([*own, *_decided(noted, node.settings_aside, same), "from", *above])


def inner_meaning(noted: NotedNode, node: Node, above: Iterable[str], same: Same) -> str:
    """A hash over what decides what an operator keeps for itself, which may be less than what decides its results."""
    if not node.result_settings:
        return meaning_of(noted, node, above, same)
    aside = node.settings_aside | node.result_settings
    kind = "" if "kind" in aside else noted.kind  # joins of several kinds keep the same
    return digest([kind, noted.shape, *_decided(noted, aside, same), "from", *above])


def _decided(noted: NotedNode, aside: frozenset[str], same: Same) -> Iterable[str]:
    """The settings and functions that are not ``aside``, as text."""
    yield from (f"{name}={text}" for name, text in sorted(noted.settings.items()) if name not in aside)
    for role, function in sorted(noted.functions.items()):
        if base_of(role) not in aside:
            yield f"{role}={same.get((noted.name, role), function.code) or function.text}"


def base_of(role: str) -> str:
    """The field that a function is in.

    >>> base_of("foreign_keys[1]"), base_of("columns.fields[0]")
    ('foreign_keys', 'columns')
    """
    return re.split(r"[.\[]", role, maxsplit=1)[0]


def noted_settings(node: Node) -> tuple[dict[str, str], dict[str, NotedFunction]]:
    """The fields of a node that it has beside those of all: plain ones as text, and functions."""
    settings: dict[str, str] = {}
    functions: dict[str, NotedFunction] = {}
    for one in fields(node):
        if one.name in _OF_ALL or not one.repr:  # what is not shown may hold secrets
            continue
        value = getattr(node, one.name)
        if is_plain(value) and one.default is not MISSING and is_plain(one.default) and value == one.default:
            continue
        if one.name in ("store", "other_store"):
            settings.update(_of_store(one.name, value))
        else:
            names = node.part_names.get(one.name)
            text = _text(
                value if names is None else dict(zip(names, value, strict=True)), one.name, functions
            )
            if text not in ("", "None"):
                settings[one.name] = text
    return settings, functions


def _of_store(name: str, spec: Any) -> Iterable[tuple[str, str]]:
    for part in _OF_STORE:
        value = getattr(spec, part, None)
        if value not in (None, "stream"):
            yield (part if name == "store" else f"{name}.{part}"), str(value)


def _text(value: Any, role: str, functions: dict[str, NotedFunction]) -> str:
    """A setting as text; the functions in it are put beside, under the role that they have."""
    if isinstance(value, Function | pl.Expr):
        functions[role] = noted_function(value)
        return ""
    if is_plain(value) and not isinstance(value, tuple):
        return str(value)
    if isinstance(value, EngineSerde):
        return serde_text(value)
    if isinstance(value, re.Pattern):
        return f"{value.pattern} {value.flags}"
    if isinstance(value, datetime | timedelta):
        return str(value)
    if isinstance(value, pl.DataType) or (isinstance(value, type) and issubclass(value, pl.DataType)):
        return json.dumps(as_data(value))
    if isinstance(value, pa.DataType | pa.Schema):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        shown = (one for one in fields(value) if one.repr and one.metadata.get("noted", True))
        parts = ((one.name, getattr(value, one.name)) for one in shown)
        return _joined(((f"{name}=", _text(one, f"{role}.{name}", functions)) for name, one in parts), "()")
    if isinstance(value, Mapping):
        return _joined(
            ((f"{key}: ", _text(one, f"{role}.{key}", functions)) for key, one in sorted(value.items())), "{}"
        )
    if isinstance(value, frozenset | set):
        return f"{{{', '.join(sorted(map(str, value)))}}}"
    if isinstance(value, tuple | list):
        return _joined((("", _text(one, f"{role}[{n}]", functions)) for n, one in enumerate(value)), "()")
    if callable(value):  # also a class whose objects are processors
        functions[role] = noted_function(value)
        return ""
    return defined_at(value) if isinstance(value, object) and not is_plain(value) else plain_text(value)


def _joined(parts: Iterable[tuple[str, str]], around: str) -> str:
    shown = [f"{name}{text}" for name, text in parts if text not in ("", "None")]
    return f"{around[0]}{', '.join(shown)}{around[1]}" if shown else ""


def serde_text(serde: EngineSerde | None) -> str:
    """A serde as text, with the fields of its types: a field that is new, renamed or of another type shows."""
    if serde is None:
        return ""
    said = _without_places(json.loads(msgspec.json.encode(serde.described())))
    classes = [type_text(one) for one in serde.classes if isinstance(one, type)]
    return json.dumps(said if not classes else {**said, "fields": classes}, sort_keys=True)


def _without_places(said: dict[str, Any]) -> dict[str, Any]:
    """A description without the registry that is asked: where a schema comes from does not say what it is."""
    kept = {name: value for name, value in said.items() if name != "registry"}
    return kept if "sides" not in kept else {**kept, "sides": [_without_places(one) for one in kept["sides"]]}


def type_text(kind: type) -> str:
    """A class with its fields and their types, as text.

    >>> import dataclasses
    >>> type_text(dataclasses.make_dataclass("Order", [("id", str), ("amount", int | None, None)]))
    'Order(id: str, amount: int | None = None)'
    """
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except Exception:  # names that are nowhere: what a class says of itself may be anything
        hints = dict(getattr(kind, "__annotations__", {}))
    parts = [f"{name}: {_hint(hint)}{_default(kind, name)}" for name, hint in hints.items()]
    return f"{kind.__qualname__.rpartition('.')[2]}({', '.join(parts)})"


def _hint(hint: Any) -> str:
    """An annotation, without the modules: a script has another one when it is imported."""
    text = hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", re.sub(r"[\w.]*<locals>\.", "", text))


def _default(kind: type, name: str) -> str:
    for one in getattr(kind, "__dataclass_fields__", {}).values():
        if one.name == name:
            return f" = {plain_text_of(one.default)}" if is_plain(one.default) else ""
    names, defaults = getattr(kind, "__struct_fields__", ()), getattr(kind, "__struct_defaults__", ())
    known = dict(zip(reversed(names), reversed(defaults), strict=False))
    if name in known and is_plain(known[name]):
        return f" = {plain_text_of(known[name])}"
    return ""


def plain_text_of(value: Any) -> str:
    """A default, as it is written in code."""
    return repr(value) if not isinstance(value, frozenset) else plain_text(value)


def _sink_rows(topology: Graph, node: Node) -> dict[str, Any]:
    """Of a sink: the table whose rows it writes, each under its own key, and whether they are unchanged."""
    if node.shape != "none" or not node.writes_rows:
        return {}
    name, unchanged = node.parents[0], True
    while True:
        above = topology[name]
        if above.shape != "stream":
            return {"rows_of": name, "unchanged": unchanged}
        if not above.keeps_place or above.may_drop or above.multiplies or len(above.parents) != 1:
            return {}
        unchanged = unchanged and above.forwards_values
        name = above.parents[0]
