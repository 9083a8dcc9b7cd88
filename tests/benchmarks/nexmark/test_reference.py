"""The SQL of the queries that have windows and joins, beside loops over the events."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.reference import expected

from tests.benchmarks.nexmark.stretched import stretched

pytest.importorskip("duckdb")

SECONDS = 1_000
Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows() -> Events:
    return stretched(5_000, seed=3)


def hot_items(rows: Events) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[int, int]] = Counter()
    for bid in rows.bid.to_dicts():
        last = bid["dateTime"] // (2 * SECONDS) * 2 * SECONDS
        counts.update((last - 2 * SECONDS * back, bid["auction"]) for back in range(5))
    most: dict[int, int] = defaultdict(int)
    for (start, _), number in counts.items():
        most[start] = max(most[start], number)
    return Counter((start, auction, n) for (start, auction), n in counts.items() if n == most[start])


def dearest(rows: Events) -> Counter[tuple[Any, ...]]:
    best: dict[int, int] = defaultdict(int)
    bids = rows.bid.to_dicts()
    for bid in bids:
        window = bid["dateTime"] // (10 * SECONDS)
        best[window] = max(best[window], bid["price"])
    return Counter(
        (bid["auction"], bid["price"], bid["bidder"], bid["dateTime"], bid["extra"])
        for bid in bids
        if bid["price"] == best[bid["dateTime"] // (10 * SECONDS)]
    )


def new_sellers(rows: Events) -> Counter[tuple[Any, ...]]:
    sold = {(auction["seller"], auction["dateTime"] // (10 * SECONDS)) for auction in rows.auction.to_dicts()}
    return Counter(
        (person["id"], person["name"], person["dateTime"] // (10 * SECONDS) * 10 * SECONDS)
        for person in rows.person.to_dicts()
        if (person["id"], person["dateTime"] // (10 * SECONDS)) in sold
    )


def winners(rows: Events) -> list[tuple[Row, Row]]:
    """Each auction that has a valid bid, and the best one."""
    auctions, best = {row["id"]: row for row in rows.auction.to_dicts()}, dict[int, Row]()
    for bid in rows.bid.to_dicts():
        auction = auctions.get(bid["auction"])
        if auction and auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
            known = best.get(auction["id"])
            best[auction["id"]] = bid if known is None or bid["price"] > known["price"] else known
    return [(auctions[number], bid) for number, bid in best.items()]


def averages(rows: Events) -> Counter[tuple[Any, ...]]:
    prices = defaultdict(list)
    for auction, bid in winners(rows):
        prices[auction["category"]].append(bid["price"])
    return Counter((category, sum(of) // len(of)) for category, of in prices.items())


def of_sellers(rows: Events) -> Counter[tuple[Any, ...]]:
    closed = defaultdict(list)
    for auction, bid in winners(rows):
        closed[auction["seller"]].append((auction["expires"], auction["id"], bid["price"]))
    last = {seller: [price for *_, price in sorted(of)[-10:]] for seller, of in closed.items()}
    return Counter((seller, round(sum(of) / len(of), 6)) for seller, of in last.items())


def sessions(rows: Events) -> Counter[tuple[Any, ...]]:
    times = defaultdict(list)
    for bid in rows.bid.to_dicts():
        times[bid["bidder"]].append(bid["dateTime"])
    made: Counter[tuple[Any, ...]] = Counter()
    for bidder, of in times.items():
        session: list[int] = []
        for time in [*sorted(of), 1 << 62]:
            if session and time - session[-1] > 10 * SECONDS:
                made[bidder, len(session), session[0], session[-1] + 10 * SECONDS] += 1
                session = []
            session.append(time)
    return made


@pytest.mark.parametrize(
    ("query", "loop"),
    [
        ("q4", averages),
        ("q5", hot_items),
        ("q6", of_sellers),
        ("q7", dearest),
        ("q8", new_sellers),
        ("q11", sessions),
    ],
)
def test_sql_as_loops(query: str, loop: Any, rows: Events) -> None:
    found = Counter(
        tuple(round(value, 6) if isinstance(value, float) else value for value in row)
        for row in expected(query, rows).rows()
    )
    assert len(found) >= 3
    assert found == loop(rows)


def test_the_winning_bid_is_the_highest(rows: Events) -> None:
    found = {row["id"]: row["price"] for row in expected("q9", rows).to_dicts()}
    assert found == {auction["id"]: bid["price"] for auction, bid in winners(rows)}
