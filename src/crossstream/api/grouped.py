"""Grouped streams and tables, and what makes tables of them: count, reduce, aggregate.

A function takes ``(aggregate, value)``, or ``(key, aggregate, value)`` if it requires three arguments. One that returns
None deletes the group's row. Sources: semantics 3.4, KIP-150 (cogroup), KIP-825 (emit), KIP-904 (tables).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

import polars as pl

from crossstream import serdes
from crossstream.agg import Aggregation
from crossstream.api.agg import aggregates_of
from crossstream.api.checks import REQUIRED, check_signature, needed_key
from crossstream.api.draft import Draft, check_same_builder, made_values
from crossstream.api.generic import V1, K, Made, V
from crossstream.api.groups import Grouping, Groups
from crossstream.api.options import Materialized, Named, materialized_of
from crossstream.api.types import AsSerde
from crossstream.api.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from crossstream.columns.functions import Function, keyed
from crossstream.durations import Duration
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.serdes.json.plain import unnamed
from crossstream.serdes.primitives import Number
from crossstream.serdes.windowed import Windowed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from crossstream.api.table import KTable

_Windows = TimeWindows | SlidingWindows | SessionWindows | UnlimitedWindows | Duration


class _Counting(Grouping["KTable[Any, Any]"], Generic[K, V]):
    """Groups of one stream or table."""

    __slots__ = ()

    def count(
        self,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        store: str | None = None,
    ) -> KTable[K, int]:
        """The number of records of each group, as `serdes.int64` (of each window, if there are windows).

        Of a grouped table: the number of its rows; a group that has none left stays with 0, as in Kafka.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> words = StreamsBuilder().stream("words", Consumed(key=serdes.string(), value=serdes.string()))
        >>> words.group_by_key().count(store="counts")
        <KTable words.count>
        """
        materialized = asked = materialized_of("count", materialized, store)
        value = (asked.value if asked is not None else None) or Number("int64")
        return self._table("count", named, materialized, value=value, value_type=None)

    def agg(
        self,
        materialized: Materialized | None = None,
        named: Named | None = None,
        *,
        store: str | Aggregation | pl.Expr | None = None,
        **columns: Aggregation | pl.Expr,
    ) -> KTable[K, Any]:
        """Built-in aggregates of each group, by name: a table of a struct, without a Python call for any record.

        ``columns``: made of `crossstream.agg`, and of arithmetic with it, or Polars expressions of sums, means, minima,
        maxima and counts (``pl.col("price").sum() / pl.len()``). The values need a declared type. The value
        serde is JSON with these names, or that of ``materialized``. ``store``: a text makes the table queryable; an
        aggregate is a column of this name. Of a grouped table every aggregate follows the rows
        that change or go, ``min``, ``max``, ``first``, ``last`` and lists too; a group without rows has no row.

        >>> import polars as pl
        >>> from crossstream import Consumed, StreamsBuilder, agg, serdes
        >>> order = serdes.json({"price": pl.Float64})
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=order))
        >>> orders.group_by_key().agg(number=agg.count(), average=agg.sum("price") / agg.count())
        <KTable orders.agg>
        """
        if isinstance(store, Aggregation | pl.Expr):
            columns, store = {"store": store, **columns}, None
        materialized = asked = materialized_of("agg", materialized, store)
        node = replace(self._node, key=self._groups.key, value=self._groups.values[0] or self._node.value)
        found = aggregates_of(columns, node)
        made = serdes.json(found.dtype)
        value = (asked.value if asked is not None else None) or made
        return self._table("agg", named, materialized, columns=found, value=value, value_type=made)

    def _reduce(
        self, named: Any, materialized: Any, store: str | None, value: AsSerde | None, **functions: Any
    ) -> KTable[K, Any]:
        asked = materialized_of("reduce", materialized, store, value)
        kept = (asked or Materialized()).value or self._groups.values[0]
        if kept is None and self._node.value is not None:
            kept = unnamed(self._node.value)
        value_type = None if kept is not None else self._node.value_type
        return self._table("reduce", named, asked, value=kept, value_type=value_type, **functions)


class _AggregatedStream(_Counting[K, V]):
    """One grouped stream."""

    __slots__ = ()

    @overload
    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        named: Named | None = None,
        materialized: Materialized | None = None,
        **options: Unpack[Made],
    ) -> KTable[K, V]: ...

    @overload
    def reduce(
        self,
        reducer: Callable[[Any, V, V], V | None] | keyed,
        named: Named | None = None,
        materialized: Materialized | None = None,
        **options: Unpack[Made],
    ) -> KTable[K, V]: ...

    def reduce(
        self,
        reducer: Any = REQUIRED,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        store: str | None = None,
        value: AsSerde | None = None,
    ) -> KTable[K, V]:
        """Combines the values of each group: the first value begins, ``reducer(aggregate, value)`` adds the next.

        The value serde is that of the stream.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> amounts = StreamsBuilder().stream("amounts", Consumed(key=serdes.string(), value=serdes.int64()))
        >>> amounts.group_by_key().reduce(lambda total, amount: total + amount)
        <KTable amounts.reduce>
        """
        function = self._function("reduce", "reducer", reducer, ("aggregate", "value"))
        merger = function if self._groups.are_sessions else None
        return self._reduce(named, materialized, store, value, adders=(function,), merger=merger)

    def aggregate(
        self,
        initializer: Callable[[], Any] = REQUIRED,
        aggregator: Callable[..., Any] = REQUIRED,
        merger: Callable[..., Any] | None = None,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        store: str | None = None,
        value: AsSerde | None = None,
    ) -> KTable[K, Any]:
        """Aggregates the values of each group: ``initializer()`` begins, ``aggregator(aggregate, value)`` adds a value.

        ``merger(left, right)``: required with `SessionWindows`, and only there. The value serde is that of
        ``materialized``; without it, of the aggregator's declared type, else JSON.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> words = StreamsBuilder().stream("words", Consumed(key=serdes.string(), value=serdes.string()))
        >>> words.group_by_key().aggregate(lambda: [], lambda seen, word: [*seen, word])
        <KTable words.aggregate>
        """
        adder = self._function("aggregate", "aggregator", aggregator, ("aggregate", "value"))
        materialized = materialized_of("aggregate", materialized, store, value)
        return self._aggregate(initializer, (adder,), merger, named, materialized)


class WindowedKStream(_AggregatedStream[K, V]):
    """A grouped stream in windows of time. Made by `GroupedKStream.windowed_by`.

    >>> from crossstream import Consumed, StreamsBuilder, serdes
    >>> clicks = StreamsBuilder().stream("clicks", Consumed(key=serdes.string(), value=serdes.json()))
    >>> clicks.group_by_key().windowed_by("1 hour", emit="close").count()
    <KTable clicks.count>
    """

    __slots__ = ()


class GroupedKStream(_AggregatedStream[K, V]):
    """A stream whose records are grouped by key. Made by `KStream.group_by_key` and `KStream.group_by`.

    Records with a null key or (without windows) a null value belong to no group: they are dropped and counted.

    >>> from crossstream import Consumed, Grouped, StreamsBuilder, serdes
    >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
    >>> orders.group_by(lambda order: order["customer"], Grouped(key=serdes.string())).count()
    <KTable orders.group_by.count>
    """

    __slots__ = ()

    def windowed_by(
        self, windows: _Windows = REQUIRED, emit: Literal["update", "close"] = "update"
    ) -> WindowedKStream[Windowed, V]:
        """The groups in windows of time; a bare duration means `TimeWindows` of that size.

        ``emit="update"``: a window's row comes out with each change; ``"close"``: once, when the window has closed.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> clicks = StreamsBuilder().stream("clicks", Consumed(key=serdes.string(), value=serdes.json()))
        >>> clicks.group_by_key().windowed_by(TimeWindows(size="1 hour", advance="10 minutes")).count()
        <KTable clicks.count>
        """
        return WindowedKStream(self._draft, self._groups.windowed(windows, emit))

    def cogroup(self, aggregator: Callable[..., Any] = REQUIRED) -> CogroupedKStream[K, Any]:
        """Begins to aggregate several grouped streams into one table: ``aggregator`` adds this stream's values.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, consumed = StreamsBuilder(), Consumed(key=serdes.string(), value=serdes.int64())
        >>> bought = builder.stream("bought", consumed).group_by_key()
        >>> sold = builder.stream("sold", consumed).group_by_key()
        >>> stock = bought.cogroup(lambda count, n: count + n).cogroup(sold, lambda count, n: count - n)
        >>> stock.aggregate(lambda: 0)
        <KTable bought.aggregate>
        """
        adder = self._function("cogroup", "aggregator", aggregator, ("aggregate", "value"))
        return CogroupedKStream(self._draft, self._groups, (adder,))


class CogroupedKStream(Grouping["KTable[Any, Any]"], Generic[K, V]):
    """Several grouped streams that are aggregated into one table. Made by `GroupedKStream.cogroup`.

    >>> from crossstream import Consumed, StreamsBuilder, serdes
    >>> clicks = StreamsBuilder().stream("clicks", Consumed(key=serdes.string(), value=serdes.json()))
    >>> clicks.group_by_key().cogroup(lambda count, click: count + 1).aggregate(lambda: 0)
    <KTable clicks.aggregate>
    """

    __slots__ = ("_adders",)

    def __init__(self, draft: Draft, groups: Groups[KTable[Any, Any]], adders: tuple[Function, ...]) -> None:
        super().__init__(draft, groups)
        self._adders = adders

    def cogroup(
        self, grouped: GroupedKStream[K, V1], aggregator: Callable[..., Any] = REQUIRED
    ) -> CogroupedKStream[K, Any]:
        """Adds another grouped stream. Raises CS-134 if its keys have another serde, CS-135 for another builder."""
        if not isinstance(grouped, GroupedKStream):
            raise refuse(
                "CS-135",
                f"cogroup takes a grouped stream, not {type(grouped).__name__}",
                "group it first: stream.group_by_key()",
                **caller_location("cogroup"),
            )
        check_same_builder("cogroup", self._draft, grouped._draft)
        mine, theirs = self._groups, grouped._groups
        needed_key("cogroup", mine.key, theirs.key, "Grouped(key=…)")
        adder = grouped._function("cogroup", "aggregator", aggregator, ("aggregate", "value"))
        both = replace(mine, nodes=(*mine.nodes, *theirs.nodes), values=(*mine.values, *theirs.values))
        return CogroupedKStream(self._draft, both, (*self._adders, adder))

    def windowed_by(
        self, windows: _Windows = REQUIRED, emit: Literal["update", "close"] = "update"
    ) -> CogroupedKStream[Windowed, Any]:
        """The groups in windows of time, as `GroupedKStream.windowed_by`."""
        return CogroupedKStream(self._draft, self._groups.windowed(windows, emit), self._adders)

    def aggregate(
        self,
        initializer: Callable[[], Any] = REQUIRED,
        merger: Callable[..., Any] | None = None,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        store: str | None = None,
        value: AsSerde | None = None,
    ) -> KTable[K, Any]:
        """One aggregate of all streams for each group: ``initializer()`` begins, each stream's aggregator adds."""
        materialized = materialized_of("aggregate", materialized, store, value)
        return self._aggregate(initializer, self._adders, merger, named, materialized)


