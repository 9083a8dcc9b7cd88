"""KTable–KTable join by foreign key.

    law    the result holds, for each left row, joiner(left row, the right row its foreign key names), for the
           left rows whose foreign key names a right row (inner), or for all left rows (left join: None on the
           right)

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, consumed = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.json())
    >>> orders, customers = builder.table("orders", consumed), builder.table("customers", consumed)
    >>> orders.join(customers, lambda order, customer: {**order, **customer}, foreign_key="customer_id")
    <KTable orders.join(customers)>

Two rounds: `subscriptions.py` by primary key, `kernel.py` by foreign key. `unreferenced.py` has the rows of
right and outer joins that no left row refers to. With a global table: `global_join`. Page: docs/foreign-key-join.md.
Rules: semantics 2.5 (docs/semantics.md).
"""
