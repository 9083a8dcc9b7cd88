"""What a state folder notes of the topology that it belongs to: plain data, by which a changed one is compared."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

NOT_NOTED: Mapping[str, bool] = MappingProxyType({"noted": False})
"""Metadata of a field of some settings that says where or when something was read, and not what."""


class NotedFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function of the user. ``text``: an expression as it is written down, or where a callable is defined.

    ``code``: a hash. Of an expression it says all there is, as long as the version of Polars is the same. Of a callable
    it is one of its code, which is a hint and no proof; empty where there is no code, as of ``str.upper``.
    """

    text: str
    code: str = ""
    is_expression: bool = False


class NotedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator. ``kind``: what users call it. ``is_named``: its name is the user's own.

    ``settings``: what else there is to say of it, by name, as text. ``functions``: by role. ``words``: what it
    computes, for people, by name. ``meaning``: a hash over all that decides its rows, down to the topics; not its name,
    nor the line of code. ``key``, ``value``: its serdes, with their types, as text. ``rows_of``: of a sink the table
    whose rows it writes, each under its key; "": its records are events. ``unchanged``: it writes these rows as they
    are in the table.
    """

    name: str
    kind: str
    shape: str
    parents: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    is_named: bool = False
    store: str = ""
    key: str = ""
    value: str = ""
    settings: dict[str, str] = {}
    functions: dict[str, NotedFunction] = {}
    meaning: str = ""
    words: dict[str, str] = {}
    rows_of: str = ""
    unchanged: bool = False


class NotedStore(msgspec.Struct, frozen=True, omit_defaults=True):
    """A store of the plan. ``node``: the operator that keeps it; ``part``: which of its stores, "" for its rows.

    ``holds``: the table whose rows it has, which may be a parent of the operator; "" for none. ``meaning``: a hash over
    what it is filled with, its layout and serdes. ``kind``: of its layout; ``key``, ``value``: its serdes, as text.
    """

    node: str
    part: str = ""
    holds: str = ""
    meaning: str = ""
    kind: str = ""
    key: str = ""
    value: str = ""


class NotedTopology(msgspec.Struct, frozen=True, omit_defaults=True):
    """Operators, parents first, and the stores of the plan by name.

    ``python``, ``polars``: the versions that hashes of callables and of expressions are of. ``gone``: sinks that the
    application had before a change and has no more: what they wrote is still in their places.
    """

    nodes: tuple[NotedNode, ...] = ()
    stores: dict[str, NotedStore] = {}
    python: str = ""
    polars: str = ""
    gone: tuple[NotedNode, ...] = ()

    def node(self, name: str) -> NotedNode:
        """The operator of this name. Raises `KeyError`."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)
