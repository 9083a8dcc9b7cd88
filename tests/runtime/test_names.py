"""The law of names: what topics, operators and stores are called changes no result.

Names are drawn from those that operators give to what they have inside, `orders.records`, `promo.answers`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases

TEXT, JSON = serdes.string(), serdes.json()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=JSON), cs.Produced(key=TEXT, value=JSON)

PARTS = (
    "records",
    *("answers", "asks", "subscriptions"),
    *("references", "interest", "interested", "rows", "referrers", "partners"),
    *("left", "right", "waiting", "left-2", "buffer"),
)
NAMES = [base + part for base in "abc" for part in ("", *(f".{part}" for part in PARTS))]
TOPICS = ("left", "right", "history", "views", "clicks")
OPERATORS = ("promo", "bill", "met", "priced")
STORES = ("left", "promo", "bill", "views", "clicks")
RESULTS = ("rows", "promoted", "billed", "met", "priced")

Calls = dict[str, dict[str, str]]
"""Of topics, operators and stores: by what they are, how they are called."""

PLAIN: Calls = {
    "topic": {name: f"topic-{name}" for name in TOPICS},
    "operator": {name: f"operator-{name}" for name in OPERATORS},
    "store": {name: f"store-{name}" for name in STORES},
}


@st.composite
def calls(draw: st.DrawFn) -> Calls:
    """Operators have names of their own, sources are called after their topics; stores are another matter."""
    count = len(TOPICS) + len(OPERATORS)
    called = draw(st.lists(st.sampled_from(NAMES), min_size=count, max_size=count, unique=True))
    kept = draw(st.lists(st.sampled_from(NAMES), min_size=len(STORES), max_size=len(STORES), unique=True))
    return {
        "topic": dict(zip(TOPICS, called, strict=False)),
        "operator": dict(zip(OPERATORS, called[len(TOPICS) :], strict=True)),
        "store": dict(zip(STORES, kept, strict=True)),
    }


def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def topology(calls: Calls) -> cs.Topology:
    """One of each kind of join, so named."""
    topics, names, stores = calls["topic"], calls["operator"], calls["store"]
    builder = cs.StreamsBuilder()
    views, clicks = (builder.stream(topics[name], CONSUMED) for name in ("views", "clicks"))
    right = builder.table(topics["right"], CONSUMED)
    promo = builder.table(topics["left"], CONSUMED, cs.Materialized(store=stores["left"])).outer_join(
        right,
        pair,
        foreign_key=lambda row: row,
        keyed_by=cs.LeftOrRight,
        table_joined=cs.TableJoined(name=names["promo"]),
        materialized=cs.Materialized(store=stores["promo"]),
    )
    bill = right.join_many(
        {"other": (right, lambda row: row)},
        lambda row, rows: [row, rows["other"]],
        named=cs.Named(names["bill"]),
        materialized=cs.Materialized(store=stores["bill"]),
    )
    options = cs.StreamJoined(name=names["met"], store=stores["views"], other_store=stores["clicks"])
    met = views.left_join(clicks, pair, cs.JoinWindows.of(5), options)
    history = builder.table(topics["history"], CONSUMED, cs.Materialized(history_retention=1000))
    priced = views.join(history, pair, cs.Joined(name=names["priced"], grace=3))
    promo.to_stream(lambda key, value: f"{key.left}/{key.right}").to("promoted", PRODUCED)
    bill.to_stream().to("billed", PRODUCED)
    met.to("met", PRODUCED)
    priced.to("priced", PRODUCED)
    clicks.merge(right.to_stream()).to("rows", PRODUCED)
    return builder.build()


RECORDS = [
    ("right", "r", "s"),
    ("history", "k", "old"),
    ("left", "l", "r"),
    ("views", "k", 1),
    ("clicks", "k", 2),
    ("right", "s", "r"),
    ("left", "l", "s"),
    ("right", "r", None),
    *(("views", key, 3) for key in "abcdefgh"),
    ("left", "l", None),
    ("left", "m", "s"),
    ("right", "t", "s"),
    *(("clicks", key, 4) for key in "aceghijkl"),
]


def results(calls: Calls, size: int) -> dict[str, Any]:
    """What is written, by topic, and what is kept, by store."""
    with cs.TopologyTestDriver(topology(calls), 2, size) as driver:
        inputs = {
            name: driver.create_input_topic(topic, TEXT, JSON) for name, topic in calls["topic"].items()
        }
        for timestamp, (name, key, value) in enumerate(RECORDS):
            inputs[name].pipe_input(key, value, timestamp)
        driver.commit()
        tables = {
            name: {str(key): row for key, row in driver.get_key_value_store(calls["store"][name]).all()}
            for name in ("left", "promo", "bill")
        }
        written = {
            name: sorted(map(str, driver.create_output_topic(name, TEXT, JSON).read_key_values()))
            for name in RESULTS
        }
        return {"written": written, "tables": tables, "dropped": driver.metrics()["dropped-records-total"]}


def named(kind: str, **calls: str) -> Calls:
    return {**PLAIN, kind: {**PLAIN[kind], **calls}}


@cases(0.5)
@given(calls(), st.sampled_from([1, 3, 100]))
@example(named("topic", views="topic-left.records"), 1)
@example(named("topic", clicks="operator-promo.answers"), 1)
@example(named("topic", clicks="operator-bill.asks"), 1)
@example(named("operator", met="topic-right.records"), 1)
@example(named("store", clicks="operator-met.left"), 1)
@example(named("store", bill="operator-promo.references"), 1)
@example(named("store", left="operator-promo.referrers"), 1)
def test_names_change_no_result(calls: Calls, size: int) -> None:
    assert results(calls, size) == results(PLAIN, size)
