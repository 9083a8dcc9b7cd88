"""Queries that join auctions, bids and persons."""

from __future__ import annotations

from typing import Any

import polars as pl

import crossstream as cs
from benchmarks.nexmark.inputs import Nexmark

LONGEST = "1 day"
"""No auction is open for longer, and no bid comes earlier: how far apart partners of a join may be."""


def both(left: str, right: str) -> pl.Expr:
    """A struct of fields of both sides: ``both("id dateTime", "price bid_dateTime=dateTime")``."""
    fields = [
        pl.col(side).struct.field(name.split("=")[-1]).alias(name.split("=")[0])
        for side, names in (("left", left), ("right", right))
        for name in names.split()
    ]
    return pl.struct(fields)


def q3(nexmark: Nexmark) -> cs.KTable[Any, Any]:
    """Local item suggestion: who sells what of category 10 in Oregon, Idaho and California."""
    auctions = nexmark.auction_table().filter(pl.col("category") == 10)
    persons = nexmark.person_table().filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    return auctions.join(persons, both("id", "name city state"), foreign_key=pl.col("seller").cast(pl.String))


def valid_bids(nexmark: Nexmark, auction: str, bid: str) -> cs.KStream[Any, Any]:
    """Auctions with each bid that was made while they were open."""
    pairs = nexmark.auctions().join(nexmark.bids(), both(auction, bid), before=0, after=LONGEST)
    return pairs.filter(pl.col("bid_dateTime") <= pl.col("expires"))


def q4(nexmark: Nexmark) -> cs.KTable[Any, Any]:
    """Average price for a category: of the highest bids of its auctions."""
    bids = valid_bids(nexmark, "expires category", "price bid_dateTime=dateTime")
    winners = bids.group_by_key().agg(final=cs.agg.max("price"), category=cs.agg.first("category"))
    averages = winners.group_by("category").agg(final=cs.agg.sum("final") // cs.agg.count())
    return averages.map_values(pl.struct("final", id=pl.col("key")))


def q6(nexmark: Nexmark) -> cs.KTable[Any, Any]:
    """Average selling price by seller, over the last ten auctions that closed."""
    bids = valid_bids(nexmark, "id expires seller", "price bid_dateTime=dateTime")
    first: dict[str, Any] = {name: cs.agg.first(name) for name in ("id", "expires", "seller")}
    winners = bids.group_by_key().agg(price=cs.agg.max("price"), **first)
    closed = pl.col("expires") * 2**20 + pl.col("id") % 2**20
    last_ten = cs.agg.top(10, by=closed, field="price")
    averages = winners.group_by("seller").agg(avg_price=last_ten.pipe(lambda prices: prices.list.mean()))
    return averages.map_values(pl.struct("avg_price", seller=pl.col("key")))


def q8(nexmark: Nexmark) -> cs.KTable[Any, Any]:
    """Monitor new users: who entered in the last ten seconds, and put something up for auction in them."""
    windows = cs.TimeWindows(size="10 seconds", grace="4 seconds")
    persons = nexmark.persons().group_by("id").windowed_by(windows).agg(name=cs.agg.first("name"))
    sellers = nexmark.auctions().group_by("seller").windowed_by(windows).agg(auctions=cs.agg.count())
    window = pl.col("key").struct
    named = pl.col("left").struct.field("name")
    return persons.join(sellers, pl.struct(named, id=window.field("key"), starttime=window.field("start")))


AUCTION = "id itemName description initialBid reserve dateTime expires seller category extra"


def q9(nexmark: Nexmark) -> cs.KTable[Any, Any]:
    """Winning bids: each auction with its highest bid, of equal ones the earliest."""
    bids = valid_bids(nexmark, AUCTION, "auction bidder price bid_dateTime=dateTime bid_extra=extra")
    winners = bids.group_by_key().agg(best=cs.agg.top(1, by="price"))
    return winners.map_values(pl.col("best").list.first())


def q20(nexmark: Nexmark) -> cs.KStream[Any, Any]:
    """Expand bid with auction: bids for auctions of category 10, with what is sold."""
    auctions = nexmark.auctions().filter(pl.col("category") == 10)
    bid = "auction bidder price channel url bid_dateTime=dateTime bid_extra=extra"
    auction = "itemName description initialBid reserve expires seller category"
    auction += " auction_dateTime=dateTime auction_extra=extra"
    return nexmark.bids().join(auctions, both(bid, auction), within=LONGEST)


def q23(nexmark: Nexmark) -> cs.KStream[Any, Any]:
    """Expand bid with person and auction: every bid of a person with each of the auctions of that person."""
    person = "person_id=id name emailAddress creditCard city state person_extra=extra"
    auction = "itemName description initialBid reserve expires seller category"
    auction += " auction_dateTime=dateTime auction_extra=extra"
    auctions = nexmark.auctions().select_key("seller").repartition(key=int)
    bids = nexmark.bids().select_key("bidder").repartition(key=int)
    persons = nexmark.persons().select_key("id").repartition(key=int)
    sellers = persons.join(auctions, both(person, auction), within=LONGEST)
    kept = " ".join(name.split("=")[0] for name in f"{person} {auction}".split())
    return bids.join(sellers, both("bidder price channel url bid_extra=extra", kept), within=LONGEST)
