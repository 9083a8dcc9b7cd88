"""`KStream`: records one after the other. Each method makes a node and returns a handle to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, overload

import polars as pl

from crossstream.api.branched import BranchedKStream, PrintRecord, merged
from crossstream.api.checks import (
    check_option,
    check_signature,
    check_topic,
    function_of,
    known_serdes,
    needed_key,
    predicate_of,
)
from crossstream.api.draft import child, given_name
from crossstream.api.generic import K1, V1, ByFunction, K, OuterByFunction, R, V
from crossstream.api.grouped import GroupedKStream, Groups, group_key, grouped_of
from crossstream.api.lakehouse import WrittenToTables
from crossstream.api.merging import OnMerge
from crossstream.api.options import (
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    StreamJoined,
    materialized_of,
    produced_of,
    settings_of,
)
from crossstream.api.processors import Processing
from crossstream.api.stream_joins import stream_join, stream_join_error
from crossstream.api.types import AsSerde, declared_key, declared_value, type_of_items
from crossstream.columns.changes import Headers
from crossstream.columns.functions import keyed
from crossstream.durations import Duration
from crossstream.graph import nodes as graph
from crossstream.serdes.serde import written_to
from crossstream.signatures import called_as, fits_call, refuse_calls, settings_error
from crossstream.typing import (
    Action,
    BatchFunction,
    FlatMapper,
    KeySelector,
    TopicSelector,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from crossstream.api.global_table import GlobalKTable
    from crossstream.api.table import KTable


_FORGOTTEN = MappingProxyType(dict.fromkeys(("key", "key_type", "value", "value_type")))


class KStream(Processing["KStream[Any, Any]"], WrittenToTables, Generic[K, V]):
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

    def foreach(self, action: Action, named: Named | None = None) -> None:
        """Calls the action for each record; nothing follows. A repeated batch calls it again.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.foreach(lambda key, order: None)
        """
        function = function_of("foreach", "action", action, self._input(), with_key=True, expression=False)
        self._child(graph.Peek, "foreach", named, action=function, terminal=True, shape="none")

    def print(self, label: str | None = None, named: Named | None = None) -> None:
        """Prints ``[label]: key, value`` for each record, where it is processed.

        The label is the stream's name if it is not given.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.print("seen")
        """
        action = PrintRecord(self._node.name if label is None else label)
        function = function_of("print", "action", keyed(action), self._input())
        self._child(graph.Peek, "print", named, action=function, terminal=True, shape="none")

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
        spec = None if option is None else option.spec(key, value)
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

    @overload
    def join(
        self,
        other: KStream[Any, V1],
        joiner: Callable[[V, V1], R] | None,
        windows: JoinWindows,
        stream_joined: StreamJoined | None = None,
        *,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: KStream[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        *,
        within: Duration,
        grace: Duration | None = None,
        stream_joined: StreamJoined | None = None,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: KStream[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        *,
        before: Duration,
        after: Duration,
        grace: Duration | None = None,
        stream_joined: StreamJoined | None = None,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        joined: Joined | None = None,
        *,
        grace: Duration | None = None,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        *,
        key_selector: KeySelector,
        named: Named | None = None,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: KStream[Any, V1] | KTable[Any, V1] | GlobalKTable[Any, V1],
        joiner: Callable[[K, V, V1], R] | keyed | pl.Expr,
        windows: JoinWindows | Joined | None = None,
        **options: Unpack[ByFunction],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[K1, V1],
        joiner: Callable[[K, K1, V, V1], R],
        **options: Unpack[ByFunction],
    ) -> KStream[K, R]: ...

    @refuse_calls(stream_join_error)  # type: ignore[misc]  # a table's third argument is called joined
    def join(
        self,
        other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Any = None,
        windows: JoinWindows | Joined | None = None,
        stream_joined: StreamJoined | None = None,
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        joined: Joined | None = None,
        key_selector: KeySelector | None = None,
        named: Named | None = None,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[Any, Any]:
        """Inner join; the other side decides which one.

        With a `KStream`: ``join(stream, joiner, windows, stream_joined=None)``. One result for each pair of records
        with one key whose timestamps fit ``windows``, at the later timestamp. Records without key or value are dropped
        and counted.

        With a `KTable`: ``join(table, joiner, joined=None)``. Each record sees the row that its key had when the record
        arrived; in a versioned table the version valid at its timestamp, with ``Joined(grace=…)`` that much later.
        The result has the record's key and timestamp. Changes of the table trigger no result. Records without key or
        value are dropped and counted.

        With a `GlobalKTable`: ``join(table, joiner, key_selector=…, named=None)``. ``key_selector`` returns the key of
        the table's row, from the value or from key and value, which may both be None. The result has the stream's key
        and timestamp. A record whose value or selected key is None is dropped and counted. A joiner with four arguments
        gets both keys: ``(key, other_key, left, right)``.

        ``headers="left"``, ``"right"`` or ``"both"``: whose headers a result has; without it, those of the record that
        gives it. "both": those of the left side, then those of the right side; a missing side has none.

        Raises CS-135 for an other side that a stream cannot join, CS-136 for options of another kind of join.
        Sources: semantics 2.1, 2.3, 2.4.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> orders, shops = builder.stream("orders", consumed), builder.global_table("shops", consumed)
        >>> orders.join(shops, lambda order, shop: [order, shop], key_selector=lambda order: order["shop"])
        <KStream orders.join(shops)>
        """
        return self._join(
            "inner",
            other,
            joiner,
            windows,
            stream_joined=stream_joined,
            within=within,
            before=before,
            after=after,
            grace=grace,
            joined=joined,
            key_selector=key_selector,
            named=named,
            on_merge=on_merge,
            headers=headers,
        )

    @called_as(join)
    @refuse_calls(stream_join_error)
    def left_join(
        self,
        other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Any = None,
        windows: JoinWindows | Joined | None = None,
        stream_joined: StreamJoined | None = None,
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        joined: Joined | None = None,
        key_selector: KeySelector | None = None,
        named: Named | None = None,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[Any, Any]:
        """Left join: as `join`, and records without a partner get ``joiner(left, None)``.

        With a `KStream` when the window has closed and the grace period is over; with ``eager`` windows at once,
        even if partners follow. A record with a value and without a key comes out alone at once. With a `KTable` each
        record that has a value comes out once, even without a key. With a `GlobalKTable` also records whose selected
        key is None; only a null value is dropped and counted.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> orders, shops = builder.stream("orders", consumed), builder.global_table("shops", consumed)
        >>> orders.left_join(shops, lambda order, shop: [order, shop], key_selector=lambda order: order["shop"])
        <KStream orders.left_join(shops)>
        """
        return self._join(
            "left",
            other,
            joiner,
            windows,
            stream_joined=stream_joined,
            within=within,
            before=before,
            after=after,
            grace=grace,
            joined=joined,
            key_selector=key_selector,
            named=named,
            on_merge=on_merge,
            headers=headers,
        )

    @overload
    def outer_join(
        self,
        other: KStream[Any, V1],
        joiner: Callable[[V, V1], R] | None,
        windows: JoinWindows,
        stream_joined: StreamJoined | None = None,
        *,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[K, R]: ...

    @overload
    def outer_join(
        self,
        other: KStream[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        *,
        within: Duration,
        grace: Duration | None = None,
        stream_joined: StreamJoined | None = None,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[K, R]: ...

    @overload
    def outer_join(
        self,
        other: KStream[Any, V1],
        joiner: Callable[[V, V1], R] | None = None,
        *,
        before: Duration,
        after: Duration,
        grace: Duration | None = None,
        stream_joined: StreamJoined | None = None,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[K, R]: ...

    @overload
    def outer_join(
        self,
        other: KStream[Any, V1],
        joiner: Callable[[K, V, V1], R],
        windows: JoinWindows | None = None,
        **options: Unpack[OuterByFunction],
    ) -> KStream[K, R]: ...

    @overload
    def outer_join(
        self,
        other: KStream[Any, Any],
        joiner: keyed | pl.Expr,
        windows: JoinWindows | None = None,
        **options: Unpack[OuterByFunction],
    ) -> KStream[K, Any]: ...

    @refuse_calls(stream_join_error)
    def outer_join(
        self,
        other: KStream[Any, Any],
        joiner: Any = None,
        windows: JoinWindows | None = None,
        stream_joined: StreamJoined | None = None,
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        on_merge: OnMerge = "raise",
        headers: Headers | None = None,
    ) -> KStream[Any, Any]:
        """Outer join with another stream: as `left_join`, on both sides. Tables have no outer join with a stream.

        >>> from crossstream import Consumed, JoinWindows, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.json())
        >>> views, clicks = builder.stream("views", consumed), builder.stream("clicks", consumed)
        >>> views.outer_join(clicks, lambda view, click: [view, click], JoinWindows.of("10 seconds"))
        <KStream views.outer_join(clicks)>
        """
        return self._join(
            "outer",
            other,
            joiner,
            windows,
            stream_joined=stream_joined,
            within=within,
            before=before,
            after=after,
            grace=grace,
            on_merge=on_merge,
            headers=headers,
        )

    def _join(
        self, kind: graph.JoinKind, other: object, joiner: Any, windows: Any, **settings: Any
    ) -> KStream[Any, Any]:
        return KStream(self._draft, stream_join(kind, self, other, joiner, windows, settings))

    @refuse_calls(settings_error("CS-101", "to"))
    def to(
        self,
        topic: str | TopicSelector,
        produced: Produced | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> None:
        """Writes every record to a topic, or to the topic that ``topic(key, value)`` returns.

        ``key``, ``value``: serdes, or types that have one. Without them they are those of the stream: of its topic, or
        of the type that an expression, an annotation or a join without a joiner gives.

        A topic of Kafka must exist (CS-652). A missing file topic is created with one partition, but not one that a
        function names (CS-652). Several streams may write to one topic: the results of a record stay in order, and
        before those of later records. Raises CS-140 where a serde is unknown, CS-102 for a name that Kafka does not
        allow, CS-104 for a function that does not take key and value. Source: semantics 3.12.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.map_values(lambda order: order["price"]).to("prices", value=float)
        """
        option = produced_of("to", produced, key, value)
        node, path = self._node, f"to({topic})"
        target: dict[str, Any] = {"topic": topic}
        if callable(topic):
            check_signature("to", "topic", topic, ("key", "value"))
            path, target = "to", {"topic_of": topic}
        else:
            check_topic("to", topic)
        kept = option.key or declared_key(node), option.value or declared_value(node)
        key, value = known_serdes(path, *kept, "pass {}")
        named = None if callable(topic) else topic
        key, value = written_to(key, named, is_key=True), written_to(value, named, is_key=False)
        settings = {**target, "partitioner": option.partitioner, "shape": "none"}
        child(self._draft, graph.Sink, path, node, option.name, key=key, value=value, **settings)

    def for_each_batch(self, function: BatchFunction, named: Named | None = None) -> None:
        """Calls ``function(frame, batch_id)`` in the driver with a Spark DataFrame of each batch's records.

        Columns: key, value (a struct for JSON), timestamp. Declare the type of JSON values; without one it is inferred
        from the records of each batch. The call comes before the batch is committed, and again with the same
        ``batch_id`` if the batch is repeated: write idempotently, or check the id. Batches without records are skipped.
        The records of a batch pass through the driver. A function that requires three arguments also gets a
        `BatchMark`: of which application, sink and state the batch is. `once_in` makes one for databases.

        >>> import polars as pl
        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> order = serdes.json({"price": pl.Float64})
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=order))
        >>> orders.for_each_batch(lambda frame, n: frame.write.mode("overwrite").parquet(f"orders/batch={n}"))
        """
        given: Any = function
        with_mark = callable(given) and not fits_call(given, ("frame", "batch_id"))
        if not (with_mark and fits_call(given, ("frame", "batch_id", "mark"))):
            with_mark = False
            check_signature("for_each_batch", "function", function, ("frame", "batch_id"), optional=False)
        step = "put repartition(Repartitioned({})) before it"
        key, value = known_serdes("for_each_batch", self._node.key, self._node.value, step)
        attributes = {
            "key": key,
            "value": value,
            "shape": "none",
            "function": function,
            "with_mark": with_mark,
        }
        self._child(graph.FrameSink, "for_each_batch", named, **attributes)

    def _input(self) -> Mapping[str, graph.Node]:
        return {"value": self._node}

    def _child(
        self, kind: type[graph.Node], path: str, named: Named | None, **attributes: Any
    ) -> KStream[Any, Any]:
        name = given_name(path.partition("(")[0], named)
        return KStream(self._draft, child(self._draft, kind, path, self._node, name, **attributes))
