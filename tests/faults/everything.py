"""Topologies that tests of killed applications run: all joins and aggregations, and lists that are appended to."""

from __future__ import annotations

from typing import Any

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
GIVEN = cs.Consumed(key=TEXT, value=TEXT)
WRITTEN = cs.Produced(key=TEXT, value=TEXT)
STREAMS, TABLES = ("views", "clicks"), ("products", "merchants", "shops")
RESULTS = "results"


def both(left: object, right: object) -> str:
    return f"{left}+{right}"


def last_three(kept: str, value: str) -> str:
    return " ".join([*kept.split(), value][-3:])


def without(kept: str, value: str) -> str:
    return " ".join(word for word in kept.split() if word != value)


def merged(key: str, left: str, right: str) -> str:
    return f"{left}|{right}"


def everything() -> cs.Topology:
    """All joins, and aggregations of each kind, into one topic; the key says which result it is."""
    builder = cs.StreamsBuilder()
    views, clicks = (builder.stream(topic, GIVEN) for topic in STREAMS)
    products, merchants = (builder.table(topic, GIVEN) for topic in TABLES[:2])
    shops = builder.global_table("shops", GIVEN)
    near = cs.JoinWindows.of("1 second", grace="1 second")
    pages = clicks.group_by_key()
    closing = cs.TimeWindows(size="2 seconds", grace="1 second")
    streams = {
        "inner": views.join(clicks, both, near),
        "left": views.left_join(clicks, both, near),
        "outer": views.outer_join(clicks, both, near),
        "looked up": views.join(products, both),
        "looked up or not": clicks.left_join(merchants, both),
        "in a global table": views.left_join(shops, both, key_selector=lambda key, value: key),
    }
    tables = {
        "both rows": products.join(merchants, both),
        "left row": products.left_join(merchants, both),
        "any row": products.outer_join(merchants, both),
        "by foreign key": products.join(merchants, both, foreign_key=first_word),
        "by foreign key or not": products.left_join(merchants, both, foreign_key=first_word),
        "count": pages.count(),
        "list": views.group_by(lambda key, value: key[-1], cs.Grouped(key=TEXT, value=TEXT)).aggregate(
            str, last_three, value=TEXT
        ),
        "both streams": pages.cogroup(last_three)
        .cogroup(views.group_by_key(), last_three)
        .aggregate(str, value=TEXT),
        "group of rows": products.group_by(
            lambda key, value: (first_word(value), value), cs.Grouped(key=TEXT, value=TEXT)
        ).aggregate(str, last_three, without, value=TEXT),
        "window": pages.windowed_by(closing).count(),
        "closed window": pages.windowed_by(
            cs.TimeWindows(size="2 seconds", advance="1 second", grace="1 second"), emit="close"
        ).count(),
        "held back": pages.windowed_by(closing)
        .aggregate(str, last_three, value=TEXT)
        .suppress(cs.Suppressed.until_window_closes()),
        "sliding": pages.windowed_by(cs.SlidingWindows(difference="500 ms", grace="1 second")).count(),
        "session": pages.windowed_by(cs.SessionWindows(gap="300 ms", grace="1 second")).aggregate(
            str, last_three, merged, value=TEXT
        ),
    }
    for name, stream in {**streams, **{name: table.to_stream() for name, table in tables.items()}}.items():
        stream.map(named(name)).to(RESULTS, WRITTEN)
    return builder.build()


def first_word(value: str) -> str:
    return value.partition("-")[0]


def named(result: str) -> Any:
    """A record of one result; windows are named by their bounds."""

    def of(key: Any, value: Any) -> tuple[str, str]:
        window = f" {key.start}-{key.end}" if hasattr(key, "start") else ""
        return f"{result}: {getattr(key, 'key', key)}{window}", str(value)

    return of


def appends() -> cs.Topology:
    """Elements that are appended to the list of their key: each element, and each list, in a topic of its own."""
    builder = cs.StreamsBuilder()
    elements = builder.stream("appends", GIVEN)
    elements.to("elements", WRITTEN)
    lists = elements.group_by_key().aggregate(
        str,
        lambda kept, value: f"{kept} {value}".strip(),
        materialized=cs.Materialized(store="lists", value=TEXT),
    )
    lists.to_stream().to("lists", WRITTEN)
    return builder.build()
