"""The aggregations of the benchmark as crossstream applications. ``functions``: the workload."""

from __future__ import annotations

from typing import Any

from benchmarks.generate import Topics
from benchmarks.ours import Order, Ours, main

SIZE_MS, ADVANCE_MS = 60_000, 10_000


class OursAggregated(Ours):
    """`Ours` with these topologies."""

    module = "benchmarks.aggregate_app"
    max_records = None


def aggregated(topics: Topics, work: str) -> Any:
    """Orders counted, or their amounts summed, by key; orders of a table by customer."""
    import polars as pl

    import crossstream as cs
    from crossstream import serdes

    text, number = serdes.string(), serdes.float64()
    consumed = cs.Consumed(key=text, value=serdes.json(Order))
    tumbling, sessions = serdes.windowed(text, SIZE_MS), serdes.session_windowed(text)
    builder: Any = cs.StreamsBuilder()
    if work == "table":
        orders = builder.table(topics.orders, consumed)
        by_customer = orders.group_by("customer_id", cs.Grouped(key=text))
        table = by_customer.agg(total=cs.agg.sum("amount"))
        table.map_values(pl.col("total")).to_stream().to(topics.results, cs.Produced(key=text, value=number))
        return builder.build()
    stream = builder.stream(topics.orders, consumed)
    if work == "count":
        made, key, value = stream.group_by_key().count(), text, serdes.int64()
    elif work == "reduce":
        amounts = stream.map_values(pl.col("amount")).group_by_key(cs.Grouped(value=number))
        made, key, value = amounts.reduce(lambda total, amount: total + amount), text, number
    elif work == "hopping":
        windows = cs.TimeWindows(size=SIZE_MS, advance=ADVANCE_MS)
        made, key, value = stream.group_by_key().windowed_by(windows).count(), tumbling, serdes.int64()
    elif work == "session":
        windowed = stream.group_by_key().windowed_by(cs.SessionWindows(gap=SIZE_MS, grace=0))
        made, key, value = windowed.count(), sessions, serdes.int64()
    else:
        windowed = stream.group_by_key().windowed_by(cs.TimeWindows(size=SIZE_MS))
        totals = windowed.agg(total=cs.agg.sum("amount")).to_stream().map_values(pl.col("total"))
        totals.to(topics.results, cs.Produced(key=tumbling, value=number))
        return builder.build()
    made.to_stream().to(topics.results, cs.Produced(key=key, value=value))
    return builder.build()


if __name__ == "__main__":
    main(aggregated)
