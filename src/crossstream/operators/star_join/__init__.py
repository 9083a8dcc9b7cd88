"""A table with several others, by a foreign key into each of them (`join_many`).

    law    the result holds, for each left row, joiner(left row, {name: the right row its foreign key names}), for the
           left rows whose foreign keys all name a right row (inner), or for all left rows (left join: None for those
           that are missing)

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, consumed = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.json())
    >>> orders, shops = builder.table("orders", consumed), builder.table("shops", consumed)
    >>> orders.join_many({"shop": (shops, "shop_id")}, lambda order, rows: {**order, "shop": rows["shop"]})
    <KTable orders.join_many(shop)>

Three rounds. `subscriptions.py`: how a partition of left rows gets the right rows it refers to; `kernel.py`: what it
keeps, and the results. `right_changes.py`: right rows at any moment of a batch, and for a changelog the moments at
which results change. Page: docs/joins/join-many.md, decisions 0019 and 0033.
Rules: semantics 2.6 (docs/semantics.md).
"""
