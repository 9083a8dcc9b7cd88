"""What `KStream` and `KTable` share: a node of a draft, and how a child is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from crossstream.dsl.checks import check_option
from crossstream.dsl.draft import Draft
from crossstream.dsl.options import Named
from crossstream.errors import TopologyError
from crossstream.topology.graph import JoinKind, Node
from crossstream.topology.location import here

N = TypeVar("N", bound=Node)

OPERATORS: Mapping[JoinKind, str] = MappingProxyType(
    {"inner": "join", "left": "left_join", "outer": "outer_join"}
)
"""The methods that make the kinds of joins."""


def given_name(operator: str, named: Named | None) -> str | None:
    """The name in ``named``; CS-105 if it is something else."""
    option = check_option(operator, "named", named, Named)
    return None if option is None else option.name


def child(
    draft: Draft, kind: type[N], path: str, parent: Node, name: str | None = None, /, **attributes: Any
) -> N:
    """A new node below ``parent``, with the parent's serdes and shape unless ``attributes`` say otherwise."""
    kept = {"parents": (parent.name,), "shape": parent.shape, "key": parent.key, "value": parent.value}
    return draft.add(kind, path, name, **{**kept, **attributes})


def check_same_builder(operator: str, mine: Draft, other: Draft) -> None:
    """CS-130: operators connect only what one builder made."""
    if mine is not other:
        raise TopologyError(
            f"the two inputs of {operator} come from different builders",
            code="CS-130",
            where=here(operator),
            next="make both with one StreamsBuilder",
        )
