"""The joins of the benchmark as crossstream applications. ``functions``: mode/type/style, as in `Workload.how`."""

from __future__ import annotations

from typing import Any

from benchmarks.generate import Topics
from benchmarks.ours import Customer, Order, Ours, main

METHODS = {"inner": "join", "left": "left_join", "outer": "outer_join"}


class OursJoined(Ours):
    """`Ours` with these topologies."""

    module = "benchmarks.joins_app"
    max_records = None


def joined(topics: Topics, how: str) -> Any:
    """Orders with the name and city of customers: expressions on typed JSON, or callables on untyped."""
    import polars as pl

    import crossstream as cs
    from crossstream import serdes

    mode, kind, style = how.split("/")
    typed = style == "expressions"
    left_of, right_of = mode.split("-")
    builder = cs.StreamsBuilder()

    def side(what: str, topic: str, type_: type) -> Any:
        value = serdes.json(type_) if typed else serdes.json()
        consumed = cs.Consumed(key=serdes.string(), value=value)
        make: Any = {"table": builder.table, "stream": builder.stream, "global": builder.global_table}[what]
        return make(topic, consumed)

    left, right = side(left_of, topics.orders, Order), side(right_of, topics.customers, Customer)
    more: dict[str, Any] = {}
    if mode == "stream-stream":
        more["windows"] = cs.JoinWindows.of("10 seconds")
    if mode == "stream-global":
        more["key_selector"] = (
            pl.col("customer_id") if typed else lambda order: order and order["customer_id"]
        )
    result = getattr(left, METHODS[kind])(right, expression() if typed else both, **more)
    stream = result.to_stream() if mode == "table-table" else result
    stream.to(topics.results, cs.Produced(key=serdes.string(), value=serdes.json()))
    return builder.build()


def expression() -> Any:
    import polars as pl

    left, right = pl.col("left").struct, pl.col("right").struct
    return pl.struct(
        item=left.field("item"),
        amount=left.field("amount"),
        customer=right.field("name"),
        city=right.field("city"),
    )


def both(order: Any, customer: Any) -> Any:
    row = customer or {}
    return {
        "item": order["item"],
        "amount": order["amount"],
        "customer": row.get("name"),
        "city": row.get("city"),
    }


if __name__ == "__main__":
    main(joined)
