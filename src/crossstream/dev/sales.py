"""Orders with the names of their customers, from two Delta tables of a lake. No jar, and no topic.

Each commit of either table changes the rows of the result that it concerns. The result is a store, which Spark reads
as a table, and a third table of the lake.

    crossstream run sales.py        # until Ctrl-C; --once: process the commits there are, and exit
    crossstream describe sales.py
"""

from pathlib import Path

import crossstream as cs

HERE = Path(__file__).parent

builder = cs.StreamsBuilder()
orders = builder.table_from_delta(HERE / "lake" / "orders", key="id")
customers = builder.table_from_delta(HERE / "lake" / "customers", key="id")

sales = orders.join(customers, foreign_key="customer_id", on_merge=cs.prefixed("customer_"), store="sales")
sales.to_delta(HERE / "lake" / "sales", key="id")

config = cs.StreamsConfig(application_id="sales", state_dir=HERE / "state", partitions=2)
