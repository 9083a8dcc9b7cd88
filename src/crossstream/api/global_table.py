"""`GlobalKTable`: a table that is whole in every task, and views over two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, overload

import polars as pl

from crossstream.api.checks import REQUIRED, reference_of
from crossstream.api.draft import OPERATORS, Previewed, check_same_builder, child, given_name
from crossstream.api.generic import V1, K, R, V
from crossstream.api.merging import OnMerge, joiner_of
from crossstream.api.options import Named
from crossstream.api.table_joins import table_join_error
from crossstream.columns.functions import keyed
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.nodes import GlobalJoin, JoinKind
from crossstream.signatures import called_as, refuse_calls
from crossstream.typing import KeySelector, ValueJoiner


class GlobalKTable(Previewed, Generic[K, V]):
    """A table that every record may look up by any key; its topic is read to the end before other records.

    Made by `StreamsBuilder.global_table`, or of two global tables by `join` and `left_join`; never directly.
    `KStream.join` and `left_join` take it with a ``key_selector``, `KTable.join` and `left_join` with a
    ``foreign_key``. Sources: KIP-99, semantics 2.4, 3.3.

    >>> from crossstream import Consumed, StreamsBuilder, serdes
    >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
    >>> orders, customers = builder.stream("orders", consumed), builder.global_table("customers", consumed)
    >>> orders.join(customers, lambda order, customer: {**order, "customer": customer["name"]},
    ...             key_selector=lambda order: order["customer_id"])
    <KStream orders.join(customers)>
    """

    __slots__ = ()

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store that holds this table; None if `Materialized` named none, or for a view.

        >>> from crossstream import Consumed, Materialized, StreamsBuilder, serdes
        >>> consumed = Consumed(key=serdes.string(), value=serdes.json())
        >>> StreamsBuilder().global_table("shops", consumed, Materialized(store="shops")).queryable_store_name
        'shops'
        """
        return self._node.queryable_name

    @overload
    def join(
        self,
        other: GlobalKTable[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        *,
        key_selector: KeySelector,
        named: Named | None = None,
        on_merge: OnMerge = "raise",
    ) -> GlobalKTable[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[Any, V1],
        joiner: Callable[[K, V, V1], R] | keyed | pl.Expr,
        *,
        key_selector: KeySelector,
        named: Named | None = None,
        on_merge: OnMerge = "raise",
    ) -> GlobalKTable[K, R]: ...

    @refuse_calls(table_join_error)
    def join(
        self,
        other: GlobalKTable[Any, Any],
        joiner: Any = None,
        *,
        key_selector: KeySelector = REQUIRED,
        named: Named | None = None,
        on_merge: OnMerge = "raise",
    ) -> GlobalKTable[Any, Any]:
        """A view over two global tables: each row of this one, with the row of ``other`` that it selects.

        ``key_selector(value)``, or ``(key, value)``, gives the key of ``other``. The view is kept nowhere: each look-up
        reads both tables and calls the functions. It can be looked up, joined and viewed like a global table. A table
        that joins it follows both sides; where ``other`` changes, a scan of this table finds the rows that refer to
        it. Raises CS-135 for anything but a global table of this builder, CS-136 for other arguments. Sources: KIP-99,
        semantics 2.4.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> shops, cities = builder.global_table("shops", consumed), builder.global_table("cities", consumed)
        >>> shops.join(cities, lambda shop, city: {**shop, "city": city}, key_selector=lambda shop: shop["city"])
        <GlobalKTable shops.join(cities)>
        """
        return self._view("inner", other, joiner, key_selector, named, on_merge)

    @called_as(join)
    @refuse_calls(table_join_error)
    def left_join(
        self,
        other: GlobalKTable[Any, Any],
        joiner: Any = None,
        *,
        key_selector: KeySelector = REQUIRED,
        named: Named | None = None,
        on_merge: OnMerge = "raise",
    ) -> GlobalKTable[Any, Any]:
        """As `join`, and rows that find no row of ``other`` get ``joiner(left, None)``.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> shops, cities = builder.global_table("shops", consumed), builder.global_table("cities", consumed)
        >>> shops.left_join(cities, lambda shop, city: [shop, city], key_selector=lambda shop: shop["city"])
        <GlobalKTable shops.left_join(cities)>
        """
        return self._view("left", other, joiner, key_selector, named, on_merge)

    def _view(
        self,
        kind: JoinKind,
        other: GlobalKTable[Any, Any],
        joiner: ValueJoiner | None,
        key_selector: KeySelector,
        named: Named | None,
        on_merge: OnMerge,
    ) -> GlobalKTable[Any, Any]:
        operator, mine = OPERATORS[kind], self._node
        if not isinstance(other, GlobalKTable):
            _refuse(operator, other)
        check_same_builder(operator, self._draft, other._draft)
        sides = {"left": mine, "right": other._node}
        selector = reference_of(operator, "key_selector", key_selector, mine, other._node)
        function = joiner_of(operator, kind, joiner, on_merge, sides, key=selector)
        node = child(
            self._draft,
            GlobalJoin,
            f"{operator}({other._node.name})",
            mine,
            given_name(operator, named),
            parents=(mine.name, other._node.name),
            value=None,
            value_type=function.returns,
            kind=kind,
            key_selector=selector,
            joiner=function,
        )
        return GlobalKTable(self._draft, node)


def _refuse(operator: str, other: object) -> NoReturn:
    what = f"a GlobalKTable joins a GlobalKTable, not a {type(other).__name__}"
    step = "read the topic of the other one by global_table(…), or join from its side: it takes global tables"
    raise refuse("CS-135", what, step, **caller_location(operator))
