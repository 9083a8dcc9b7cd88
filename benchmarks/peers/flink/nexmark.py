"""Nexmark's queries in Flink SQL, as the reference has them (https://github.com/nexmark/nexmark, q0 to q23).

Times are integers, milliseconds, in topics and results; the time attribute beside them is `ts`.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.nexmark.topics import Topics
from benchmarks.peers.flink.sql import stream_table, upsert_table

PERSON = """id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
    `dateTime` BIGINT, extra STRING"""
AUCTION = """id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` BIGINT,
    expires BIGINT, seller BIGINT, category BIGINT, extra STRING"""
BID = (
    "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` BIGINT, extra STRING"
)
WATERMARK = "ts AS TO_TIMESTAMP_LTZ(`dateTime`, 3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND"
TABLES = {"person": PERSON, "auction": AUCTION, "bid": BID}
FUNCTIONS = ("CREATE TEMPORARY SYSTEM FUNCTION count_char AS 'crossstream.flink.CountChar'",)


@dataclass(frozen=True, slots=True)
class Query:
    """``sql`` over the tables {person}, {auction}, {bid} and {side}. ``columns``: of the result.

    ``key``: those that name a row which may change; none if all rows stay. ``conflict``: the key is not that by which
    Flink's result changes.
    """

    sql: str
    columns: str
    key: tuple[str, ...] = ()
    conflict: bool = False


def _ms(window: str) -> str:
    """The time of a window's start or end, a whole second, in milliseconds."""
    return f"TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {window}) * CAST(1000 AS BIGINT)"


def _exact_ms(window: str) -> str:
    """The same of the start or end of a session, which is no whole second."""
    return f"{_ms(window)} + EXTRACT(MILLISECOND FROM {window})"


