"""A marketplace: products, and the merchants who sell them, joined by a foreign key.

A product has the key of its merchant in `merchant_id`. Both tables change all the time. `promotions` is what the
shop window shows: it follows every change of either table.

    crossstream run marketplace.py          # until Ctrl-C; --once: process what is there, and exit
    crossstream describe marketplace.py
"""

from pathlib import Path

import crossstream as cs
from crossstream import serdes

HERE = Path(__file__).parent
JSON = cs.Consumed(key=serdes.string(), value=serdes.json())

builder = cs.StreamsBuilder()
products = builder.table("products", JSON)
merchants = builder.table("merchants", JSON)

promotions = products.join(
    merchants,
    lambda product, merchant: {
        "product": product["name"],
        "price": product["price"],
        "shop": merchant["display_name"],
    },
    foreign_key=lambda product: product["merchant_id"],
    table_joined=cs.TableJoined(name="promotions"),
    materialized=cs.Materialized(store="promotions"),
)
promotions.to_stream().to("promotions", cs.Produced(key=serdes.string(), value=serdes.json()))

config = cs.StreamsConfig(
    application_id="marketplace",
    topics_dir=HERE / "topics",
    state_dir=HERE / "state",
    partitions=2,
)
