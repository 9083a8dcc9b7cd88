"""What each query gives, by DuckDB: Nexmark's SQL on whole tables, windows written as joins and arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from benchmarks.nexmark.events import Events, side_input


@dataclass(frozen=True, slots=True)
class Query:
    """``stream``: every record is a row; else the last value of each key is. ``free``: columns that SQL leaves open."""

    sql: str
    stream: bool = False
    free: tuple[str, ...] = ()


_VALID = """
    select a.*, b.auction, b.bidder, b.price, b.dateTime as bid_dateTime, b.extra as bid_extra
    from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires"""

_RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 and price < 1000000",
    "rank3": "price >= 1000000",
}
_BIDS = ", ".join(f"count(*) filter ({where}) as {rank}_bids" for rank, where in _RANKS.items())
_DISTINCT = ", ".join(
    f"count(distinct {field}) filter ({where}) as {rank}_{field}s"
    for field in ("bidder", "auction")
    for rank, where in _RANKS.items()
)
_DAY = "strftime(epoch_ms(dateTime), '%Y-%m-%d')"
_AUCTION = """itemName, description, initialBid, reserve, a.dateTime as auction_dateTime, expires, seller, category,
    a.extra as auction_extra"""

QUERIES = {
    "q0": Query("select auction, bidder, price, dateTime, extra from bid", stream=True),
    "q1": Query(
        "select auction, bidder, round(0.908 * price, 3)::double as price, dateTime, extra from bid", True
    ),
    "q2": Query("select auction, price from bid where auction % 123 = 0", stream=True),
    "q3": Query("""
        select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')"""),
    "q4": Query(f"""
        select category as id, sum(final) // count(*) as final
        from (select id, category, max(price) as final from ({_VALID}) group by id, category) group by category"""),
    "q5": Query("""
        with counts as (
            select auction, starttime, count(*) as num
            from (select auction, dateTime // 2000 * 2000 - 2000 * unnest([0, 1, 2, 3, 4]) as starttime from bid)
            group by auction, starttime)
        select starttime, auction, num from counts
        qualify num = max(num) over (partition by starttime)"""),
    "q6": Query(f"""
        with winners as (
            select id, seller, expires, max(price) as price from ({_VALID}) group by id, seller, expires),
        last_ten as (
            select * from winners
            qualify row_number() over (partition by seller order by expires desc, id desc) <= 10)
        select seller, avg(price) as avg_price from last_ten group by seller"""),
    "q7": Query("""
        select b.auction, b.price, b.bidder, b.dateTime, b.extra
        from bid b join (
            select max(price) as price, dateTime // 10000 * 10000 + 10000 as until from bid group by until
        ) as best on b.price = best.price
        where b.dateTime between best.until - 10000 and best.until"""),
    "q8": Query("""
        select distinct p.id, p.name, p.dateTime // 10000 * 10000 as starttime
        from person p join auction a on p.id = a.seller and p.dateTime // 10000 = a.dateTime // 10000"""),
    "q9": Query(
        f"""select * from ({_VALID})
        qualify row_number() over (partition by id order by price desc, bid_dateTime) = 1""",
        free=("bidder", "bid_extra"),
    ),
    "q11": Query("""
        with sessions as (
            select *, sum(starts) over (partition by bidder order by dateTime, starts desc) as session
            from (select bidder, dateTime, (dateTime - lag(dateTime, 1, 0) over (
                partition by bidder order by dateTime) > 10000)::int as starts from bid))
        select bidder, count(*) as bid_count, min(dateTime) as starttime, max(dateTime) + 10000 as endtime
        from sessions group by bidder, session"""),
    "q12": Query("""
        select bidder, count(*) as bid_count, dateTime // 10000 * 10000 as starttime, starttime + 10000 as endtime
        from bid group by bidder, starttime"""),
    "q13": Query(
        """select auction, bidder, price, dateTime, value from bid join side_input on auction % 10000 = key""",
        stream=True,
    ),
    "q14": Query(
        """select auction, bidder, round(0.908 * price, 3)::double as price,
        case when hour(epoch_ms(dateTime)) between 8 and 18 then 'dayTime'
             when hour(epoch_ms(dateTime)) <= 6 or hour(epoch_ms(dateTime)) >= 20 then 'nightTime'
             else 'otherTime' end as bidTimeType,
        dateTime, extra, length(extra) - length(replace(extra, 'c', '')) as c_counts
        from bid where 0.908 * price > 1000000 and 0.908 * price < 50000000""",
        stream=True,
    ),
    "q15": Query(f"select {_DAY} as day, {_BIDS}, {_DISTINCT} from bid group by day"),
    "q16": Query(f"""
        select channel, {_DAY} as day, max(strftime(epoch_ms(dateTime), '%H:%M')) as minute, {_BIDS}, {_DISTINCT}
        from bid group by channel, day"""),
    "q17": Query(f"""
        select auction, {_DAY} as day, {_BIDS}, min(price) as min_price, max(price) as max_price,
            sum(price) // count(*) as avg_price, sum(price) as sum_price
        from bid group by auction, day"""),
    "q18": Query(
        """select auction, bidder, price, channel, url, dateTime, extra from bid
        qualify row_number() over (partition by bidder, auction order by dateTime desc) = 1""",
        free=("price", "channel", "url", "extra"),
    ),
    "q19": Query(
        """select *, row_number() over (partition by auction order by price desc) as rank_number from bid
        qualify rank_number <= 10""",
        free=("bidder", "channel", "url", "dateTime", "extra"),
    ),
    "q20": Query(
        f"""select b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime as bid_dateTime, b.extra as bid_extra,
        {_AUCTION} from bid b join auction a on b.auction = a.id where a.category = 10""",
        stream=True,
    ),
    "q21": Query(
        """select * from (select auction, bidder, price, channel, case lower(channel)
            when 'apple' then '0' when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
            else nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') end as channel_id from bid)
        where channel_id is not null""",
        stream=True,
    ),
    "q22": Query(
        """select auction, bidder, price, channel, split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2,
        split_part(url, '/', 6) as dir3 from bid""",
        stream=True,
    ),
    "q23": Query(
        f"""select b.bidder, b.price, b.channel, b.url, b.extra as bid_extra, p.id as person_id, p.name,
        p.emailAddress, p.creditCard, p.city, p.state, p.extra as person_extra, {_AUCTION}
        from bid b join person p on p.id = b.bidder join auction a on a.seller = b.bidder""",
        stream=True,
    ),
}
"""Nexmark's queries. Columns and order: docs/nexmark.md."""


def expected(query: str, events: Events) -> pl.DataFrame:
    """The rows that a query gives for all of these events, in any order."""
    import duckdb

    with duckdb.connect() as database:
        for name, rows in events.tables():
            database.register(name, rows)
        database.register("side_input", side_input())
        found: pl.DataFrame = database.sql(QUERIES[query].sql).pl()
        return found
