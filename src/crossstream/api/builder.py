"""`StreamsBuilder`: where a topology begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from crossstream.api.checks import check_option, check_topic, topic_step
from crossstream.api.draft import Draft
from crossstream.api.frames import frame_serdes
from crossstream.api.global_table import GlobalKTable
from crossstream.api.options import Consumed, Materialized
from crossstream.api.serde_rules import source_serdes, table_serdes
from crossstream.api.stream import KStream
from crossstream.api.table import KTable
from crossstream.api.topology import Topology
from crossstream.api.types import typed
from crossstream.columns.functions import Function
from crossstream.errors import TopologyError, caller_location
from crossstream.graph.names import shorten, source_kind
from crossstream.graph.nodes import FrameSource, Node, Shape, Source
from crossstream.serdes import Serde


class StreamsBuilder:
    """Collects the operators of one topology; `build` returns it as frozen data. Source: semantics 3.1.

    >>> from crossstream import Consumed, Produced, StreamsBuilder, serdes
    >>> builder = StreamsBuilder()
    >>> orders = builder.stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
    >>> orders.filter(lambda order: order["paid"]).to("paid-orders")
    >>> len(builder.build().nodes)
    3
    """

    __slots__ = ("_draft",)

    def __init__(self) -> None:
        self._draft = Draft()

    def stream(
        self, topics: str | Sequence[str] | re.Pattern[str], consumed: Consumed | None = None
    ) -> KStream:
        """The records of a topic, of several topics, or of all topics whose name matches a compiled pattern.

        Two calls with the same topics and options share one source. Raises `TopologyError`: CS-140 without
        both serdes, CS-102 bad topic name, CS-122 topics that another source reads with other options.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> consumed = Consumed(key=serdes.string(), value=serdes.json())
        >>> StreamsBuilder().stream(["orders", "returns"], consumed)
        <KStream orders+returns>
        """
        names, pattern = _topics(topics)
        return KStream(self._draft, self._source(names, pattern, consumed))

    def table(
        self, topic: str, consumed: Consumed | None = None, materialized: Materialized | None = None
    ) -> KTable:
        """A topic as a table: the last record of each key is its row, a null value deletes it.

        Rows follow the order of arrival, not of timestamps; records with a null key are dropped and counted.
        ``materialized`` makes the table queryable. Raises `TopologyError` as `stream`, CS-120 if the
        store's name is taken, CS-140 if the serdes of ``materialized`` differ from those of ``consumed``.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> StreamsBuilder().table("products", Consumed(key=serdes.string(), value=serdes.json()))
        <KTable products>
        """
        return KTable(self._draft, self._table("table", "table", topic, consumed, materialized))

    def global_table(
        self, topic: str, consumed: Consumed | None = None, materialized: Materialized | None = None
    ) -> GlobalKTable:
        """A whole topic as a table that any record may look up by any key.

        A start reads the topic to its end before any other record: the first start from the beginning, later ones
        from where the state ends. Afterwards its records belong to the batches like all others. A null value deletes
        a row; records with a null key are dropped and counted. ``materialized`` makes the table queryable. Raises
        `TopologyError` as `table`, and CS-101 for a versioned global table or an ``offset_reset``. Sources:
        KIP-99, semantics 2.4.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> StreamsBuilder().global_table("merchants", Consumed(key=serdes.string(), value=serdes.json()))
        <GlobalKTable merchants>
        """
        node = self._table("global_table", "global", topic, consumed, materialized)
        return GlobalKTable(self._draft, node)

    def stream_from(self, frame: Any, consumed: Consumed | None = None) -> KStream:
        """The rows of a streaming DataFrame as records: columns key, value, optionally timestamp and headers.

        Serdes left out follow from the columns' types (string, binary, numbers, boolean; a struct is JSON). A
        binary column with a serde holds its wire bytes. With ``Consumed(name=…)`` the source keeps its state when
        the code around it changes. Raises `TopologyError`: CS-150 not a streaming DataFrame, missing columns or a
        type without a serde; CS-101 settings that only topics have.
        """
        return KStream(self._draft, self._frame("stream", frame, consumed, None))

    def table_from(
        self, frame: Any, consumed: Consumed | None = None, materialized: Materialized | None = None
    ) -> KTable:
        """The rows of a streaming DataFrame as a table: upserts, and deletes where value is null.

        Columns, serdes and errors as for `stream_from`; ``materialized`` makes the table queryable.
        """
        stored = check_option("table_from", "materialized", materialized, Materialized)
        return KTable(self._draft, self._frame("table", frame, consumed, stored))

    def build(self) -> Topology:
        """The topology so far, as frozen data. Raises `TopologyError`: CS-126 if it reads nothing, CS-127 open split.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder = StreamsBuilder()
        >>> products = builder.table("products", Consumed(key=serdes.string(), value=serdes.json()))
        >>> list(builder.build().nodes)
        ['products']
        """
        return self._draft.finish()

    def _source(
        self, topics: tuple[str, ...], pattern: re.Pattern[str] | None, consumed: Consumed | None
    ) -> Source:
        option = check_option("stream", "consumed", consumed, Consumed) or Consumed()
        path = source_kind(topics, pattern)
        name = option.name or shorten(path)
        key, value = source_serdes(name, option.key, option.value)
        _check_extractor(option, name, key, value)
        attributes: dict[str, Any] = {
            "topics": topics,
            "pattern": pattern,
            "key": key,
            "value": value,
            "timestamp_extractor": option.timestamp_extractor,
            "offset_reset": option.offset_reset,
        }
        known = self._draft.same_source(Source(name=name, **attributes))
        return known or self._draft.add(Source, path, name, **attributes)

    def _table(
        self,
        operator: str,
        shape: Shape,
        topic: str,
        consumed: Consumed | None,
        materialized: Materialized | None,
    ) -> Source:
        check_topic(operator, topic)
        option = check_option(operator, "consumed", consumed, Consumed) or Consumed()
        stored = check_option(operator, "materialized", materialized, Materialized)
        if shape == "global":
            _check_global(topic, option, stored)
        key, value = table_serdes(topic, option, stored)
        _check_extractor(option, topic, key, value)
        return self._draft.add(
            Source,
            topic,
            option.name or shorten(topic),
            shape=shape,
            topics=(topic,),
            key=key,
            value=value,
            timestamp_extractor=option.timestamp_extractor,
            offset_reset=option.offset_reset,
            store=None if stored is None else stored.spec(key, value),
        )

    def _frame(
        self, shape: Shape, frame: Any, consumed: Consumed | None, stored: Materialized | None
    ) -> FrameSource:
        operator = f"{shape}_from"
        option = check_option(operator, "consumed", consumed, Consumed) or Consumed()
        key, value = frame_serdes(operator, frame, option)
        spec = None if stored is None else stored.spec(key, value)
        node = self._draft.add(
            FrameSource, "frame", option.name, shape=shape, key=key, value=value, store=spec
        )
        self._draft.frames[node.name] = frame
        return node


def _check_extractor(consumed: Consumed, name: str, key: Serde, value: Serde) -> None:
    """Checks the fields that an expression for timestamps reads, see `typed`."""
    if isinstance(consumed.timestamp_extractor, pl.Expr):
        source = {"value": Node(name=name, key=key, value=value)}
        function = Function.of(consumed.timestamp_extractor)
        typed(function, name, "timestamp_extractor", source, timestamp=pl.Int64())


def _check_global(topic: str, consumed: Consumed, stored: Materialized | None) -> None:
    """Refuses (CS-101) a versioned global table, and one that begins at the end of its topic."""
    if stored is not None and stored.history_retention is not None:
        what = "keeps no versions: a record sees the row of the moment when it is processed"
        step = "leave history_retention out; builder.table(…) makes versioned tables"
    elif consumed.offset_reset != "earliest":
        what = "holds its whole topic and cannot begin later in it"
        step = "leave offset_reset out"
    else:
        return
    raise TopologyError(f"a global table {what}", code="CS-101", where=caller_location(topic), next=step)


def _topics(topics: object) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if isinstance(topics, re.Pattern) and isinstance(topics.pattern, str):
        return (), topics
    names: list[Any] = []
    pattern = '"orders", ["orders", "returns"] or re.compile("orders-.*")'
    if isinstance(topics, re.Pattern):
        pattern = f"re.compile({topics.pattern.decode(errors='replace')!r})"
    if isinstance(topics, Sequence) and not isinstance(topics, bytes):
        names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        check_topic("stream", name)
    if not names or len(set(names)) < len(names):
        raise TopologyError(
            f"{topics!r} is not a topic, a list of different topics or a pattern of text",
            code="CS-101",
            where=caller_location("stream"),
            next=topic_step("stream", topics, pattern),
        )
    return tuple(names), None
