"""The kinds of changes that an application may make: the code before, and after."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

import crossstream as cs
from crossstream import serdes
from tests.evolution.shop import (
    ORDER,
    Build,
    bill,
    chained,
    clicked,
    copied,
    joined,
    many,
    other_bill,
    totals,
    windowed,
)

LARGE, LARGER = pl.col("amount") > 3, pl.col("amount") > 5
WIDER = {**ORDER, "amount": pl.Float64}
LONGER = {**ORDER, "note": pl.String}
SHORTER = {name: kind for name, kind in ORDER.items() if name != "shop"}
RENAMED = {**SHORTER, "branch": pl.String}

KINDS: Mapping[str, tuple[Build, Build]] = MappingProxyType(
    {
        "another-joiner": (joined, lambda: joined(joiner=other_bill)),
        "filter-added": (joined, lambda: joined(only=LARGE)),
        "filter-changed": (lambda: joined(only=LARGE), lambda: joined(only=LARGER)),
        "filter-removed": (lambda: joined(only=LARGE), joined),
        "inner-to-left": (joined, lambda: joined("left_join")),
        "left-to-outer": (lambda: joined("left_join", by=None), lambda: joined("outer_join", by=None)),
        "column-added": (joined, lambda: joined(fields=LONGER)),
        "column-removed": (joined, lambda: joined(fields=SHORTER)),
        "column-renamed": (joined, lambda: joined(fields=RENAMED)),
        "column-widened": (joined, lambda: joined(fields=WIDER)),
        "another-foreign-key": (joined, lambda: joined(by="shop")),
        "one-more-dimension": (lambda: many("customer"), lambda: many("customer", "shop")),
        "join-order": (lambda: chained("customer", "shop"), lambda: chained("shop", "customer")),
        "another-aggregate": (lambda: totals("counts"), lambda: totals("counts", "sums")),
        "window-size": (lambda: windowed("1 minute"), lambda: windowed("2 minutes")),
        "kept-with-versions": (
            joined,
            lambda: joined(materialized=cs.Materialized(store="orders", history_retention="1 hour")),
        ),
        "another-key-serde": (
            lambda: copied("bills"),
            lambda: copied("bills", key=serdes.json(str)),
        ),
        "sink-added": (lambda: copied("bills"), lambda: copied("bills", "copies")),
        "sink-gone": (lambda: copied("bills", "copies"), lambda: copied("bills")),
        "events": (lambda: clicked(LARGE), lambda: clicked(LARGER, "more")),
        "new-input": (lambda: copied("bills"), lambda: copied("bills", beside="clicks")),
        "dataframes-function": (
            lambda: joined(joiner=bill, batches=True),
            lambda: joined(joiner=other_bill, batches=True),
        ),
        "store-named": (joined, lambda: joined(store="joined")),
        "nothing": (joined, joined),
    }
)
