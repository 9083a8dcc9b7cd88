"""`KTable`: the last value of each key. Each method makes a node and returns a handle to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, overload

import polars as pl

from crossstream.api.checks import REQUIRED, check_option, function_of, needed_key, predicate_of
from crossstream.api.draft import child, given_name, made_values
from crossstream.api.generic import K1, V1, K, Made, OuterOptions, R, RightOptions, Stored, TableOptions, V
from crossstream.api.global_table import GlobalKTable
from crossstream.api.grouped import GroupedKTable, Groups, group_key, grouped_of
from crossstream.api.lakehouse import WrittenToTables
from crossstream.api.merging import OnMerge
from crossstream.api.options import (
    Grouped,
    Materialized,
    Named,
    Produced,
    TableJoined,
    materialized_of,
    produced_of,
)
from crossstream.api.stream import KStream
from crossstream.api.table_joins import join_many, table_join, table_join_error
from crossstream.api.types import AsSerde
from crossstream.api.windows import Suppressed, suppression
from crossstream.columns.changes import Headers
from crossstream.columns.functions import keyed
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.nodes import Filter, GroupTable, MapValues, Suppress, ToStream
from crossstream.serdes.keys import LeftOrRight
from crossstream.signatures import called_as, refuse_calls, settings_error
from crossstream.typing import (
    ForeignKeyExtractor,
    KeySelector,
    ManyJoiner,
    TopicSelector,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


class KTable(WrittenToTables, Generic[K, V]):
    """A table: at most one row for each key; null deletes it. Made by `StreamsBuilder`, never directly.

    Functions take ``value``, or ``key, value`` if they require two arguments; joiners ``left, right`` or
    ``key, left, right``, with None for a missing side. ``materialized=Materialized(store="…")`` keeps the
    result in a store that can be queried. All methods raise `TopologyError` at the caller's line: CS-104 no function
    or other parameters, CS-101 wrong option object, CS-120 name or store's name taken, CS-140 key serde that differs
    from the table's. For type checkers it is generic in key and value: ``KTable[str, Order]``. Sources: semantics 2.2,
    2.5, 3.3.

    >>> from crossstream import Consumed, StreamsBuilder, serdes
    >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
    >>> products, merchants = builder.table("products", consumed), builder.table("merchants", consumed)
    >>> products.join(merchants, lambda product, merchant: {**product, "shop": merchant["name"]},
    ...               foreign_key=lambda product: product["merchant_id"])
    <KTable products.join(merchants)>
    """

    __slots__ = ()

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store that holds this table; None if `Materialized` named none.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> consumed = Consumed(key=serdes.string(), value=serdes.json())
        >>> StreamsBuilder().table("orders", consumed, Materialized(store="orders")).queryable_store_name
        'orders'
        """
        return self._node.queryable_name

    @overload
    def filter(
        self,
        predicate: Callable[[V], object],
        named: Named | None = None,
        materialized: Materialized | None = None,
        **options: Unpack[Stored],
    ) -> KTable[K, V]: ...

    @overload
    def filter(
        self,
        predicate: Callable[[K, V], object] | keyed | pl.Expr,
        named: Named | None = None,
        materialized: Materialized | None = None,
        **options: Unpack[Stored],
    ) -> KTable[K, V]: ...

    def filter(
        self,
        predicate: Any,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        store: str | None = None,
    ) -> KTable[K, V]:
        """The rows for which the predicate holds; a row that stops matching is deleted.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().table("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.filter(lambda order: order["open"], store="open-orders")
        <KTable orders.filter>
        """
        materialized = materialized_of("filter", materialized, store)
        function = predicate_of("filter", predicate, self._node)
        return self._row_wise(Filter, "filter", named, materialized, predicate=function)

    @called_as(filter)
    def filter_not(
        self,
        predicate: Any,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        store: str | None = None,
    ) -> KTable[K, V]:
        """The rows for which the predicate does not hold.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().table("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.filter_not(lambda order: order["open"])
        <KTable orders.filter_not>
        """
        materialized = materialized_of("filter_not", materialized, store)
        function = predicate_of("filter_not", predicate, self._node)
        return self._row_wise(Filter, "filter_not", named, materialized, predicate=function, negate=True)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], R],
        named: Named | None = None,
        materialized: Materialized | None = None,
        **options: Unpack[Made],
    ) -> KTable[K, R]: ...

    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], R] | keyed | pl.Expr,
        named: Named | None = None,
        materialized: Materialized | None = None,
        **options: Unpack[Made],
    ) -> KTable[K, R]: ...

    def map_values(
        self,
        mapper: Any,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        store: str | None = None,
        value: AsSerde | None = None,
    ) -> KTable[Any, Any]:
        """A new value for each row; the mapper is not called for deletes. The value serde is forgotten.

        ``value``: the serde of the new values, or a type that has one. ``store`` makes the table queryable.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().table("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.map_values(lambda order: order["price"], value=float)
        <KTable orders.map_values>
        """
        materialized = materialized_of("map_values", materialized, store, value)
        function = function_of("map_values", "mapper", mapper, {"value": self._node})
        return self._row_wise(MapValues, "map_values", named, materialized, mapper=function)

    @overload
    def to_stream(self, mapper: None = None, named: Named | None = None) -> KStream[K, V]: ...

    @overload
    def to_stream(self, mapper: Callable[[V], R], named: Named | None = None) -> KStream[R, V]: ...

    @overload
    def to_stream(
        self, mapper: Callable[[K, V], R] | keyed | pl.Expr | str, named: Named | None = None
    ) -> KStream[R, V]: ...

    def to_stream(self, mapper: KeySelector | None = None, named: Named | None = None) -> KStream[Any, V]:
        """The changes of the table as records; a delete has the value None. ``mapper`` gives new keys.

        With ``mapper`` the key serde is forgotten, as by `KStream.select_key`.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().table("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.to_stream()
        <KStream orders.to_stream>
        """
        name = given_name("to_stream", named)
        changed: dict[str, Any] = {}
        if mapper is not None:
            function = function_of("to_stream", "mapper", mapper, {"value": self._node}, by_name=True)
            changed = {"mapper": function, "key": None, "key_type": function.returns}
        made = child(self._draft, ToStream, "to_stream", self._node, name, shape="stream", **changed)
        return KStream(self._draft, made)

    @refuse_calls(settings_error("CS-101", "to"))
    def to(
        self,
        topic: str | TopicSelector,
        produced: Produced | None = None,
        named: Named | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> None:
        """Writes every change of the table to a topic, a delete with the value None: ``to_stream().to(topic, …)``.

        ``key``, ``value``: serdes, or types that have one; without them, those of the table. ``named``: the name of the
        sink, which `Produced` may have, too. Raises as `KStream.to`.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().table("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.filter(lambda order: order["open"]).to("open-orders")
        """
        name = given_name("to", named)
        option = produced_of("to", produced, key, value)
        self.to_stream().to(topic, option if name is None else replace(option, name=name))

    @overload
    def group_by(
        self,
        mapper: Callable[[K, V], tuple[K1, V1]],
        grouped: Grouped | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> GroupedKTable[K1, V1]: ...

    @overload
    def group_by(
        self,
        mapper: Callable[[V], tuple[K1, V1]],
        grouped: Grouped | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> GroupedKTable[K1, V1]: ...

    @overload
    def group_by(
        self,
        mapper: str | pl.Expr,
        grouped: Grouped | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> GroupedKTable[Any, V]: ...

    def group_by(
        self,
        mapper: Any,
        grouped: Grouped | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> GroupedKTable[Any, Any]:
        """Groups the rows by another key: ``mapper(key, value)`` returns ``(key', value')``.

        Text or an expression gives the new key alone, and the value stays. A row whose new key or value is None belongs
        to no group. Of a table that keeps versions, the latest ones are grouped; a version behind a newer one is
        dropped, and counted (KIP-914). Raises CS-140 if the serde of the new keys is unknown.

        >>> from crossstream import StreamsBuilder
        >>> orders = StreamsBuilder().table("orders")
        >>> orders.group_by(lambda key, order: (order["customer"], order), key=str).count()
        <KTable orders.group_by.count>
        """
        option = grouped_of("group_by", grouped, key, value)
        selects = isinstance(mapper, str | pl.Expr)
        inputs = {"value": self._node}
        if selects:
            function = function_of("group_by", "mapper", mapper, inputs, by_name=True)
            made: dict[str, Any] = {"key": option.key, "key_type": function.returns}
        else:
            function = function_of("group_by", "mapper", mapper, inputs, with_key=True, expression=False)
            made = {"key": option.key, "key_type": None, "value": option.value, "value_type": None}
        node = child(
            self._draft,
            GroupTable,
            "group_by",
            self._node,
            option.name,
            mapper=function,
            selects=selects,
            **made,
        )
        found = group_key("group_by", node, option, by_field=isinstance(mapper, str))
        return GroupedKTable(self._draft, Groups(KTable, (node,), found, (option.value,)))

    def suppress(self, suppressed: Suppressed = REQUIRED, named: Named | None = None) -> KTable[K, V]:
        """Holds changes back: until windows close, or for some time; fewer of them come out.

        Raises CS-136 for `Suppressed.until_window_closes` on a table without windows, and for a table that keeps
        versions.

        >>> from crossstream import Consumed, StreamsBuilder, Suppressed, serdes
        >>> words = StreamsBuilder().stream("words", Consumed(key=serdes.string(), value=serdes.string()))
        >>> counts = words.group_by_key().windowed_by("1 hour").count()
        >>> counts.suppress(Suppressed.until_window_closes())
        <KTable words.count.suppress>
        """
        option = check_option(
            "suppress", "suppressed", None if suppressed is REQUIRED else suppressed, Suppressed
        )
        if option is None:
            step = "pass Suppressed.until_window_closes() or Suppressed.until_time_limit(duration)"
            raise refuse("CS-101", "suppress needs to know until when", step, **caller_location("suppress"))
        name = given_name("suppress", named)
        settings = suppression(self._draft.nodes, self._node, option)
        return KTable(self._draft, child(self._draft, Suppress, "suppress", self._node, name, **settings))

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
        node = table_join(
            "inner",
            self,
            other,
            joiner,
            on_merge,
            foreign_key=foreign_key,
            key_selector=key_selector,
            table_joined=table_joined,
            named=named,
            materialized=materialized_of("join", materialized, store, value),
            headers=headers,
        )
        return KTable(self._draft, node)

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
        node = table_join(
            "left",
            self,
            other,
            joiner,
            on_merge,
            foreign_key=foreign_key,
            key_selector=key_selector,
            table_joined=table_joined,
            named=named,
            materialized=materialized_of("left_join", materialized, store, value),
            headers=headers,
        )
        return KTable(self._draft, node)

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
        node = table_join(
            "outer",
            self,
            other,
            joiner,
            on_merge,
            foreign_key=foreign_key,
            keyed_by=keyed_by,
            table_joined=table_joined,
            named=named,
            materialized=materialized_of("outer_join", materialized, store, value),
            headers=headers,
        )
        return KTable(self._draft, node)

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
        node = table_join(
            "right",
            self,
            other,
            joiner,
            on_merge,
            foreign_key=foreign_key,
            keyed_by=keyed_by,
            table_joined=table_joined,
            materialized=materialized_of("right_join", materialized, store, value),
            headers=headers,
        )
        return KTable(self._draft, node)

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
        return KTable(self._draft, join_many("inner", self, others, joiner, named, option))

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
        return KTable(self._draft, join_many("left", self, others, joiner, named, option))

    def _row_wise(
        self,
        kind: type[Filter] | type[MapValues],
        path: str,
        named: Named | None,
        materialized: Materialized | None,
        **attributes: Any,
    ) -> KTable[Any, Any]:
        name = given_name(path, named)
        option = check_option(path, "materialized", materialized, Materialized)
        asked = option or Materialized()
        node = self._node
        key = None if node.key is None else needed_key(path, node.key, asked.key, "")
        if kind is Filter:
            value = asked.value or node.value
        else:
            attributes |= made_values("mapper", attributes["mapper"], asked, node)
            value = attributes.pop("value")
        spec = None if option is None else option.spec(key, value)
        made = child(self._draft, kind, path, node, name, key=key, value=value, store=spec, **attributes)
        return KTable(self._draft, made)
