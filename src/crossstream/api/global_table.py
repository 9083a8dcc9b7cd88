"""`GlobalKTable`: a whole topic as a table beside every stream. It is there to be joined and queried, nothing else."""

from __future__ import annotations

from crossstream.api.draft import Draft
from crossstream.graph.nodes import Node
from crossstream.graph.validate import queryable_name


class GlobalKTable:
    """A table that every record may look up by any key, read to its end before the first other record.

    Made by `StreamsBuilder.global_table`, never directly. `KStream.join` and `left_join` take it with a
    ``key_selector``, `KTable.join` and `left_join` with a ``foreign_key``. Sources: KIP-99, semantics 2.4, 3.3.

    >>> from crossstream import Consumed, StreamsBuilder, serdes
    >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
    >>> orders, customers = builder.stream("orders", consumed), builder.global_table("customers", consumed)
    >>> orders.join(customers, lambda order, customer: {**order, "customer": customer["name"]},
    ...             key_selector=lambda order: order["customer_id"])
    <KStream orders.join(customers)>
    """

    __slots__ = ("_draft", "_node")

    def __init__(self, draft: Draft, node: Node) -> None:
        self._draft = draft
        self._node = node

    def __repr__(self) -> str:
        return f"<GlobalKTable {self._node.name}>"

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store that holds this table; None if `Materialized` named none.

        >>> from crossstream import Consumed, Materialized, StreamsBuilder, serdes
        >>> consumed = Consumed(key=serdes.string(), value=serdes.json())
        >>> StreamsBuilder().global_table("shops", consumed, Materialized(store="shops")).queryable_store_name
        'shops'
        """
        return queryable_name(self._node)
