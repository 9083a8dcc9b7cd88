"""`KStream`: records one after the other. Each method makes a node and returns a handle to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, overload

import polars as pl

from crossstream.api.branched import BranchedKStream, merged
from crossstream.api.checks import check_option, function_of, needed_key, predicate_of
from crossstream.api.databases import WrittenToDatabases
from crossstream.api.draft import child, given_name
from crossstream.api.generic import K1, V1, K, R, V
from crossstream.api.grouped import GroupedKStream
from crossstream.api.groups import Groups, group_key, grouped_of
from crossstream.api.joining_stream import JoiningStream
from crossstream.api.options import Grouped, Materialized, Named, Repartitioned, materialized_of, settings_of
from crossstream.api.processors import Processing
from crossstream.api.sinks import EndingStream
from crossstream.api.types import AsSerde, declared_key, type_of_items
from crossstream.columns.functions import keyed
from crossstream.graph import nodes as graph
from crossstream.signatures import called_as
from crossstream.typing import Action, FlatMapper

if TYPE_CHECKING:
    from crossstream.api.table import KTable


_FORGOTTEN = MappingProxyType(dict.fromkeys(("key", "key_type", "value", "value_type")))


class KStream(
    JoiningStream[K, V], EndingStream, Processing["KStream[Any, Any]"], WrittenToDatabases, Generic[K, V]
):
    """A stream of records; made by `StreamsBuilder`, never directly. Source: semantics 3.2.

    Functions take ``value``, or ``key, value`` if they require two arguments. Each method takes
    ``named=Named("…")``; without it the operator is named by its path. All raise `TopologyError` at the caller's
    line: CS-104 no function or other parameters, CS-101 wrong option object, CS-120 name taken.

    >>> from crossstream import Consumed, Produced, StreamsBuilder, serdes
    >>> builder = StreamsBuilder()
    >>> orders = builder.stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
    >>> orders.filter(lambda order: order["paid"]).to("paid-orders")
    >>> [node.name for node in builder.build()]
    ['orders', 'orders.filter', 'orders.filter.to(paid-orders)']
    """

    __slots__ = ()

    @overload
    def filter(self, predicate: Callable[[V], object], named: Named | None = None) -> KStream[K, V]: ...

    @overload
    def filter(
        self, predicate: Callable[[K, V], object] | keyed | pl.Expr, named: Named | None = None
    ) -> KStream[K, V]: ...

    def filter(self, predicate: Any, named: Named | None = None) -> KStream[K, V]:
        """The records for which the predicate holds.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.filter(lambda key, order: key != "test" and order["price"] > 0)
        <KStream orders.filter>
        """
        function = predicate_of("filter", predicate, self._node)
        return self._child(graph.Filter, "filter", named, predicate=function)

    @called_as(filter)
    def filter_not(self, predicate: Any, named: Named | None = None) -> KStream[K, V]:
        """The records for which the predicate does not hold.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.filter_not(lambda order: order["test"])
        <KStream orders.filter_not>
        """
        function = predicate_of("filter_not", predicate, self._node)
        return self._child(graph.Filter, "filter_not", named, predicate=function, negate=True)

    @overload
    def map(self, mapper: Callable[[K, V], tuple[K1, V1]], named: Named | None = None) -> KStream[K1, V1]: ...

    @overload
    def map(self, mapper: Callable[[V], tuple[K1, V1]], named: Named | None = None) -> KStream[K1, V1]: ...

    def map(self, mapper: Any, named: Named | None = None) -> KStream[Any, Any]:
        """One record for each, ``(key', value')``. Both serdes are forgotten: what follows must give its own.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.map(lambda key, order: (order["customer"], order["price"]))
        <KStream orders.map>
        """
        function = function_of("map", "mapper", mapper, self._input(), with_key=True, expression=False)
        return self._child(graph.Map, "map", named, mapper=function, **_FORGOTTEN)

    @overload
    def map_values(self, mapper: Callable[[V], R], named: Named | None = None) -> KStream[K, R]: ...

    @overload
    def map_values(
        self, mapper: Callable[[K, V], R] | keyed | pl.Expr, named: Named | None = None
    ) -> KStream[K, R]: ...

    def map_values(self, mapper: Any, named: Named | None = None) -> KStream[K, Any]:
        """A new value for each record, same key. The value serde is forgotten.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.map_values(lambda order: order["price"], named=Named("prices"))
        <KStream prices>
        """
        function = function_of("map_values", "mapper", mapper, self._input())
        made = {"value": None, "value_type": function.returns}
        return self._child(graph.MapValues, "map_values", named, mapper=function, **made)

    def flat_map(self, mapper: FlatMapper, named: Named | None = None) -> KStream[Any, Any]:
        """Any number of records ``(key', value')`` for each, in a list or another iterable; None means no record.

        Both serdes are forgotten. Text or a dict instead of a list is a failure of the function (CS-501).

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.flat_map(lambda key, order: [(item, key) for item in order["items"]])
        <KStream orders.flat_map>
        """
        function = function_of(
            "flat_map", "mapper", mapper, self._input(), with_key=True, expression=False, several=True
        )
        return self._child(graph.FlatMap, "flat_map", named, mapper=function, **_FORGOTTEN)

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[R] | None], named: Named | None = None
    ) -> KStream[K, R]: ...

    @overload
    def flat_map_values(
        self, mapper: Callable[[K, V], Iterable[R] | None] | keyed | pl.Expr, named: Named | None = None
    ) -> KStream[K, R]: ...

    def flat_map_values(self, mapper: Any, named: Named | None = None) -> KStream[K, Any]:
        """Any number of values for each record, in a list or another iterable, with its key; None means no value.

        The value serde is forgotten. Text or a dict instead of a list is a failure of the function (CS-501).

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.flat_map_values(lambda order: order["items"])
        <KStream orders.flat_map_values>
        """
        function = function_of("flat_map_values", "mapper", mapper, self._input(), several=True)
        made = {"value": None, "value_type": type_of_items(function, "flat_map_values")}
        function = replace(function, returns=None)
        return self._child(graph.FlatMapValues, "flat_map_values", named, mapper=function, **made)

    @overload
    def select_key(self, mapper: Callable[[V], R], named: Named | None = None) -> KStream[R, V]: ...

    @overload
    def select_key(
        self, mapper: Callable[[K, V], R] | keyed | pl.Expr | str, named: Named | None = None
    ) -> KStream[R, V]: ...

    def select_key(self, mapper: Any, named: Named | None = None) -> KStream[Any, V]:
        """A new key for each record, same value. The key serde is forgotten: the next operation by key needs
        ``Repartitioned(key=…)``, ``Materialized(key=…)`` or ``Produced(key=…)``.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.select_key(lambda order: order["customer"])
        <KStream orders.select_key>
        """
        function = function_of("select_key", "mapper", mapper, self._input(), by_name=True)
        made = {"key": None, "key_type": function.returns}
        return self._child(graph.SelectKey, "select_key", named, mapper=function, **made)

    def merge(self, *others: KStream[K1, V1], named: Named | None = None) -> KStream[K | K1, V | V1]:
        """The records of several streams, interleaved. A serde is kept if all inputs share it.

        If one record reaches several inputs, its results come in the order in which the operators were built, as in
        Kafka. If it becomes several records before the stream branches, each of these passes all branches before the
        next one, unless a branch has a join or a re-keying. Streams with different key serdes keep only their own
        order. Raises CS-135 for anything but streams of one builder.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> builder.stream("orders", consumed).merge(builder.stream("returns", consumed))
        <KStream orders.merge(returns)>
        """
        return KStream(self._draft, merged(self, others, named))

    def split(self, named: Named | None = None) -> BranchedKStream[KStream[K, V]]:
        """Begins a split: each record goes to the first branch whose predicate holds.

        ``default_branch()`` or ``no_default_branch()`` returns a dict of name to stream. A name is the prefix ``named``
        plus the branch's name or number; the number of the default branch is 0. Raises CS-120 if the name is taken.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.split().branch(lambda order: order["price"] > 100, "dear").default_branch("cheap")
        {'dear': <KStream orders.split.dear>, 'cheap': <KStream orders.split.cheap>}
        """
        prefix = given_name("split", named)
        if prefix is not None:
            self._draft.check_name(prefix)
        return BranchedKStream(self._draft, self._node, prefix, KStream)

    def peek(self, action: Action, named: Named | None = None) -> KStream[K, V]:
        """Calls the action for each record and forwards the record unchanged. A repeated batch calls it again.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.peek(lambda key, order: None)
        <KStream orders.peek>
        """
        function = function_of("peek", "action", action, self._input(), with_key=True, expression=False)
        return self._child(graph.Peek, "peek", named, action=function)

    @overload
    def repartition(self, *, key: AsSerde | None = None, partitions: int | None = None) -> KStream[K, V]: ...

    @overload
    def repartition(
        self,
        repartitioned: Repartitioned | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
        partitions: int | None = None,
    ) -> KStream[K, Any]: ...

    def repartition(
        self,
        repartitioned: Repartitioned | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
        partitions: int | None = None,
    ) -> KStream[K, Any]:
        """Moves the records to the partitions of their keys now, instead of at the next operation by key.

        ``key``, ``value``: serdes, or types that have one. Raises CS-140 if the key serde is unknown.

        >>> from crossstream import StreamsBuilder
        >>> orders = StreamsBuilder().stream("orders")
        >>> orders.select_key(lambda order: order["customer"]).repartition(key=str)
        <KStream orders.select_key.repartition>
        """
        given = check_option("repartition", "repartitioned", repartitioned, Repartitioned)
        short = {"key": key, "value": value, "partitions": partitions}
        option = settings_of("repartition", "repartitioned", given, Repartitioned, **short) or Repartitioned()
        node = self._node
        settings = {
            "key": option.key or needed_key("repartition", declared_key(node), None, "key=…"),
            "value": option.value or node.value,
            "partitioner": option.partitioner,
            "partitions": option.partitions,
        }
        made = child(self._draft, graph.Repartition, "repartition", node, option.name, **settings)
        return KStream(self._draft, made)

    def to_table(
        self,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
        store: str | None = None,
    ) -> KTable[K, V]:
        """Reads the stream as a table: the last value of each key; null deletes, a null key is dropped.

        Raises CS-140 if the key serde is unknown or differs from ``Materialized(key=)``, CS-120 if the store's name is
        taken.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.to_table(store="last-order").queryable_store_name
        'last-order'
        """
        from crossstream.api.table import KTable

        name = given_name("to_table", named)
        option = materialized_of("to_table", materialized, store)
        short = {"key": key, "value": value}
        asked = settings_of("to_table", "materialized", option, Materialized, **short) or Materialized()
        node = self._node
        key = needed_key("to_table", declared_key(node), asked.key, "key=…")
        value = asked.value or node.value
        spec = None if option is None else option.spec(key, value, of_records=True)
        made = child(
            self._draft,
            graph.ToTable,
            "to_table",
            node,
            name,
            shape="table",
            key=key,
            value=value,
            store=spec,
        )
        return KTable(self._draft, made)

    @overload
    def group_by_key(self, *, key: AsSerde | None = None) -> GroupedKStream[K, V]: ...

    @overload
    def group_by_key(
        self, grouped: Grouped | None = None, *, key: AsSerde | None = None, value: AsSerde | None = None
    ) -> GroupedKStream[K, Any]: ...

    def group_by_key(
        self, grouped: Grouped | None = None, *, key: AsSerde | None = None, value: AsSerde | None = None
    ) -> GroupedKStream[K, Any]:
        """Groups the records by their keys, to be counted or aggregated.

        ``key``, ``value``: serdes, or types that have one, where they are unknown. Raises CS-140
        without one for the keys.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> words = StreamsBuilder().stream("words", Consumed(key=serdes.string(), value=serdes.string()))
        >>> words.group_by_key().count()
        <KTable words.count>
        """
        option = grouped_of("group_by_key", grouped, key, value)
        return self._grouped("group_by_key", self._node, option)

    @overload
    def group_by(
        self,
        selector: Callable[[V], R],
        grouped: Grouped | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> GroupedKStream[R, V]: ...

    @overload
    def group_by(
        self,
        selector: Callable[[K, V], R] | keyed | pl.Expr | str,
        grouped: Grouped | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> GroupedKStream[R, V]: ...

    def group_by(
        self,
        selector: Any,
        grouped: Grouped | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> GroupedKStream[Any, V]:
        """Groups the records by the key that ``selector`` returns; text names a field of the value.

        ``key``, ``value``: serdes, or types that have one. The keys of a field of undeclared type are str. Raises
        CS-140 if ``key`` is needed: where a function returns it, and its type is not declared.

        >>> from crossstream import StreamsBuilder
        >>> words = StreamsBuilder().stream("words", value=str)
        >>> words.group_by(lambda word: word.lower(), key=str).count()
        <KTable words.group_by.count>
        """
        option = grouped_of("group_by", grouped, key, value)
        function = function_of("group_by", "selector", selector, self._input(), by_name=True)
        made = {"key": option.key, "key_type": function.returns}
        node = child(
            self._draft, graph.SelectKey, "group_by", self._node, option.name, mapper=function, **made
        )
        return self._grouped("group_by", node, option, by_field=isinstance(selector, str))

    def _grouped(
        self, operator: str, node: graph.Node, option: Grouped, *, by_field: bool = False
    ) -> GroupedKStream[Any, V]:
        from crossstream.api.table import KTable

        key = group_key(operator, node, option, by_field=by_field)
        return GroupedKStream(self._draft, Groups(KTable, (node,), key, (option.value,)))

    def _input(self) -> Mapping[str, graph.Node]:
        return {"value": self._node}

    def _child(
        self, kind: type[graph.Node], path: str, named: Named | None, **attributes: Any
    ) -> KStream[Any, Any]:
        name = given_name(path.partition("(")[0], named)
        return KStream(self._draft, child(self._draft, kind, path, self._node, name, **attributes))
