"""The joins of a `KStream`, as users call them. What they check and add is in `stream_joins`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, cast, overload

import polars as pl

from crossstream.api.draft import Handle
from crossstream.api.generic import K1, V1, ByFunction, K, OuterByFunction, R, V
from crossstream.api.merging import OnMerge
from crossstream.api.options import Joined, JoinWindows, Named, StreamJoined
from crossstream.api.stream_joins import stream_join, stream_join_error
from crossstream.columns.changes import Headers
from crossstream.columns.functions import keyed
from crossstream.durations import Duration
from crossstream.graph.nodes import JoinKind
from crossstream.signatures import called_as, refuse_calls
from crossstream.typing import KeySelector

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from crossstream.api.global_table import GlobalKTable
    from crossstream.api.stream import KStream
    from crossstream.api.table import KTable


class JoiningStream(Handle, Generic[K, V]):
    """The joins of a stream with another stream, a table or a global table."""

    __slots__ = ()

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
        return self._join("inner", locals())

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
        return self._join("left", locals())

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
        return self._join("outer", locals())

    def _join(self, kind: JoinKind, arguments: Mapping[str, Any]) -> KStream[Any, Any]:
        """``arguments``: all of the method's, by name."""
        settings = {name: given for name, given in arguments.items() if name not in ("self", "other")}
        node = stream_join(kind, self, arguments["other"], settings)
        return cast("KStream[Any, Any]", type(self)(self._draft, node))
