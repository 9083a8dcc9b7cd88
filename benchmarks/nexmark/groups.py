"""Queries that group bids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

import crossstream as cs
from benchmarks.nexmark.inputs import Nexmark
from crossstream import serdes

Table = cs.KTable[Any, Any]

DAY = pl.from_epoch("dateTime", "ms").dt.strftime("%Y-%m-%d")
MINUTE = pl.from_epoch("dateTime", "ms").dt.strftime("%H:%M")
PRICE = pl.col("price")
RANKS = {
    "rank1": PRICE < 10_000,
    "rank2": (PRICE >= 10_000) & (PRICE < 1_000_000),
    "rank3": PRICE >= 1_000_000,
}
"""Cheap, medium and dear bids."""
WINDOW = pl.col("key").struct
"""The key of a windowed table: ``key``, ``start``, ``end``."""
LATE = "4 seconds"
"""How late bids may come."""


def equal_to_first(field: str) -> Callable[[pl.Expr], pl.Expr]:
    """Of a list of rows in descending order of ``field``: those that are equal to the first."""
    mine, first = pl.element().struct.field(field), pl.element().struct.field(field).first()
    return lambda rows: rows.list.eval(pl.element().filter(mine == first))


def q5(nexmark: Nexmark) -> Table:
    """Hot items: the auctions with the most bids of the last ten seconds, every two seconds."""
    windows = cs.TimeWindows(size="10 seconds", advance="2 seconds", grace=LATE)
    closed = nexmark.bids().group_by_key().windowed_by(windows, emit="close").agg(num=cs.agg.count())
    counts = closed.to_stream().map_values(
        pl.struct("num", auction=WINDOW.field("key").cast(pl.Int64), starttime=WINDOW.field("start"))
    )
    return counts.group_by("starttime").agg(rows=cs.agg.top(10, by="num").pipe(equal_to_first("num")))


def q7(nexmark: Nexmark) -> Table:
    """Highest bid: the dearest bids of every ten seconds."""
    windows = cs.TimeWindows(size="10 seconds", grace=LATE)
    bid = pl.struct("auction", "price", "bidder", "dateTime", "extra")
    dearest = cs.agg.top(10, by="price", field=bid).pipe(equal_to_first("price"))
    return nexmark.bids().group_by(pl.lit(0)).windowed_by(windows).agg(rows=dearest)


def q11(nexmark: Nexmark) -> Table:
    """User sessions: how many bids a user made before ten seconds without one."""
    sessions = cs.SessionWindows(gap="10 seconds", grace=LATE)
    counts = nexmark.bids().group_by("bidder").windowed_by(sessions).agg(bid_count=cs.agg.count())
    return counts.map_values(
        pl.struct(
            "bid_count",
            bidder=WINDOW.field("key"),
            starttime=WINDOW.field("start"),
            endtime=WINDOW.field("end") + 10_000,
        )
    )


def q12(nexmark: Nexmark) -> Table:
    """Bids of a user in each ten seconds, by the time at which the broker has them."""
    windows = cs.TimeWindows(size="10 seconds", grace=LATE)
    counts = nexmark.bids().group_by("bidder").windowed_by(windows).agg(bid_count=cs.agg.count())
    return counts.map_values(
        pl.struct(
            "bid_count",
            bidder=WINDOW.field("key"),
            starttime=WINDOW.field("start"),
            endtime=WINDOW.field("end"),
        )
    )


def ranked(what: str, field: str | None = None) -> dict[str, Any]:
    """Bids, or different values of a field, of all prices and of each rank."""
    if field is None:
        counted = {name: cs.agg.count(pl.when(cheap).then(1)) for name, cheap in RANKS.items()}
        return {f"total_{what}": cs.agg.count(), **{f"{name}_{what}": of for name, of in counted.items()}}
    counted = {name: cs.agg.count_distinct(pl.when(cheap).then(field)) for name, cheap in RANKS.items()}
    every = cs.agg.count_distinct(field)
    return {f"total_{what}": every, **{f"{name}_{what}": of for name, of in counted.items()}}


STATISTICS: dict[str, Any] = {
    **ranked("bids"),
    **ranked("bidders", "bidder"),
    **ranked("auctions", "auction"),
}


def q15(nexmark: Nexmark) -> Table:
    """Bidding statistics: bids, bidders and auctions of each day, and of each rank of prices."""
    return nexmark.bids().group_by(DAY).agg(day=cs.agg.first(DAY), **STATISTICS)


def q16(nexmark: Nexmark) -> Table:
    """Channel statistics: the same for each channel and day."""
    key = serdes.json({"channel": pl.String, "day": pl.String})
    of_channel = nexmark.bids().group_by(pl.struct("channel", day=DAY), key=key)
    named: dict[str, Any] = {
        "channel": cs.agg.first("channel"),
        "day": cs.agg.first(DAY),
        "minute": cs.agg.max(MINUTE),
    }
    return of_channel.agg(**named, **STATISTICS)


def q17(nexmark: Nexmark) -> Table:
    """Auction statistics: bids and prices of each auction and day."""
    key = serdes.json({"auction": pl.Int64, "day": pl.String})
    of_auction = nexmark.bids().group_by(pl.struct("auction", day=DAY), key=key)
    return of_auction.agg(
        auction=cs.agg.first("auction"),
        day=cs.agg.first(DAY),
        **ranked("bids"),
        min_price=cs.agg.min("price"),
        max_price=cs.agg.max("price"),
        avg_price=cs.agg.sum("price") // cs.agg.count(),
        sum_price=cs.agg.sum("price"),
    )


def q18(nexmark: Nexmark) -> Table:
    """Find last bid: the last one of each bidder for each auction."""
    return (
        nexmark.bids()
        .select_key(pl.struct("bidder", "auction"))
        .to_table(key=serdes.json({"bidder": pl.Int64, "auction": pl.Int64}))
    )


def q19(nexmark: Nexmark) -> Table:
    """Auction top 10: the ten dearest bids of each auction."""
    top = cs.agg.top(10, by="price").pipe(with_ranks)
    return nexmark.bids().group_by_key().agg(rows=top)


def with_ranks(rows: pl.Expr) -> pl.Expr:
    """A list of rows, each with its place in the list."""
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
    return rows.list.eval(pl.element().struct.with_fields(rank_number=rank))