_VALID = "A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires"
_HOP = "TABLE(HOP(TABLE {bid}, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_HOP_COUNTS = f"""
    SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM {_HOP} GROUP BY auction, window_start, window_end"""
_DAY = "DATE_FORMAT(ts, 'yyyy-MM-dd')"
_RANKS = {
    "total": "TRUE",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


def _filtered(what: str, where: str) -> str:
    return what if where == "TRUE" else f"{what} FILTER (WHERE {where})"


_BIDS = ", ".join(f"{_filtered('COUNT(*)', where)} AS {rank}_bids" for rank, where in _RANKS.items())
_DISTINCT = ", ".join(
    f"{_filtered(f'COUNT(DISTINCT {field})', where)} AS {rank}_{field}s"
    for field in ("bidder", "auction")
    for rank, where in _RANKS.items()
)
_BID_COUNTS = ", ".join(f"{rank}_bids BIGINT" for rank in _RANKS)
_COUNTS = ", ".join(f"{rank}_{what} BIGINT" for what in ("bids", "bidders", "auctions") for rank in _RANKS)
_AUCTION_COLUMNS = """itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
    auction_dateTime BIGINT, expires BIGINT, seller BIGINT, category BIGINT, auction_extra STRING"""
_AUCTION_FIELDS = """A.itemName, A.description, A.initialBid, A.reserve, A.`dateTime`, A.expires, A.seller, A.category,
    A.extra"""
_PRICED = "auction BIGINT, bidder BIGINT, price DECIMAL(23, 3)"
_CHANNEL_ID = r"REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"

QUERIES = {
    "q0": Query(
        "SELECT auction, bidder, price, `dateTime`, extra FROM {bid}",
        "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, extra STRING",
    ),
    "q1": Query(
        "SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM {bid}",
        f"{_PRICED}, `dateTime` BIGINT, extra STRING",
    ),
    "q2": Query(
        "SELECT auction, price FROM {bid} WHERE MOD(auction, 123) = 0", "auction BIGINT, price BIGINT"
    ),
    "q3": Query(
        """SELECT P.name, P.city, P.state, A.id FROM {auction} A JOIN {person} P ON A.seller = P.id
        WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""",
        "name STRING, city STRING, state STRING, id BIGINT",
    ),
    "q4": Query(
        f"""SELECT Q.category, AVG(Q.final) FROM (
            SELECT MAX(B.price) AS final, A.category FROM {{auction}} A, {{bid}} B
            WHERE {_VALID} GROUP BY A.id, A.category) Q
        GROUP BY Q.category""",
        "id BIGINT, final BIGINT",
        ("id",),
    ),
    "q5": Query(
        f"""SELECT {_ms("AuctionBids.starttime")}, AuctionBids.auction, AuctionBids.num
        FROM ({_HOP_COUNTS}) AS AuctionBids JOIN (
            SELECT MAX(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
            FROM ({_HOP_COUNTS}) AS CountBids GROUP BY CountBids.starttime, CountBids.endtime) AS MaxBids
        ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
            AND AuctionBids.num >= MaxBids.maxn""",
        "starttime BIGINT, auction BIGINT, num BIGINT",
    ),
    "q7": Query(
        f"""SELECT B.auction, B.price, B.bidder, B.`dateTime`, B.extra FROM {{bid}} B JOIN (
            SELECT MAX(price) AS maxprice, window_end FROM
            TABLE(TUMBLE(TABLE {{bid}}, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) B1
        ON B.price = B1.maxprice
        WHERE B.`dateTime` BETWEEN {_ms("B1.window_end")} - 10000 AND {_ms("B1.window_end")}""",
        "auction BIGINT, price BIGINT, bidder BIGINT, `dateTime` BIGINT, extra STRING",
    ),
    "q8": Query(
        f"""SELECT P.id, P.name, {_ms("P.starttime")} FROM (
            SELECT id, name, window_start AS starttime, window_end AS endtime
            FROM TABLE(TUMBLE(TABLE {{person}}, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end) P
        JOIN (
            SELECT seller, window_start AS starttime, window_end AS endtime
            FROM TABLE(TUMBLE(TABLE {{auction}}, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end) A
        ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime""",
        "id BIGINT, name STRING, starttime BIGINT",
    ),
    "q9": Query(
        f"""SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra,
            auction, bidder, price, bid_dateTime, bid_extra
        FROM (
            SELECT A.*, B.auction, B.bidder, B.price, B.`dateTime` AS bid_dateTime, B.extra AS bid_extra,
                ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.`dateTime` ASC) AS rownum
            FROM {{auction}} A, {{bid}} B WHERE {_VALID})
        WHERE rownum <= 1""",
        f"{AUCTION}, auction BIGINT, bidder BIGINT, price BIGINT, bid_dateTime BIGINT, bid_extra STRING",
        ("id",),
    ),
    "q11": Query(
        f"""SELECT bidder, COUNT(*), {_exact_ms("window_start")}, {_exact_ms("window_end")}
        FROM TABLE(SESSION(TABLE {{bid}} PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
        "bidder BIGINT, bid_count BIGINT, starttime BIGINT, endtime BIGINT",
    ),
    "q12": Query(
        f"""SELECT bidder, COUNT(*), {_ms("window_start")}, {_ms("window_end")}
        FROM TABLE(TUMBLE(TABLE {{bid}}, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
        "bidder BIGINT, bid_count BIGINT, starttime BIGINT, endtime BIGINT",
    ),
    "q13": Query(
        """SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value`
        FROM (SELECT *, CAST(MOD(auction, 10000) AS STRING) AS slot FROM {bid}) B
        JOIN {side} FOR SYSTEM_TIME AS OF B.ts AS S ON B.slot = S.k""",
        "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, `value` STRING",
    ),
    "q14": Query(
        """SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN HOUR(ts) >= 8 AND HOUR(ts) <= 18 THEN 'dayTime'
                WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            `dateTime`, extra, count_char(extra, 'c') AS c_counts
        FROM {bid} WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
        f"{_PRICED}, bidTimeType STRING, `dateTime` BIGINT, extra STRING, c_counts BIGINT",
    ),
    "q15": Query(
        f"SELECT {_DAY} AS `day`, {_BIDS}, {_DISTINCT} FROM {{bid}} GROUP BY {_DAY}",
        f"`day` STRING, {_COUNTS}",
        ("day",),
    ),
    "q16": Query(
        f"""SELECT channel, {_DAY} AS `day`, MAX(DATE_FORMAT(ts, 'HH:mm')) AS `minute`, {_BIDS}, {_DISTINCT}
        FROM {{bid}} GROUP BY channel, {_DAY}""",
        f"channel STRING, `day` STRING, `minute` STRING, {_COUNTS}",
        ("channel", "day"),
    ),
    "q17": Query(
        f"""SELECT auction, {_DAY} AS `day`, {_BIDS}, MIN(price), MAX(price), AVG(price), SUM(price)
        FROM {{bid}} GROUP BY auction, {_DAY}""",
        f"""auction BIGINT, `day` STRING, {_BID_COUNTS}, min_price BIGINT, max_price BIGINT, avg_price BIGINT,
        sum_price BIGINT""",
        ("auction", "day"),
    ),
    "q18": Query(
        """SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS rank_number FROM {bid})
        WHERE rank_number <= 1""",
        BID,
        ("bidder", "auction"),
    ),
    "q19": Query(
        """SELECT auction, bidder, price, channel, url, `dateTime`, extra, rank_number FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM {bid})
        WHERE rank_number <= 10""",
        f"{BID}, rank_number BIGINT",
        ("auction", "rank_number"),
    ),
    "q20": Query(
        f"""SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.`dateTime`, B.extra, {_AUCTION_FIELDS}
        FROM {{bid}} B JOIN {{auction}} A ON B.auction = A.id WHERE A.category = 10""",
        f"""auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_dateTime BIGINT,
        bid_extra STRING, {_AUCTION_COLUMNS}""",
    ),
    "q21": Query(
        f"""SELECT auction, bidder, price, channel, CASE
            WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1'
            WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3'
            ELSE {_CHANNEL_ID} END AS channel_id
        FROM {{bid}}
        WHERE {_CHANNEL_ID} IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, channel_id STRING",
    ),
    "q22": Query(
        """SELECT auction, bidder, price, channel,
            SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), SPLIT_INDEX(url, '/', 5) FROM {bid}""",
        """auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dir1 STRING, dir2 STRING, dir3 STRING""",
    ),
    "q23": Query(
        f"""SELECT B.bidder, B.price, B.channel, B.url, B.extra, P.id, P.name, P.emailAddress, P.creditCard, P.city,
            P.state, P.extra, {_AUCTION_FIELDS}
        FROM {{bid}} B JOIN {{person}} P ON P.id = B.bidder JOIN {{auction}} A ON A.seller = B.bidder""",
        f"""bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_extra STRING, person_id BIGINT, name STRING,
        emailAddress STRING, creditCard STRING, city STRING, state STRING, person_extra STRING, {_AUCTION_COLUMNS}""",
    ),
}
"""All but q6, which Flink SQL cannot say: an OVER window refuses rows that change."""


def statements(query: str, servers: str, *runs: Topics) -> list[str]:
    """The query over the topics of each run: the first ones, and those to warm up with."""
    made = [*FUNCTIONS]
    asked = QUERIES[query]
    for number, topics in enumerate(runs):
        names = {table: f"{table}_{number}" for table in TABLES} | {"side": f"side_{number}"}
        made += [
            stream_table(servers, names[table], topics.input(table), f"{columns}, {WATERMARK}")
            for table, columns in TABLES.items()
        ]
        made.append(_side_input(servers, names["side"], topics))
        result = f"{query}_{number}"
        made.append(_results(servers, result, topics.result(query), asked))
        conflict = " ON CONFLICT DO DEDUPLICATE" if asked.conflict else ""
        made.append(f"INSERT INTO {result} {asked.sql.format(**names)}{conflict}")
    return made


def _side_input(servers: str, name: str, topics: Topics) -> str:
    """A table whose versions are those of the topic; when nothing comes, it holds no watermark back."""
    columns = (
        "k STRING, `value` STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', WATERMARK FOR ts AS ts"
    )
    idle = {"scan.watermark.idle-timeout": "1 s"}
    return upsert_table(servers, name, topics.side_input, columns, "k", idle)


def _results(servers: str, name: str, topic: str, asked: Query) -> str:
    if not asked.key:
        return stream_table(servers, name, topic, asked.columns)
    return upsert_table(servers, name, topic, asked.columns, asked.key, {"value.fields-include": "ALL"})
