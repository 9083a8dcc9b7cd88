"""Stores by their public names, and the methods of the driver that ask for those of each kind."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from crossstream.errors import StateError
from crossstream.topology.plan import Plan, StoreDef

Kind = Literal["key-value", "versioned", "window"]

_ASKED_BY = MappingProxyType(
    {
        "key-value": ("a key-value store", "get_key_value_store"),
        "versioned": ("a versioned store", "get_versioned_store"),
        "window": ("a store of records by time", "get_window_store"),
    }
)
"""What stores of each kind are called in messages, and the method that asks for them."""


def store_named(plan: Plan, name: str, kind: Kind) -> StoreDef:
    """Raises `StateError` CS-710 if there is none, or one of another kind."""
    found = next((store for store in plan.stores.values() if store.public == name), None)
    if found is None:
        public = sorted(store.public for store in plan.stores.values() if store.public is not None)
        raise StateError(
            f"the topology has no store named {name!r}",
            code="CS-710",
            where={"store": name},
            next=f"name it, with Materialized or StreamJoined; its stores are: {', '.join(public) or 'none'}",
        )
    if found.layout.kind != kind:
        (_, asked), (other, method) = _ASKED_BY[kind], _ASKED_BY[found.layout.kind]
        raise StateError(
            f"{asked} was asked for {name!r}, which is {other}",
            code="CS-710",
            where={"store": name},
            next=f"ask {method}({name!r})",
        )
    return found
