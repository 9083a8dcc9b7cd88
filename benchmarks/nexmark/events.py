"""Events of Nexmark, a column at a time: who, what and how often as the reference generator draws them.

    events(1_000_000).bid

Of 50 events one is a person, three are auctions, 46 bids. Half of the bids go to one hot auction, three of four bids
come from one hot bidder, and three of four auctions are one hot seller's; who is hot changes with every 100 auctions or
persons. The others are drawn of those that are in flight, and some that are yet to come. Source:
github.com/nexmark/nexmark, its generator with its defaults. Two things differ: the seed is given, and 1,000
(the first person's id) is added to a bidder once, as to a seller; the reference adds it twice, so that a bidder enters
the system a thousand persons later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.nexmark.text import chosen, extra, words

START_MS = 1_436_918_400_000
"""Time of the first event: 2015-07-15, midnight in UTC."""
RATE = 10_000
"""Events a second, in the time of the events."""
CLOSING_MS = START_MS + 2 * 86_400_000
"""Time of the closers."""
CLOSERS = 64
"""Last persons, auctions and bids: so many that they come to each partition, and close its windows."""

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PERSONS + AUCTIONS + BIDS
"""Events of a round: first the persons, then the auctions, then the bids."""
FIRST_ID = 1_000
"""The first id of persons and of auctions."""
LEAD = 10
"""Persons and auctions that are referred to before they come."""
ACTIVE_PERSONS, IN_FLIGHT = 1_000, 100
HOT_AUCTION, HOT_BIDDER, HOT_SELLER = 1 / 2, 3 / 4, 3 / 4
"""The share of bids and auctions that refer to a hot one."""
HOT_FOR = 100
"""Persons or auctions for which the same one is hot."""
FIRST_CATEGORY, CATEGORIES = 10, 5
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
"""What a row has on average, with numbers of 8 bytes."""
SIDE_INPUT_ROWS = 10_000
BLOCK = 50_000
"""Events that are drawn at once. A prefix of the events does not depend on how many follow."""

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """Rows in order of arrival. The columns: those of Nexmark's tables in Flink SQL, times in ms since the epoch."""

    person: pl.DataFrame
    auction: pl.DataFrame
    bid: pl.DataFrame

    def tables(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Name and rows of each."""
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    def and_then(self, more: Events) -> Events:
        """These events, then those."""
        return Events(*(pl.concat([rows, getattr(more, name)]) for name, rows in self.tables()))


def events(count: int, seed: int = 1) -> Events:
    """The first ``count`` events of this seed."""
    channels = Channels.drawn(np.random.default_rng([seed, 1]))
    blocks = [block(start, seed, channels, count) for start in range(0, max(count, 1), BLOCK)]
    return Events(*(pl.concat([getattr(each, name) for each in blocks]) for name, _ in blocks[0].tables()))


def closers() -> Events:
    """Events that come two days after the first one, have negative ids, and join with nothing."""
    numbers = -np.arange(1, CLOSERS + 1)
    rows = pl.DataFrame({"number": numbers})
    time, text = pl.lit(CLOSING_MS).alias("dateTime"), pl.lit("").alias
    number = pl.col("number")
    named = [text(name) for name in ("name", "emailAddress", "creditCard", "city", "state")]
    person = rows.select(number.alias("id"), *named, time, text("extra"))
    auction = rows.select(
        number.alias("id"),
        *map(text, ("itemName", "description")),
        *(pl.lit(0, pl.Int64).alias(name) for name in ("initialBid", "reserve")),
        time,
        time.alias("expires"),
        (number - 1_000).alias("seller"),
        pl.lit(0, pl.Int64).alias("category"),
        text("extra"),
    )
    bid = rows.select(
        (number - 10_000).alias("auction"),
        (number - 2_000).alias("bidder"),
        pl.lit(1, pl.Int64).alias("price"),
        *map(text, ("channel", "url")),
        time,
        text("extra"),
    )
    return Events(person, auction, bid)


def side_input() -> pl.DataFrame:
    """The bounded table that bids are joined with in q13: a number, and the same as text."""
    keys = pl.Series("key", range(SIDE_INPUT_ROWS), pl.Int64)
    return pl.DataFrame([keys, keys.cast(pl.String).alias("value")])


@dataclass(frozen=True, slots=True)
class Channels:
    """Name and URL of the channels that bids come through, the hot ones first."""

    names: pl.Series
    urls: pl.Series

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Channels:
        size = len(HOT_CHANNELS) + CHANNELS
        numbers = np.arange(-len(HOT_CHANNELS), CHANNELS)
        with_id = (rng.integers(0, 10, size) > 0) & (numbers >= 0)
        names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
        ids = [
            f"&channel_id={reversed_bits(number)}" if shown else ""
            for number, shown in zip(numbers.tolist(), with_id.tolist(), strict=True)
        ]
        folders = pl.DataFrame({f"{n}": words(rng, size, 5, "_") for n in range(3)})
        url = pl.format("https://www.nexmark.com/{}/{}/{}/item.htm?query=1{}", "0", "1", "2", pl.Series(ids))
        return cls(pl.Series(names), folders.select(url).to_series())


def reversed_bits(number: int) -> int:
    """The 32 bits of a number from the last to the first, as an int of Java, without its sign."""
    turned = int(f"{number:032b}"[::-1], 2)
    return min(turned, 2**32 - turned)


def block(start: int, seed: int, channels: Channels, stop: int) -> Events:
    """The events from number ``start`` on, up to ``stop`` at most."""
    numbers = np.arange(start, start + BLOCK)
    places = numbers % EPOCH
    kinds = np.digitize(places, (PERSONS, PERSONS + AUCTIONS))
    rngs = (np.random.default_rng([seed, 2, start, kind]) for kind in range(3))
    person, auction, bid = (numbers[kinds == kind] for kind in range(3))
    made = (
        persons_of(person, next(rngs)),
        auctions_of(auction, next(rngs)),
        bids_of(bid, next(rngs), channels),
    )
    ends = (int((which < stop).sum()) for which in (person, auction, bid))
    return Events(*(rows.head(end) for rows, end in zip(made, ends, strict=True)))


def persons_of(numbers: Numbers, rng: np.random.Generator) -> pl.DataFrame:
    size = len(numbers)
    names = chosen(rng, size, FIRST_NAMES) + " " + chosen(rng, size, LAST_NAMES)
    email = words(rng, size, 7) + "@" + words(rng, size, 5) + ".com"
    groups = (pl.Series(rng.integers(0, 10_000, size)).cast(pl.String).str.zfill(4) for _ in range(4))
    card = pl.select(pl.concat_str(*groups, separator=" ")).to_series()
    texts = [names, email, card, chosen(rng, size, CITIES), chosen(rng, size, STATES)]
    return pl.DataFrame(
        {
            "id": last_person(numbers) + FIRST_ID,
            **dict(zip(("name", "emailAddress", "creditCard", "city", "state"), texts, strict=True)),
            "dateTime": time_of(numbers),
            "extra": extra(rng, np.sum([*map(lengths, texts)], axis=0) + 8, PERSON_BYTES),
        }
    )


def auctions_of(numbers: Numbers, rng: np.random.Generator) -> pl.DataFrame:
    size, times = len(numbers), time_of(numbers)
    hot = rng.random(size) < HOT_SELLER
    seller = np.where(hot, last_person(numbers) // HOT_FOR * HOT_FOR, some_person(numbers, rng))
    # So long that on average 100 auctions are open.
    horizon = time_of(numbers + IN_FLIGHT * EPOCH // AUCTIONS) - times
    first, name, description = price(rng, size), words(rng, size, 20), words(rng, size, 100)
    return pl.DataFrame(
        {
            "id": last_auction(numbers) + FIRST_ID,
            "itemName": name,
            "description": description,
            "initialBid": first,
            "reserve": first + price(rng, size),
            "dateTime": times,
            "expires": times + 1 + rng.integers(0, np.maximum(horizon * 2, 1)),
            "seller": seller + FIRST_ID,
            "category": FIRST_CATEGORY + rng.integers(0, CATEGORIES, size),
            "extra": extra(rng, 48 + lengths(name) + lengths(description), AUCTION_BYTES),
        }
    )


def bids_of(numbers: Numbers, rng: np.random.Generator, channels: Channels) -> pl.DataFrame:
    size = len(numbers)
    last = last_auction(numbers)
    hot = rng.random(size) < HOT_AUCTION
    lowest = np.maximum(last - IN_FLIGHT, 0)
    auction = np.where(hot, last // HOT_FOR * HOT_FOR, lowest + rng.integers(0, last - lowest + 1 + LEAD))
    hot = rng.random(size) < HOT_BIDDER
    # The second of the hundred: a hot bidder is no hot seller.
    bidder = np.where(hot, last_person(numbers) // HOT_FOR * HOT_FOR + 1, some_person(numbers, rng))
    hot = rng.random(size) < 1 / 2
    channel = np.where(
        hot,
        rng.integers(0, len(HOT_CHANNELS), size),
        len(HOT_CHANNELS) + rng.integers(0, CHANNELS, size),
    )
    return pl.DataFrame(
        {
            "auction": auction + FIRST_ID,
            "bidder": bidder + FIRST_ID,
            "price": price(rng, size),
            "channel": channels.names.gather(channel),
            "url": channels.urls.gather(channel),
            "dateTime": time_of(numbers),
            "extra": extra(rng, np.full(size, 32), BID_BYTES),
        }
    )


def last_person(numbers: Numbers) -> Numbers:
    """The newest person, counted from 0, when these events come."""
    return numbers // EPOCH * PERSONS + np.minimum(numbers % EPOCH, PERSONS - 1)


def last_auction(numbers: Numbers) -> Numbers:
    """The newest auction, counted from 0, when these auctions or bids come."""
    return numbers // EPOCH * AUCTIONS + np.minimum(numbers % EPOCH - PERSONS, AUCTIONS - 1)


def some_person(numbers: Numbers, rng: np.random.Generator) -> Numbers:
    """Any of the last 1,000 persons or the next 10."""
    there = last_person(numbers) + 1
    active = np.minimum(there, ACTIVE_PERSONS)
    return np.asarray(there - active + rng.integers(0, active + LEAD))


def price(rng: np.random.Generator, size: int) -> Numbers:
    """From 100 to 100,000,000 cents, small ones as often as large ones."""
    return np.rint(10 ** (rng.random(size) * 6) * 100).astype(np.int64)


def time_of(numbers: Numbers) -> Numbers:
    return START_MS + numbers * 1_000 // RATE


def lengths(text: pl.Series) -> Numbers:
    return text.str.len_bytes().to_numpy().astype(np.int64)
