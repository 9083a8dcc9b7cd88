"""Queries that look at one bid at a time."""

from __future__ import annotations

from typing import Any

import polars as pl

import crossstream as cs
from benchmarks.nexmark.inputs import Nexmark

Stream = cs.KStream[Any, Any]

EUROS = 0.908
"""What a dollar was."""


def q0(nexmark: Nexmark) -> Stream:
    """Pass through: every bid, without its channel and URL."""
    return nexmark.bids().map_values(pl.struct("auction", "bidder", "price", "dateTime", "extra"))


def q1(nexmark: Nexmark) -> Stream:
    """Currency conversion: every bid in euros."""
    euros = (pl.col("price") * EUROS).round(3)
    return nexmark.bids().map_values(
        pl.struct("auction", "bidder", euros.alias("price"), "dateTime", "extra")
    )


def q2(nexmark: Nexmark) -> Stream:
    """Selection: the bids for every 123rd auction."""
    return nexmark.bids().filter(pl.col("auction") % 123 == 0).map_values(pl.struct("auction", "price"))


def q13(nexmark: Nexmark) -> Stream:
    """Bounded side input: every bid with a text from a table of 10,000 rows, which every task has."""
    bid, side = pl.col("left").struct, pl.col("right").struct
    fields = (bid.field(name) for name in ("auction", "bidder", "price", "dateTime"))
    return nexmark.bids().join(
        nexmark.side_input(),
        pl.struct(*fields, side.field("value")),
        key_selector=(pl.col("auction") % 10_000).cast(pl.String),
    )


def q14(nexmark: Nexmark) -> Stream:
    """Calculation: bids of a medium price, with the time of day and the number of c in their text."""
    euros = (pl.col("price") * EUROS).round(3)
    hour = pl.from_epoch("dateTime", "ms").dt.hour()
    time_type = (
        pl.when(hour.is_between(8, 18))
        .then(pl.lit("dayTime"))
        .when((hour <= 6) | (hour >= 20))
        .then(pl.lit("nightTime"))
        .otherwise(pl.lit("otherTime"))
    )
    return (
        nexmark.bids()
        .filter((euros > 1_000_000) & (euros < 50_000_000))
        .map_values(
            pl.struct(
                "auction",
                "bidder",
                "dateTime",
                "extra",
                price=euros,
                bidTimeType=time_type,
                c_counts=pl.col("extra").str.count_matches("c", literal=True),
            )
        )
    )


def q21(nexmark: Nexmark) -> Stream:
    """Channel id: that of four large channels, or the one that the URL names."""
    named = pl.col("url").str.extract("(&|^)channel_id=([^&]*)", 2)
    large = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    known = pl.col("channel").str.to_lowercase().replace_strict(large, default=None, return_dtype=pl.String)
    fields = ("auction", "bidder", "price", "channel")
    with_id = nexmark.bids().map_values(pl.struct(*fields, channel_id=known.fill_null(named)))
    return with_id.filter(pl.col("channel_id").is_not_null())


def q22(nexmark: Nexmark) -> Stream:
    """URL directories: the three folders of the URL."""
    folders = pl.col("url").str.split("/")
    named: dict[str, Any] = {f"dir{n}": folders.list.get(n + 2, null_on_oob=True) for n in (1, 2, 3)}
    return nexmark.bids().map_values(pl.struct("auction", "bidder", "price", "channel", **named))
