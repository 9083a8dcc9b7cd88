"""Nexmark's queries in Spark SQL, over the streams ``person``, ``auction``, ``bid`` and the table ``side_input``.

Those that Spark refuses of streams are in `REFUSED`, with what it answers. ``rank1_…`` and the like are left out there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """``mode``: append, for rows that come once, or update, for the last row of each ``key``.

    ``answer``: how Spark's refusal begins.
    """

    sql: str
    key: str | None = None
    answer: str = ""

    @property
    def mode(self) -> str:
        return "append" if self.key is None else "update"


QUERIES = {
    "q0": Query("SELECT auction, bidder, price, dateTime, extra FROM bid"),
    "q1": Query("SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid"),
    "q2": Query("SELECT auction, price FROM bid WHERE auction % 123 = 0"),
    "q3": Query("""
        SELECT P.name, P.city, P.state, A.id
        FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
    """),
    # The auctions of a window in a list: of two aggregates, one on the other, Spark can join none with the first.
    "q5": Query("""
        SELECT window.end - INTERVAL 10 SECONDS AS starttime, hot.auction, hot.num
        FROM (
            SELECT window, explode(filter(auctions, a -> a.num = array_max(auctions).num)) AS hot
            FROM (
                SELECT window(window_time(hop), '2 seconds') AS window, collect_list(struct(num, auction)) AS auctions
                FROM (
                    SELECT auction, count(*) AS num, window(dateTime, '10 seconds', '2 seconds') AS hop
                    FROM bid GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
                )
                GROUP BY window(window_time(hop), '2 seconds')
            )
        )
    """),
    # `last` is the last microsecond of a window. SQL counts a bid at its end, too.
    "q7": Query("""
        SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra
        FROM bid B JOIN (
            SELECT maxprice, window_time(window) AS last
            FROM (
                SELECT max(price) AS maxprice, window(dateTime, '10 seconds') AS window
                FROM bid GROUP BY window(dateTime, '10 seconds')
            )
        ) M
        ON B.price = M.maxprice
            AND B.dateTime BETWEEN M.last - INTERVAL 10 SECONDS AND M.last + INTERVAL 1 MICROSECOND
    """),
    "q8": Query("""
        SELECT P.id, P.name, P.window.start AS starttime
        FROM (SELECT id, name, window(dateTime, '10 seconds') AS window
              FROM person GROUP BY id, name, window(dateTime, '10 seconds')) P
        JOIN (SELECT seller, window(dateTime, '10 seconds') AS window
              FROM auction GROUP BY seller, window(dateTime, '10 seconds')) A
        ON P.id = A.seller AND P.window = A.window
    """),
    "q11": Query("""
        SELECT bidder, count(*) AS bid_count, session_window.start AS starttime, session_window.end AS endtime
        FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds')
    """),
    "q12": Query("""
        SELECT bidder, count(*) AS bid_count, window.start AS starttime, window.end AS endtime
        FROM bid GROUP BY bidder, window(dateTime, '10 seconds')
    """),
    "q13": Query("""
        SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
        FROM bid B JOIN side_input S ON B.auction % 10000 = S.key
    """),
    "q14": Query("""
        SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                 WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                 ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """),
    "q17": Query(
        """
        SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day,
            count(*) AS total_bids,
            count(*) FILTER (WHERE price < 10000) AS rank1_bids,
            count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
            count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
            min(price) AS min_price, max(price) AS max_price,
            sum(price) DIV count(*) AS avg_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd')
        """,
        key="concat(auction, ' ', day)",
    ),
    "q18": Query(
        """
        SELECT auction, bidder, last.price, last.channel, last.url, last.dateTime, last.extra
        FROM (
            SELECT auction, bidder, max_by(struct(price, channel, url, dateTime, extra), dateTime) AS last
            FROM bid GROUP BY bidder, auction
        )
        """,
        key="concat(bidder, ' ', auction)",
    ),
    "q20": Query("""
        SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
            A.itemName, A.description, A.initialBid, A.reserve, A.dateTime AS auction_dateTime, A.expires,
            A.seller, A.category, A.extra AS auction_extra
        FROM bid B JOIN auction A ON B.auction = A.id
        WHERE A.category = 10
    """),
    "q21": Query("""
        SELECT auction, bidder, price, channel, channel_id
        FROM (
            SELECT *, CASE lower(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id
            FROM bid
        )
        WHERE channel_id IS NOT NULL
    """),
    "q22": Query("""
        SELECT auction, bidder, price, channel,
            split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM bid
    """),
    "q23": Query("""
        SELECT B.bidder, B.price, B.channel, B.url, B.extra AS bid_extra,
            P.id AS person_id, P.name, P.emailAddress, P.creditCard, P.city, P.state, P.extra AS person_extra,
            A.itemName, A.description, A.initialBid, A.reserve, A.dateTime AS auction_dateTime, A.expires,
            A.seller, A.category, A.extra AS auction_extra
        FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder
    """),
}

# Aggregates without a window need the update mode: Spark refuses them in append mode, too.
JOIN = "Join between two streaming DataFrames/Datasets is not supported in Update output mode"
DISTINCT = "Distinct aggregations are not supported on streaming DataFrames/Datasets."
WINDOW = "[NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING] Window function is not supported in"

REFUSED = {
    "q4": Query(
        """
        SELECT category AS id, CAST(avg(final) AS BIGINT) AS final
        FROM (
            SELECT max(B.price) AS final, A.category
            FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
            GROUP BY A.id, A.category
        )
        GROUP BY category
        """,
        key="id",
        answer=JOIN,
    ),
    "q6": Query(
        """
        SELECT seller, avg(final) OVER (PARTITION BY seller ORDER BY expires ROWS 9 PRECEDING) AS avg_price
        FROM (
            SELECT max(B.price) AS final, A.id, A.seller, A.expires
            FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
            GROUP BY A.id, A.seller, A.expires
        )
        """,
        answer=WINDOW,
    ),
    "q9": Query(
        """
        SELECT * FROM (
            SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
                row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime) AS rownum
            FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
        ) WHERE rownum <= 1
        """,
        answer=WINDOW,
    ),
    "q15": Query(
        """
        SELECT date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
            count(DISTINCT bidder) AS total_bidders, count(DISTINCT auction) AS total_auctions
        FROM bid GROUP BY date_format(dateTime, 'yyyy-MM-dd')
        """,
        key="day",
        answer=DISTINCT,
    ),
    "q16": Query(
        """
        SELECT channel, date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
            count(DISTINCT bidder) AS total_bidders, count(DISTINCT auction) AS total_auctions
        FROM bid GROUP BY channel, date_format(dateTime, 'yyyy-MM-dd')
        """,
        key="concat(channel, ' ', day)",
        answer=DISTINCT,
    ),
    "q19": Query(
        """
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid
        ) WHERE rank_number <= 10
        """,
        key="concat(auction, ' ', rank_number)",
        answer=WINDOW,
    ),
}
