"""What happens in the marketplace, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Topic = Literal["products", "merchants"]


@dataclass(frozen=True, slots=True)
class Change:
    """A record: the new row of ``key``, or None where it is deleted."""

    topic: Topic
    key: str
    value: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Step:
    """Some changes, and what to look at in the result."""

    title: str
    remark: str
    changes: tuple[Change, ...]


def _merchant(key: str, display_name: str) -> Change:
    return Change("merchants", key, {"display_name": display_name})


def _product(key: str, price: float, merchant: str) -> Change:
    return Change("products", key, {"name": key.capitalize(), "price": price, "merchant_id": merchant})


STEPS = (
    Step(
        "Merchants and products arrive",
        "The teapot names a merchant who is not there: an inner join leaves it out.",
        (
            _merchant("m1", "Cozy Creations"),
            _merchant("m2", "Northern Knits"),
            _merchant("m3", "Clay & Co"),
            _product("sweater", 15.0, "m1"),
            _product("scarf", 9.5, "m1"),
            _product("mittens", 7.0, "m2"),
            _product("mug", 12.0, "m3"),
            _product("teapot", 34.0, "m4"),
        ),
    ),
    Step(
        "The missing merchant opens a shop",
        "Its product was waiting for it.",
        (_merchant("m4", "Tea House"),),
    ),
    Step(
        "A merchant renames itself",
        "One record, and every product of this merchant changes: the right side drives the join too.",
        (_merchant("m1", "Cosy Corner"),),
    ),
    Step(
        "A product moves to another merchant",
        "Its foreign key changes.",
        (_product("scarf", 9.5, "m2"),),
    ),
    Step(
        "Both merchants rename themselves",
        "The scarf follows its new merchant, no longer the old one.",
        (_merchant("m1", "Sweater Weather"), _merchant("m2", "Nordic Knits")),
    ),
    Step(
        "A product gets cheaper, another one is deleted",
        "A record without a value, a tombstone, deletes the row.",
        (_product("sweater", 12.0, "m1"), Change("products", "teapot", None)),
    ),
    Step(
        "A merchant closes",
        "Its product has no partner any more and leaves the result.",
        (Change("merchants", "m3", None),),
    ),
)
