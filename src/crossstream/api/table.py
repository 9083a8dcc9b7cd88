"""`KTable`: the last value of each key. Each method makes a node and returns a handle to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, overload

import polars as pl

from crossstream.api.checks import REQUIRED, check_option, function_of, needed_key, predicate_of
from crossstream.api.databases import WrittenToDatabases
from crossstream.api.draft import child, given_name, made_values
from crossstream.api.generic import K1, V1, K, Made, R, Stored, V
from crossstream.api.grouped import GroupedKTable
from crossstream.api.groups import Groups, group_key, grouped_of
from crossstream.api.joining_table import JoiningTable
from crossstream.api.nesting import nest
from crossstream.api.options import Grouped, Materialized, Named, Produced, materialized_of, produced_of
from crossstream.api.stream import KStream
from crossstream.api.types import AsSerde
from crossstream.api.windows import Suppressed, suppression
from crossstream.columns.functions import keyed
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.nodes import Filter, GroupTable, MapValues, Suppress, ToStream
from crossstream.signatures import called_as, refuse_calls, settings_error
from crossstream.typing import KeySelector, TopicSelector

if TYPE_CHECKING:
    from typing_extensions import Unpack


class KTable(JoiningTable[K, V], WrittenToDatabases, Generic[K, V]):
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

    def nest(
        self,
        children: KTable[Any, Any],
        foreign_key: str | pl.Expr = REQUIRED,
        into: str = REQUIRED,
        *,
        named: Named | None = None,
        materialized: Materialized | None = None,
        store: str | None = None,
        value: AsSerde | None = None,
    ) -> KTable[K, Any]:
        """Each row of this table with the list of the rows of another one that refer to it, kept right as both change.

        ``foreign_key`` names the field of the children that has this table's key, or is an expression of it. ``into``
        names the new field: the children in order of their keys, an empty list without any. A child without a parent is
        in no result until there is one. A change of a child writes its parent with the whole list. Both types have to
        be declared. Raises CS-135 for anything but a table of this builder, CS-104 for another kind of foreign key,
        CS-113 for rows without declared fields, CS-134 for a foreign key that is of another type than this table's
        key, CS-136 for a field that is there already. Source: semantics 3.23.

        >>> import polars as pl
        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, key = StreamsBuilder(), serdes.int64()
        >>> customer = serdes.json({"name": pl.String})
        >>> order = serdes.json({"customer_id": pl.Int64, "price": pl.Float64})
        >>> customers = builder.table("customers", Consumed(key=key, value=customer))
        >>> orders = builder.table("orders", Consumed(key=key, value=order))
        >>> customers.nest(orders, foreign_key="customer_id", into="orders", store="customers")
        <KTable customers.nest(orders)>
        """
        return self._made(nest(self, children, foreign_key, into, named, materialized, store, value))

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
