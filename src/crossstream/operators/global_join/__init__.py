"""Joins with a global table: of a stream, and of a table that follows both sides.

    law    a record (k, v) gives k = joiner(v, row) with its own timestamp, where row is what the global table held
           under key_selector(k, v) when the record arrived: for records that find a row (inner), or for all (left)

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> orders, shops = builder.stream("orders", words), builder.global_table("shops", words)
    >>> orders.join(shops, lambda order, shop: [order, shop], key_selector=lambda order: order)
    <KStream orders.join(shops)>

`kernel.py`: the table as a batch sees it, and the look-up; no round of its own. Pages:
docs/joins/stream-global.md, docs/joins/table-global.md.
Rules: semantics 2.4 and 2.7 (docs/semantics.md).
"""
