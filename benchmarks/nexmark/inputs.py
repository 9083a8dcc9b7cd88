"""What the queries read: topics of JSON with declared types, as streams or as tables. Keys are ids as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import crossstream as cs
from benchmarks.nexmark.topics import Topics


@dataclass
class Person:
    id: int
    name: str
    emailAddress: str
    creditCard: str
    city: str
    state: str
    dateTime: int
    extra: str


@dataclass
class Auction:
    id: int
    itemName: str
    description: str
    initialBid: int
    reserve: int
    dateTime: int
    expires: int
    seller: int
    category: int
    extra: str


@dataclass
class Bid:
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    dateTime: int
    extra: str


@dataclass
class Side:
    key: int
    value: str


class Nexmark:
    """The inputs of a topology that is being built. Each is made when it is asked for."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.builder = cs.StreamsBuilder()

    def persons(self) -> cs.KStream[str, Any]:
        return self.builder.stream(self.topics.person, key=str, value=Person)

    def person_table(self) -> cs.KTable[str, Any]:
        return self.builder.table(self.topics.person, key=str, value=Person)

    def auctions(self) -> cs.KStream[str, Any]:
        return self.builder.stream(self.topics.auction, key=str, value=Auction)

    def auction_table(self) -> cs.KTable[str, Any]:
        return self.builder.table(self.topics.auction, key=str, value=Auction)

    def bids(self) -> cs.KStream[str, Any]:
        return self.builder.stream(self.topics.bid, key=str, value=Bid)

    def side_input(self) -> cs.GlobalKTable[str, Any]:
        return self.builder.global_table(self.topics.side_input, key=str, value=Side)
