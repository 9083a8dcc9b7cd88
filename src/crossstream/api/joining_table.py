"""The joins of a `KTable`, as users call them. What they check and add is in `table_joins`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, cast, overload

import polars as pl

from crossstream.api.draft import Handle
from crossstream.api.generic import V1, K, OuterOptions, R, RightOptions, TableOptions, V
from crossstream.api.merging import OnMerge
from crossstream.api.options import Materialized, Named, TableJoined, materialized_of
from crossstream.api.table_joins import join_many, table_join, table_join_error
from crossstream.api.types import AsSerde
from crossstream.columns.changes import Headers
from crossstream.columns.functions import keyed
from crossstream.graph.nodes import ForeignKeyKind, Node
from crossstream.serdes.keys import LeftOrRight
from crossstream.signatures import called_as, refuse_calls
from crossstream.typing import ForeignKeyExtractor, KeySelector, ManyJoiner

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from crossstream.api.global_table import GlobalKTable
    from crossstream.api.table import KTable


class JoiningTable(Handle, Generic[K, V]):
    """The joins of a table with another table, several tables or a global table."""

    __slots__ = ()

    @overload
    def join(
        self,
        other: KTable[Any, V1] | GlobalKTable[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[Any, V1] | GlobalKTable[Any, V1],
        joiner: Callable[[K, V, V1], R] | keyed | pl.Expr,
        **options: Unpack[TableOptions],
    ) -> KTable[K, R]: ...

    @refuse_calls(table_join_error)
    def join(
        self,
        other: KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Any = None,
        *,
        on_merge: OnMerge = "raise",
        foreign_key: ForeignKeyExtractor | None = None,
        key_selector: KeySelector | None = None,
        table_joined: TableJoined | None = None,
        named: Named | None = None,
        materialized: Materialized | None = None,
        store: str | None = None,
        value: AsSerde | None = None,
        headers: Headers | None = None,
    ) -> KTable[Any, Any]:
        """Inner join with a table: by key, or by the ``foreign_key`` that each row of this table holds.

        Without ``joiner`` the result has the fields of both rows. ``on_merge`` says what happens to fields that both
        have: ``"raise"`` refuses them, ``"keep-left"`` and ``"keep-right"`` keep one, ``cs.prefixed("customer_")``
        renames all fields of the other row. A text as ``foreign_key`` names a field.

        The result is keyed like this table. ``store`` makes it queryable. Its value serde is ``value`` or that of
        ``materialized``; without one a named result is JSON if this table is. ``table_joined`` only with, ``named``
        only without ``foreign_key``. Raises CS-135 for anything but a table of this builder, CS-136 for options of
        another kind of join, CS-134 for keys of different serdes, CS-128 for different partition counts.

        ``headers="left"``, ``"right"`` or ``"both"``: whose headers a change of the result has; without it, those of
        the change that gives it. "both": those of the left row, then those of the right row.

        With a `GlobalKTable` always by ``foreign_key`` (or ``key_selector``, which means the same); changes of both
        sides change the result (KIP-314, decision 0021).

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> views, clicks = builder.table("views", consumed), builder.table("clicks", consumed)
        >>> views.join(clicks, lambda view, click: [view, click])
        <KTable views.join(clicks)>
        >>> views.join(clicks, foreign_key="click_id", on_merge="keep-left", store="last-clicks")
        <KTable views.join(clicks)-2>
        >>> users = builder.global_table("users", consumed)
        >>> views.join(users, lambda view, user: [view, user], foreign_key=lambda view: view["user"])
        <KTable views.join(users)>
        """
        return self._join("inner", locals())

    @called_as(join)
    @refuse_calls(table_join_error)
    def left_join(
        self,
        other: KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Any = None,
        *,
        on_merge: OnMerge = "raise",
        foreign_key: ForeignKeyExtractor | None = None,
        key_selector: KeySelector | None = None,
        table_joined: TableJoined | None = None,
        named: Named | None = None,
        materialized: Materialized | None = None,
        store: str | None = None,
        value: AsSerde | None = None,
        headers: Headers | None = None,
    ) -> KTable[Any, Any]:
        """Left join with a table: as `join`, and rows without a partner get ``joiner(left, None)``.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> views, clicks = builder.table("views", consumed), builder.table("clicks", consumed)
        >>> views.left_join(clicks, lambda view, click: [view, click])
        <KTable views.left_join(clicks)>
        """
        return self._join("left", locals())

    @overload
    def outer_join(
        self,
        other: KTable[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        **options: Unpack[OuterOptions],
    ) -> KTable[Any, R]: ...

    @overload
    def outer_join(
        self,
        other: KTable[Any, V1],
        joiner: Callable[[K, V, V1], R] | keyed | pl.Expr,
        **options: Unpack[OuterOptions],
    ) -> KTable[Any, R]: ...

    @refuse_calls(table_join_error)
    def outer_join(
        self,
        other: KTable[Any, Any],
        joiner: Any = None,
        *,
        on_merge: OnMerge = "raise",
        foreign_key: ForeignKeyExtractor | None = None,
        keyed_by: type[LeftOrRight] | None = None,
        table_joined: TableJoined | None = None,
        named: Named | None = None,
        materialized: Materialized | None = None,
        store: str | None = None,
        value: AsSerde | None = None,
        headers: Headers | None = None,
    ) -> KTable[Any, Any]:
        """Outer join with a table: a row wherever either table has one; the missing side is None.

        By ``foreign_key`` the result has the rows of `left_join`, and a row for each row of the other table that
        no row of this one refers to. Then ``keyed_by=LeftOrRight`` is required (CS-136).

        >>> from crossstream import Consumed, LeftOrRight, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> products, merchants = builder.table("products", consumed), builder.table("merchants", consumed)
        >>> products.outer_join(merchants, lambda product, merchant: [product, merchant])
        <KTable products.outer_join(merchants)>
        >>> products.outer_join(merchants, lambda product, merchant: [product, merchant],
        ...                     foreign_key=lambda product: product["merchant_id"], keyed_by=LeftOrRight)
        <KTable products.outer_join(merchants)-2>
        """
        return self._join("outer", locals())

    @overload
    def right_join(
        self,
        other: KTable[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        **options: Unpack[RightOptions],
    ) -> KTable[Any, R]: ...

    @overload
    def right_join(
        self,
        other: KTable[Any, V1],
        joiner: Callable[[K, V, V1], R] | keyed | pl.Expr,
        **options: Unpack[RightOptions],
    ) -> KTable[Any, R]: ...

    @refuse_calls(table_join_error)
    def right_join(
        self,
        other: KTable[Any, Any],
        joiner: Any = None,
        *,
        on_merge: OnMerge = "raise",
        foreign_key: ForeignKeyExtractor | None = None,
        keyed_by: type[LeftOrRight] | None = None,
        table_joined: TableJoined | None = None,
        materialized: Materialized | None = None,
        store: str | None = None,
        value: AsSerde | None = None,
        headers: Headers | None = None,
    ) -> KTable[Any, Any]:
        """Right join with a table by ``foreign_key``: the rows of `join`, and ``joiner(None, right)`` for each row
        of the other table that no row of this one refers to.

        ``keyed_by=LeftOrRight`` is required (CS-136). There is no right join by key: it is the left join of the other
        table with this one (CS-136). Source: decision 0018.

        >>> from crossstream import Consumed, LeftOrRight, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> products, merchants = builder.table("products", consumed), builder.table("merchants", consumed)
        >>> products.right_join(merchants, lambda product, merchant: [product, merchant],
        ...                     foreign_key=lambda product: product["merchant_id"], keyed_by=LeftOrRight)
        <KTable products.right_join(merchants)>
        """
        return self._join("right", locals())

    @refuse_calls(table_join_error)
    def join_many(
        self,
        others: Mapping[str, tuple[KTable[Any, Any], ForeignKeyExtractor]],
        joiner: ManyJoiner | None = None,
        *,
        named: Named | None = None,
        materialized: Materialized | None = None,
        store: str | None = None,
        value: AsSerde | None = None,
    ) -> KTable[Any, Any]:
        """Inner join with several tables, by a foreign key into each of them: name → (table, foreign key).

        The joiner is called ``joiner(left, rows)`` or ``joiner(key, left, rows)``; ``rows`` is a dict by name. An
        expression has the struct columns ``left`` and one for each name. Without a joiner the result has the fields of
        this row, and each other row under its name. The result equals that of a chain of
        foreign-key joins, but the left rows are stored once. Raises CS-136 for names or pairs that are not valid, and
        as `join`. Source: decision 0019.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> orders, customers, products = (builder.table(t, consumed) for t in ("orders", "customers", "products"))
        >>> orders.join_many(
        ...     {"customer": (customers, lambda order: order["customer"]),
        ...      "product": (products, lambda order: order["product"])},
        ...     lambda order, rows: {**order, "name": rows["customer"]["name"], "price": rows["product"]["price"]})
        <KTable orders.join_many(customer,product)>
        """
        option = materialized_of("join_many", materialized, store, value)
        return self._made(join_many("inner", self, others, joiner, named, option))

    @refuse_calls(table_join_error)
    def left_join_many(
        self,
        others: Mapping[str, tuple[KTable[Any, Any], ForeignKeyExtractor]],
        joiner: ManyJoiner | None = None,
        *,
        named: Named | None = None,
        materialized: Materialized | None = None,
        store: str | None = None,
        value: AsSerde | None = None,
    ) -> KTable[Any, Any]:
        """Left join with several tables: as `join_many`, and every row of this table has a result.

        The joiner gets None for a table that has no row of the foreign key, or where the foreign key is None.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> orders, customers = builder.table("orders", consumed), builder.table("customers", consumed)
        >>> orders.left_join_many({"customer": (customers, lambda order: order.get("customer"))},
        ...                       lambda order, rows: {**order, **rows})
        <KTable orders.left_join_many(customer)>
        """
        option = materialized_of("left_join_many", materialized, store, value)
        return self._made(join_many("left", self, others, joiner, named, option))

    def _join(self, kind: ForeignKeyKind, arguments: Mapping[str, Any]) -> KTable[Any, Any]:
        """``arguments``: all of the method's, by name."""
        settings = {name: given for name, given in arguments.items() if name not in ("self", "other")}
        return self._made(table_join(kind, self, arguments["other"], settings))

    def _made(self, node: Node) -> KTable[Any, Any]:
        return cast("KTable[Any, Any]", type(self)(self._draft, node))