class GroupedKTable(_Counting[K, V]):
    """A table whose rows are grouped by another key. Made by `KTable.group_by`.

    When a row changes, its old group loses the old value and its new group gets the new one. Where the group stays, the
    subtractor runs first (KIP-904).

    >>> from crossstream import Consumed, Grouped, StreamsBuilder, serdes
    >>> orders = StreamsBuilder().table("orders", Consumed(key=serdes.string(), value=serdes.json()))
    >>> by_customer = orders.group_by(lambda key, order: (order["customer"], order["price"]),
    ...                               Grouped(key=serdes.string(), value=serdes.float64()))
    >>> by_customer.reduce(lambda total, price: total + price, lambda total, price: total - price)
    <KTable orders.group_by.reduce>
    """

    __slots__ = ()

    @overload
    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        named: Named | None = None,
        materialized: Materialized | None = None,
        **options: Unpack[Made],
    ) -> KTable[K, V]: ...

    @overload
    def reduce(
        self,
        adder: Callable[[Any, V, V], V | None] | keyed,
        subtractor: Callable[[Any, V, V], V | None] | keyed,
        named: Named | None = None,
        materialized: Materialized | None = None,
        **options: Unpack[Made],
    ) -> KTable[K, V]: ...

    def reduce(
        self,
        adder: Any = REQUIRED,
        subtractor: Any = REQUIRED,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        store: str | None = None,
        value: AsSerde | None = None,
    ) -> KTable[K, V]:
        """Combines the values of each group: ``adder(aggregate, new)`` adds one, ``subtractor(aggregate, old)`` takes
        one away. The first value begins.

        >>> from crossstream import Consumed, Grouped, StreamsBuilder, serdes
        >>> stock = StreamsBuilder().table("stock", Consumed(key=serdes.string(), value=serdes.int64()))
        >>> by_shelf = stock.group_by(lambda key, count: (key[:1], count), Grouped(key=serdes.string()))
        >>> by_shelf.reduce(lambda total, count: total + count, lambda total, count: total - count)
        <KTable stock.group_by.reduce>
        """
        functions = self._adder_and_subtractor("reduce", adder, subtractor)
        return self._reduce(named, materialized, store, value, **functions)

    def aggregate(
        self,
        initializer: Callable[[], Any] = REQUIRED,
        adder: Callable[..., Any] = REQUIRED,
        subtractor: Callable[..., Any] = REQUIRED,
        named: Named | None = None,
        materialized: Materialized | None = None,
        *,
        store: str | None = None,
        value: AsSerde | None = None,
    ) -> KTable[K, Any]:
        """Aggregates the values of each group: ``initializer()`` begins; ``adder``, ``subtractor`` as in `reduce`."""
        check_signature("aggregate", "initializer", initializer, (), optional=False)
        functions = self._adder_and_subtractor("aggregate", adder, subtractor)
        materialized = materialized_of("aggregate", materialized, store, value)
        asked = materialized or Materialized()
        made = made_values("adder", functions["adders"][0], asked, self._node)
        functions["adders"] = (made.pop("adder"),)
        return self._table("aggregate", named, materialized, initializer=initializer, **functions, **made)

    def _adder_and_subtractor(self, operator: str, adder: Any, subtractor: Any) -> dict[str, Any]:
        if subtractor is REQUIRED and adder is not REQUIRED:
            what = (
                f"{operator} of a grouped table needs a subtractor: a row that changes leaves its old group"
            )
            step = f"pass both: {operator}(…, lambda total, new: total + new, lambda total, old: total - old)"
            raise refuse("CS-104", what, step, **caller_location(operator))
        arguments = ("aggregate", "value")
        return {
            "adders": (self._function(operator, "adder", adder, arguments),),
            "subtractor": self._function(operator, "subtractor", subtractor, arguments),
        }
