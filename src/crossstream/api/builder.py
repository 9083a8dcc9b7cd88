"""`StreamsBuilder`: where a topology begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from crossstream.api.asked_history import LakeHistory
from crossstream.api.checks import agreed, check_option, check_topic
from crossstream.api.draft import Draft
from crossstream.api.frames import frame_serdes
from crossstream.api.generic import Continued, K, Kept, V
from crossstream.api.global_table import GlobalKTable
from crossstream.api.histories import with_history
from crossstream.api.lake_sources import LakeSources
from crossstream.api.loading import check_load
from crossstream.api.options import Consumed, Materialized, materialized_of, settings_of
from crossstream.api.plain_frames import check_without_key, plain_frame
from crossstream.api.refreshed_tables import RefreshedTables
from crossstream.api.source_topics import check_extractor, check_global, topics_of
from crossstream.api.stream import KStream
from crossstream.api.table import KTable
from crossstream.api.topology import Topology
from crossstream.api.types import AsSerde
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.names import shorten, source_kind
from crossstream.graph.nodes import FrameSource, Shape, Source
from crossstream.missing_names import PointsToNames
from crossstream.serdes.debezium.settings import Debezium
from crossstream.serdes.json.plain import UntypedJson
from crossstream.serdes.primitives import String
from crossstream.signatures import refuse_calls, settings_error

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StreamsBuilder(PointsToNames, LakeSources, RefreshedTables):
    """Collects the operators of one topology; `build` returns it as frozen data. Source: semantics 3.1.

    >>> from crossstream import StreamsBuilder
    >>> builder = StreamsBuilder()
    >>> orders = builder.stream("orders", key=str, value=dict)
    >>> orders.filter(lambda order: order["paid"]).to("paid-orders")
    >>> len(builder.build().nodes)
    3
    """

    __slots__ = ("_draft",)

    def __init__(self) -> None:
        self._draft = Draft()

    @overload
    def stream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        key: type[K],
        value: type[V],
        history: LakeHistory | None = None,
    ) -> KStream[K, V]: ...

    @overload
    def stream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        value: type[V],
        history: LakeHistory | None = None,
    ) -> KStream[str, V]: ...

    @overload
    def stream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        key: type[K],
        history: LakeHistory | None = None,
    ) -> KStream[K, Any]: ...

    @overload
    def stream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        consumed: Consumed | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
        history: LakeHistory | None = None,
    ) -> KStream[Any, Any]: ...

    @refuse_calls(settings_error("CS-101", "stream"))
    def stream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        consumed: Consumed | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
        history: LakeHistory | None = None,
    ) -> KStream[Any, Any]:
        """The records of a topic, of several topics, or of all topics whose name matches a compiled pattern.

        ``key``, ``value``: serdes, or types that have one: str, bytes, int, float, bool, UUID, dict, a class with
        fields. Without them, and without ``consumed``, keys are str and values dict. Two calls with the same topics and
        options share one source. ``history``: the earlier records of a topic, in a lake, see `crossstream.history`.
        Raises `TopologyError`: CS-101 for what is no serde, CS-102 bad topic name, CS-122
        topics that another source reads with other options.

        >>> from crossstream import StreamsBuilder
        >>> StreamsBuilder().stream(["orders", "returns"], value=dict)
        <KStream orders+returns>
        """
        names, pattern = topics_of(topics)
        consumed = _consumed("stream", consumed, key, value)
        node = self._source("stream", "stream", names, consumed, pattern=pattern, history=history)
        return KStream(self._draft, node)

    @overload
    def table(
        self, topic: str, *, key: type[K], value: type[V], **options: Unpack[Continued]
    ) -> KTable[K, V]: ...

    @overload
    def table(self, topic: str, *, value: type[V], **options: Unpack[Continued]) -> KTable[str, V]: ...

    @overload
    def table(self, topic: str, *, key: type[K], **options: Unpack[Continued]) -> KTable[K, Any]: ...

    @overload
    def table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
        store: str | None = None,
        source: Debezium | None = None,
        history: LakeHistory | None = None,
    ) -> KTable[Any, Any]: ...

    @refuse_calls(settings_error("CS-101", "table"))
    def table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
        store: str | None = None,
        source: Debezium | None = None,
        history: LakeHistory | None = None,
    ) -> KTable[Any, Any]:
        """A topic as a table: the last record of each key is its row, a null value deletes it.

        Rows follow the order of arrival, not of timestamps; records with a null key are dropped and counted.
        ``key``, ``value``: serdes or types, as for `stream`. ``store`` makes the table queryable, and so does
        ``materialized``. ``source``: the records are changes of a database's rows, see `crossstream.debezium`, which
        has the serdes then. ``history``: as for `stream`. Raises `TopologyError` as `stream`, CS-120 if the store's
        name is taken, CS-140 if the serdes of ``materialized`` differ from those of ``consumed``.

        >>> from crossstream import StreamsBuilder
        >>> StreamsBuilder().table("products", key=str, value=dict, store="products")
        <KTable products>
        """
        check_topic("table", topic)
        consumed = _consumed("table", consumed, key, value)
        stored = materialized_of("table", materialized, store)
        node = self._source("table", "table", (topic,), consumed, stored, unwrap=source, history=history)
        return KTable(self._draft, node)

    @overload
    def global_table(
        self, topic: str, *, key: type[K], value: type[V], **options: Unpack[Kept]
    ) -> GlobalKTable[K, V]: ...

    @overload
    def global_table(
        self, topic: str, *, value: type[V], **options: Unpack[Kept]
    ) -> GlobalKTable[str, V]: ...

    @overload
    def global_table(self, topic: str, *, key: type[K], **options: Unpack[Kept]) -> GlobalKTable[K, Any]: ...

    @overload
    def global_table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
        store: str | None = None,
        source: Debezium | None = None,
    ) -> GlobalKTable[Any, Any]: ...

    @refuse_calls(settings_error("CS-101", "global_table"))
    def global_table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
        store: str | None = None,
        source: Debezium | None = None,
    ) -> GlobalKTable[Any, Any]:
        """A whole topic as a table that any record may look up by any key.

        A start reads the topic to its end before any other record: the first start from the beginning, later ones
        from where the state ends. Afterwards its records belong to the batches like all others. A null value deletes
        a row; records with a null key are dropped and counted. ``key``, ``value`` and ``store`` as for `table`.
        ``source``: as for `table`, without ``ordered_by`` and with ``unavailable_value=None``. Raises
        `TopologyError` as `table`, and CS-101 for a versioned global table or an ``offset_reset``. Sources:
        KIP-99, semantics 2.4.

        >>> from crossstream import StreamsBuilder
        >>> StreamsBuilder().global_table("merchants")
        <GlobalKTable merchants>
        """
        check_topic("global_table", topic)
        consumed = _consumed("global_table", consumed, key, value)
        stored = materialized_of("global_table", materialized, store)
        unwrap = source.without_snapshots if isinstance(source, Debezium) else source
        node = self._source("global_table", "global", (topic,), consumed, stored, unwrap=unwrap)
        return GlobalKTable(self._draft, node)

    def stream_from(
        self,
        frame: Any,
        consumed: Consumed | None = None,
        *,
        key: str | Sequence[str] | None = None,
        timestamp: str | None = None,
        columns: Sequence[str] | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """The rows of a streaming DataFrame as records.

        ``key``: the column of the keys, several for keys that are structs, ``()`` for records without; the other
        columns are the value, a struct with their types as declared types. ``timestamp``: the column of the times (a
        timestamp, or ms since the epoch); without it a record has the time of its batch, or of its commit where the
        rows are changes. ``columns``: those of the value. ``name`` names the source, which keeps its state then when
        the code around it changes.

        Without ``key`` the columns are key, value, optionally timestamp and headers. Serdes left out follow from the
        columns' types (string, binary, numbers, boolean; a struct is JSON). A binary column with a serde holds its
        wire bytes. Raises `TopologyError`: CS-150 not a streaming DataFrame, missing columns or a type without a
        serde; CS-101 settings that only topics have. Examples: docs/dataframes.md.
        """
        plain: dict[str, Any] = {"key": key, "columns": columns, "timestamp": timestamp}
        return KStream(self._draft, self._frame("stream", frame, consumed, name, None, **plain))

    def table_from(
        self,
        frame: Any,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
        *,
        key: str | Sequence[str] | None = None,
        timestamp: str | None = None,
        columns: Sequence[str] | None = None,
        name: str | None = None,
        store: str | None = None,
    ) -> KTable[Any, Any]:
        """The rows of a streaming DataFrame as a table: the last row of each key counts.

        Arguments, columns and errors as for `stream_from`; ``store`` makes the table queryable. Where the DataFrame
        has the columns _change_type, _commit_version and _commit_timestamp, as Delta's change feed and Spark's
        ``changes()``, its rows are changes: inserts and updates give rows, deletes delete them, in the order of the
        commits. Without ``key`` rows are upserts, and deletes where value is null. A null key is dropped and counted.
        """
        stored = materialized_of("table_from", materialized, store)
        plain: dict[str, Any] = {"key": key, "columns": columns, "timestamp": timestamp}
        return KTable(self._draft, self._frame("table", frame, consumed, name, stored, **plain))

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
        self,
        operator: str,
        shape: Shape,
        names: tuple[str, ...],
        consumed: Consumed | None,
        materialized: Materialized | None = None,
        pattern: re.Pattern[str] | None = None,
        unwrap: Debezium | None = None,
        history: LakeHistory | None = None,
    ) -> Source:
        option = check_option(operator, "consumed", consumed, Consumed) or Consumed()
        if unwrap is not None:
            option = _unwrapping(operator, shape, option, unwrap)
            unwrap = replace(unwrap, reads_snapshot=unwrap.reads_snapshot or option.load is not None)
        stored = check_option(operator, "materialized", materialized, Materialized)
        asked = stored or Materialized()
        path = source_kind(names, pattern)
        name = option.name or shorten(path)
        if shape == "global":
            check_global(name, option, asked)
        check_load(name, shape, option, has_history=history is not None)
        key = agreed(name, "the keys of its topic", option.key, asked.key, "key") or String()
        value = agreed(name, "the values of its topic", option.value, asked.value, "value") or UntypedJson()
        topic = names[0] if names else None
        key, value = key.read_from(topic, is_key=True), value.read_from(topic, is_key=False)
        check_extractor(option, name, key, value)
        attributes: dict[str, Any] = {
            "shape": shape,
            "topics": names,
            "pattern": pattern,
            "key": key,
            "value": value,
            "timestamp_extractor": option.timestamp_extractor,
            "offset_reset": option.offset_reset,
            "loads_first": option.load is not None,
            "store": None if stored is None else stored.spec(key, value, of_records=shape == "table"),
            "unwrap": unwrap,
        }
        attributes |= with_history(operator, history, names, option.offset_reset, (key, value), unwrap)
        same = self._draft.same_source(Source(name=name, **attributes)) if shape == "stream" else None
        return same or self._draft.add(Source, path, name, **attributes)

    def _frame(
        self,
        shape: Shape,
        frame: Any,
        consumed: Consumed | None,
        name: str | None,
        stored: Materialized | None,
        *,
        key: str | Sequence[str] | None,
        **given: Any,
    ) -> FrameSource:
        """``given``: the other arguments of plain columns."""
        operator = f"{shape}_from"
        option = check_option(operator, "consumed", consumed, Consumed)
        option = settings_of(operator, "consumed", option, Consumed, name=name) or Consumed()
        read: dict[str, Any]
        if key is None:
            check_without_key(operator, **given)
            serdes = frame_serdes(operator, frame, option)
            read = {"key": serdes[0], "value": serdes[1]}
        else:
            read = plain_frame(operator, frame, option, key, **given).settings
        spec = None if stored is None else stored.spec(read["key"], read["value"], of_records=True)
        node = self._draft.add(FrameSource, "frame", option.name, shape=shape, store=spec, **read)
        self._draft.frames[node.name] = frame
        return node


def _consumed(
    operator: str, consumed: Consumed | None, key: AsSerde | None, value: AsSerde | None
) -> Consumed | None:
    option = check_option(operator, "consumed", consumed, Consumed)
    return settings_of(operator, "consumed", option, Consumed, key=key, value=value)


def _unwrapping(operator: str, shape: Shape, consumed: Consumed, unwrap: Any) -> Consumed:
    """The options of a source of change events, which have the serdes of its rows."""
    if not isinstance(unwrap, Debezium):
        what, step = f"source is {unwrap!r}", "pass source=cs.debezium(Row)"
    elif consumed.key is not None or consumed.value is not None:
        what, step = "the serdes come from source", "leave key and value out of Consumed"
    elif shape == "global" and unwrap.needs_rows:
        what = "a global table cannot keep values that an event leaves out, nor order its events"
        step = "pass cs.debezium(…, unavailable_value=None) without ordered_by, or use builder.table(…)"
    elif shape == "global" and unwrap.transactions is not None:
        what = "a global table is read before all others, and not by transactions"
        step = "leave transactions out, or use builder.table(…)"
    else:
        return replace(consumed, key=unwrap.key, value=unwrap.stored)
    raise refuse("CS-101", what, step, **caller_location(operator))
