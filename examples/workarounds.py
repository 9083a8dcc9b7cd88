"""The foreign-key join, and the three work-arounds from before there was one: what each needs, and where it differs.

    python examples/workarounds.py

Products name their merchant; the result is each product with its merchant. The rows of products carry a version that
grows: `grouped_map` needs it. Prices of each: `crossstream bench workarounds`.
"""

from __future__ import annotations

from typing import Any

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()
TABLE = cs.Consumed(key=TEXT, value=JSON)
RESULT = cs.Materialized(store="result", key=TEXT, value=JSON)

Row = dict[str, Any]


def joined(product: Row, merchant: Row | None) -> Row | None:
    return None if merchant is None else {"name": product["name"], "shop": merchant["name"]}


def foreign_key_join() -> cs.Topology:
    """What all of them are compared with."""
    builder = cs.StreamsBuilder()
    products, merchants = builder.table("products", TABLE), builder.table("merchants", TABLE)
    products.join(merchants, joined, foreign_key=lambda product: product["merchant"], materialized=RESULT)
    return builder.build()


def grouped_map() -> cs.Topology:
    """Groups the products by merchant into a map, joins the map by primary key, and flattens the result.

    The same rows as the foreign-key join, whichever side changes. It needs three things that are easily forgotten:

    - A product that leaves a merchant stays in its map, marked. Otherwise nothing would delete its row of the result.
    - The mark comes again with each change of that merchant, and must not delete the row of the new merchant. So both
      have a version, and the newest wins. Nothing takes the marks out of the map.
    - A merchant that closes must delete the rows of its products: the join is a left join.
    """
    builder = cs.StreamsBuilder()
    products, merchants = builder.table("products", TABLE), builder.table("merchants", TABLE)
    grouped = products.group_by(
        lambda key, product: (product["merchant"], {"key": key, **product}), cs.Grouped(key=TEXT, value=JSON)
    )
    maps = grouped.aggregate(
        dict,
        lambda products, new: {**products, new["key"]: new},
        lambda products, old: {**products, old["key"]: {"version": old["version"], "gone": True}},
        value=dict,
    )
    with_merchant = maps.left_join(merchants, lambda products, merchant: (products, merchant))
    rows = with_merchant.to_stream().flat_map(
        lambda both: [
            (
                key,
                {
                    "version": product["version"],
                    "row": None if "gone" in product else joined(product, both[1]),
                },
            )
            for key, product in both[0].items()
        ]
    )
    newest = rows.group_by_key(key=str, value=dict).reduce(
        lambda before, new: new if new["version"] >= before["version"] else before
    )
    newest.map_values(lambda newest: newest["row"], materialized=RESULT)
    return builder.build()


def global_table() -> cs.Topology:
    """Copies the merchants to every machine and looks one up for each change of a product.

    It differs where a merchant changes: its products keep the merchant of the moment when they changed last.
    Deletions need a wrapping, since a stream–global join drops records without a value.
    """
    builder = cs.StreamsBuilder()
    products = builder.stream("products", TABLE)
    merchants = builder.global_table("merchants", TABLE)
    wrapped = products.map_values(lambda product: {"product": product})
    rows = wrapped.left_join(
        merchants,
        lambda change, merchant: change["product"] and joined(change["product"], merchant),
        key_selector=lambda change: change["product"] and change["product"]["merchant"],
    )
    rows.to_table(materialized=RESULT)
    return builder.build()


def rekeyed_stream() -> cs.Topology:
    """Moves each change of a product to its merchant, joins stream and table, and moves the result back.

    It differs as `global_table` does. A deletion names no merchant, so it takes a way of its own. In Kafka Streams the
    two ways, and two merchants of one product, may be in different partitions and overtake each other; here records
    keep their order.
    """
    builder = cs.StreamsBuilder()
    products, merchants = builder.stream("products", TABLE), builder.table("merchants", TABLE)
    kept = products.filter(lambda product: product is not None)
    by_merchant = kept.map(lambda key, product: (product["merchant"], {"key": key, **product}))
    with_merchant = by_merchant.repartition(cs.Repartitioned(key=TEXT, value=JSON)).left_join(
        merchants, lambda product, merchant: {"key": product["key"], "row": joined(product, merchant)}
    )
    rows = with_merchant.map(lambda _, result: (result["key"], result["row"]))
    deletions = products.filter(lambda product: product is None)
    back = cs.Repartitioned(key=TEXT, value=JSON)
    rows.repartition(back).merge(deletions.repartition(back)).to_table(materialized=RESULT)
    return builder.build()


WORKAROUNDS = {"grouped-map": grouped_map, "global-table": global_table, "rekeyed-stream": rekeyed_stream}

build = grouped_map


def result_of(
    topology: cs.Topology, changes: list[tuple[str, str, Row | None]], every: int = 1
) -> dict[str, Row]:
    """The rows after the changes ``(topic, key, value)``, in batches of ``every``."""
    with cs.TopologyTestDriver(topology, partitions=2, commit_every=every) as driver:
        topics = {name: driver.create_input_topic(name, str, dict) for name in ("products", "merchants")}
        for topic, key, value in changes:
            topics[topic].pipe_input(key, value)
        driver.commit()
        return dict(driver.get_key_value_store("result").all())


def main() -> None:
    changes: list[tuple[str, str, Row | None]] = [
        ("merchants", "m1", {"name": "Knit & Co"}),
        ("merchants", "m2", {"name": "Hats"}),
        ("products", "scarf", {"version": 1, "name": "Scarf", "merchant": "m1"}),
        ("products", "hat", {"version": 2, "name": "Hat", "merchant": "m1"}),
        ("products", "socks", {"version": 3, "name": "Socks", "merchant": "m1"}),
        ("products", "hat", {"version": 4, "name": "Hat", "merchant": "m2"}),  # moves
        ("products", "socks", None),
    ]
    rename = ("merchants", "m1", {"name": "Best Knits"})
    rows = result_of(foreign_key_join(), changes)
    assert rows == {"scarf": {"name": "Scarf", "shop": "Knit & Co"}, "hat": {"name": "Hat", "shop": "Hats"}}
    assert all(result_of(build(), changes) == rows for build in WORKAROUNDS.values())

    new = result_of(foreign_key_join(), [*changes, rename])
    assert new["scarf"] == {"name": "Scarf", "shop": "Best Knits"}
    same = [name for name, build in WORKAROUNDS.items() if result_of(build(), [*changes, rename]) == new]
    assert same == ["grouped-map"]
    print("all agree while only products change; after a merchant has changed, only the grouped map does")


if __name__ == "__main__":
    main()
