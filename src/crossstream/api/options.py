"""Option objects: frozen, with keyword arguments only, checked when they are made.

All raise `TopologyError` at the line that makes them: CS-101 for a setting that is unknown, missing, positional or of
a wrong type, CS-102 for a name that Kafka does not allow, CS-104 for a function that cannot be called as crossstream
calls it. Sources: semantics 3.5 and 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from crossstream.api.checks import (
    check_choice,
    check_name,
    check_option,
    check_signature,
    settle_durations,
    settle_serdes,
    settled,
    with_known_serdes,
)
from crossstream.api.types import AsSerde, SerdeField
from crossstream.durations import Duration, is_duration, to_milliseconds
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.nodes import Clock, StoreSpec
from crossstream.missing_names import OptionObject
from crossstream.serdes.contract import EngineSerde
from crossstream.signatures import check_partitions, keyword_settings, refuse_calls, settings_error
from crossstream.typing import KeyPartitioner, Partitioner, TimestampExtractor

T = TypeVar("T")


def settle_offset_reset(consumed: Any) -> None:
    """Replaces where a source begins by a `timedelta` or a `datetime` in UTC, if it is no word.

    Refuses (CS-101) other values, and (CS-110) durations that are negative or too fine.
    """
    given = consumed.offset_reset
    if isinstance(given, datetime):
        place: object = (
            given.replace(tzinfo=timezone.utc) if given.tzinfo is None else given.astimezone(timezone.utc)
        )
    elif isinstance(given, timedelta) or (isinstance(given, str) and is_duration(given)):
        place = timedelta(milliseconds=to_milliseconds(given, "offset_reset", code="CS-110"))
    elif isinstance(given, str) and given in ("earliest", "latest"):
        return
    else:
        what = f"Consumed(offset_reset={given!r}) is not one of the choices"
        step = "choose 'earliest' or 'latest', a duration such as '1 hour' or a timedelta, or a datetime"
        raise refuse("CS-101", what, step, **caller_location())
    object.__setattr__(consumed, "offset_reset", place)


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True)
class Named(OptionObject):
    """The name of an operator, for `describe`, errors, metrics and the state it may keep.

    Without one an operator is named by its path (``orders.filter``).

    >>> Named("paid-orders").name
    'paid-orders'
    """

    name: str

    def __post_init__(self) -> None:
        check_name("Named", "name", self.name)


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed(OptionObject):
    """How a topic is read: the serdes of its keys and values, and where to begin.

    ``timestamp_extractor(key, value, timestamp)`` returns the timestamp of a record (ms since the epoch, or a
    `datetime`, in UTC if it has no zone). It may be an expression over the value's fields, ``key`` and ``timestamp``:
    the field of that name, or without one, the record's own timestamp. ``offset_reset`` is where an application begins
    when it starts for the first time: "earliest", "latest", a `datetime` (in UTC if it has no zone), or a duration
    (a `timedelta`, or text such as "1 hour"): that long before the start (KIP-1106). From such a place it reads the
    first record of that time or later, and what follows it. ``load="first"`` is for a table: what its topic holds at
    the first start is read before all other records (semantics 3.19). ``name`` names the source; the default is its
    topic.

    >>> from crossstream import serdes
    >>> Consumed(key=serdes.string(), value=serdes.json(), offset_reset="latest").offset_reset
    'latest'
    """

    key: SerdeField | None = None
    value: SerdeField | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | timedelta | datetime = "earliest"
    load: Literal["first"] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        settle_serdes(self, "key", "value")
        check_signature(
            "Consumed", "timestamp_extractor", self.timestamp_extractor, ("key", "value", "timestamp")
        )
        settle_offset_reset(self)
        check_choice("Consumed", "load", self.load, (None, "first"))
        check_name("Consumed", "name", self.name, optional=True)


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Produced(OptionObject):
    """How a topic is written. Serdes left out are those of the stream, where they are known.

    ``partitioner(topic, key, value, num_partitions)`` returns a partition, a list of them (a copy each; an
    empty list drops the record) or None for Kafka's default. Source: semantics 3.12.

    >>> from crossstream import serdes
    >>> Produced(key=serdes.string(), partitioner=lambda topic, key, value, count: 0).name is None
    True
    """

    key: SerdeField | None = None
    value: SerdeField | None = None
    partitioner: Partitioner | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        settle_serdes(self, "key", "value")
        check_signature("Produced", "partitioner", self.partitioner, ("topic", "key", "value", "count"))
        check_name("Produced", "name", self.name, optional=True)


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Materialized(OptionObject):
    """Keeps a table in a store; with ``store`` it can be queried under that name.

    Serdes left out are those of the table. The value of a named join or `map_values` without a serde is stored as JSON
    if its left input is JSON, else in the engine's own form. ``history_retention`` (a duration) makes the table
    versioned: it keeps versions for that long, and joins ignore records behind the newest version of their key.
    ``retention`` (a duration) is how long a store keeps windows after they have begun, in stream time; at least, and
    without it, until they are closed. ``caching`` has no effect, as nothing is cached between batches. ``ttl`` (a
    duration, of a table that is read, or made by `to_table`) deletes rows that were not written for so long, by the
    ``clock`` "stream", which is what the newest records of the table say, or "wall". Sources: semantics 2.2.6, 3.4,
    3.21, KIP-889, KIP-914.

    >>> Materialized(store="promotions").store
    'promotions'
    """

    store: str | None = None
    key: SerdeField | None = None
    value: SerdeField | None = None
    caching: bool = True
    retention: Duration | None = None
    history_retention: Duration | None = None
    ttl: Duration | None = None
    clock: Clock = "stream"

    def __post_init__(self) -> None:
        settle_serdes(self, "key", "value")
        settle_durations(self, "history_retention", "retention")
        settle_durations(self, "ttl", minimum=1)
        check_choice("Materialized", "caching", self.caching, (True, False))
        check_choice("Materialized", "clock", self.clock, ("stream", "wall"))
        check_name("Materialized", "store", self.store, optional=True)
        if self.ttl is None and self.clock != "stream":
            what = f"Materialized(clock={self.clock!r}) says what ends a ttl, and there is none"
            raise refuse(
                "CS-143", what, 'write ttl="30 days" beside it, or leave it out', **caller_location()
            )
        if self.ttl is not None and self.history_retention is not None:
            what = "Materialized gets a ttl, and a history_retention: rows of a table with versions do not expire"
            raise refuse("CS-143", what, "keep one of them", **caller_location())

    def spec(
        self, key: EngineSerde | None, value: EngineSerde | None, *, of_records: bool = False
    ) -> StoreSpec:
        """The store, with the serdes that were found for it. Refuses (CS-143) a ttl, but ``of_records``."""
        if self.ttl is not None and not of_records:
            what = "a ttl is for tables that are read, and for to_table"
            raise refuse("CS-143", what, None, **caller_location())
        history, retention, ttl = (
            None if given is None else settled(given)
            for given in (self.history_retention, self.retention, self.ttl)
        )
        return StoreSpec(self.store, key, value, history, retention, ttl, self.clock)


def settings_of(operator: str, setting: str, option: T | None, kind: type[T], **short: Any) -> T | None:
    """The option object with the settings that are given by keyword; None if neither is given.

    Raises CS-101 for a setting that both give, and whatever ``kind`` refuses.
    """
    given = {name: value for name, value in short.items() if value is not None}
    if not given:
        return option
    for name in given:
        if option is not None and getattr(option, name) is not None:
            what = f"{operator} gets {name} twice: {name}=… and {setting}={kind.__name__}({name}=…)"
            raise refuse("CS-101", what, "keep one of them", **caller_location(operator))
    if option is None:
        return with_known_serdes(kind(**given))
    return with_known_serdes(replace(option, **given))  # type: ignore[type-var]


def produced_of(
    operator: str, produced: Produced | None, key: AsSerde | None, value: AsSerde | None
) -> Produced:
    """``produced``, with the serdes that are given by keyword."""
    option = check_option(operator, "produced", produced, Produced)
    return settings_of(operator, "produced", option, Produced, key=key, value=value) or Produced()


def materialized_of(
    operator: str, materialized: Materialized | None, store: str | None = None, value: AsSerde | None = None
) -> Materialized | None:
    """``materialized``, with the store and the serde of the values that are given by keyword."""
    option = check_option(operator, "materialized", materialized, Materialized)
    return settings_of(operator, "materialized", option, Materialized, store=store, value=value)


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped(OptionObject):
    """Options of a grouping: the serdes of its keys and values where they are unknown, and its name.

    >>> from crossstream import serdes
    >>> Grouped(key=serdes.string(), name="by-customer").name
    'by-customer'
    """

    key: SerdeField | None = None
    value: SerdeField | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        settle_serdes(self, "key", "value")
        check_name("Grouped", "name", self.name, optional=True)


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Repartitioned(OptionObject):
    """Moves the records of a stream to the partitions of their keys, now.

    ``key`` is needed where the stream's key serde is unknown (after `map`, `flat_map`, `select_key`).
    ``partitions``: at least 1; if both inputs of a join have one, they must be equal.
    ``partitioner(key, num_partitions)`` returns the partition of a key, instead of its hash.

    >>> from crossstream import serdes
    >>> Repartitioned(key=serdes.string(), name="by-customer").name
    'by-customer'
    """

    key: SerdeField | None = None
    value: SerdeField | None = None
    name: str | None = None
    partitions: int | None = None
    partitioner: KeyPartitioner | None = None

    def __post_init__(self) -> None:
        settle_serdes(self, "key", "value")
        check_name("Repartitioned", "name", self.name, optional=True)
        check_partitions("Repartitioned", self.partitions)
        check_signature("Repartitioned", "partitioner", self.partitioner, ("key", "count"))


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoined(OptionObject):
    """Options of the join of two streams: serdes, a name, and names of its stores.

    ``key``: of both streams, ``value`` and ``other_value``: of the left and the right stream, where they are unknown.
    ``store`` and ``other_store`` make the kept records of the left and the right stream queryable. Source: semantics
    3.5.

    >>> StreamJoined(name="seen", store="recent-views", other_store="recent-clicks").store
    'recent-views'
    """

    key: SerdeField | None = None
    value: SerdeField | None = None
    other_value: SerdeField | None = None
    name: str | None = None
    store: str | None = None
    other_store: str | None = None

    def __post_init__(self) -> None:
        settle_serdes(self, "key", "value", "other_value")
        for setting in ("name", "store", "other_store"):
            check_name("StreamJoined", setting, getattr(self, setting), optional=True)
        if self.store is not None and self.store == self.other_store:
            what = f"StreamJoined gives both stores the name {self.store!r}"
            raise refuse("CS-120", what, "name them differently, or leave one out", **caller_location())


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(OptionObject):
    """Options of the join of a stream with a table: serdes, the grace period, a name.

    ``key``, ``value``: of the stream, where they are unknown; ``key`` defaults to the table's. ``other_value``: of
    the table. With ``grace`` (a duration) each record waits until stream time has advanced by that much, and then
    sees the version of the row that was valid at its timestamp; the table must keep versions for at least that long.
    Sources: KIP-923, semantics 2.3.2.

    >>> Joined(grace="10 seconds", name="enriched").grace
    10000
    """

    key: SerdeField | None = None
    value: SerdeField | None = None
    other_value: SerdeField | None = None
    grace: Duration | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        settle_serdes(self, "key", "value", "other_value")
        settle_durations(self, "grace")
        check_name("Joined", "name", self.name, optional=True)


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoined(OptionObject):
    """Options of a foreign-key join: its name, and partitioners for inputs that are not partitioned by hash.

    ``partitioner(key, num_partitions)`` returns the partition of rows of the left table, ``other_partitioner`` of rows
    of the other table; each must depend on the key only and return one partition.
    Sources: KIP-775, semantics 2.5.7.

    >>> TableJoined(name="promotions", partitioner=lambda key, count: int(key) % count).name
    'promotions'
    """

    partitioner: KeyPartitioner | None = None
    other_partitioner: KeyPartitioner | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for setting in ("partitioner", "other_partitioner"):
            check_signature("TableJoined", setting, getattr(self, setting), ("key", "count"))
        check_name("TableJoined", "name", self.name, optional=True)


_BOUNDS = MappingProxyType(
    dict.fromkeys(("before", "after"), "write JoinWindows(before=…, after=…) for two different bounds")
)


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWindows(OptionObject):
    """Which records of two streams are partners: records of one key whose timestamps are close to each other.

    The right record may be up to ``before`` older and up to ``after`` newer than the left record, both ends included.
    A bound may be negative (``before="-5 seconds"``: at least 5 s newer), but their sum is at least 0. ``grace`` is
    how much longer, in stream time, a record waits for late partners. In a left or outer join a record without a
    partner comes out alone when its window and the grace period are over; with ``eager=True`` (Kafka before 3.1) at
    once, even if partners follow. All are durations, kept in milliseconds. Raises CS-110 for other values and for an
    empty window. Sources: semantics 2.1.1, KIP-633.

    >>> JoinWindows(before=0, after="10 seconds", grace="1 minute").after
    10000
    """

    before: Duration
    after: Duration
    grace: Duration = 0
    eager: bool = False

    def __post_init__(self) -> None:
        settle_durations(self, "before", "after", minimum=None)
        settle_durations(self, "grace")
        before, after, _ = self.milliseconds()
        check_choice("JoinWindows", "eager", self.eager, (True, False))
        if before + after < 0:
            what = f"the window is empty: it ends {-before - after} ms before it begins"
            step = "let before and after add up to 0 or more; one of them may be negative"
            raise refuse("CS-110", what, step, **caller_location())

    @classmethod
    @refuse_calls(settings_error("CS-101", "JoinWindows.of", _BOUNDS))
    def of(cls, duration: Duration, grace: Duration = 0, eager: bool = False) -> JoinWindows:
        """A window of ``duration`` to either side.

        >>> JoinWindows.of("10 seconds", grace="1 minute")
        JoinWindows(before=10000, after=10000, grace=60000, eager=False)
        """
        return cls(before=duration, after=duration, grace=grace, eager=eager)

    def milliseconds(self) -> tuple[int, int, int]:
        """``before``, ``after`` and ``grace`` in milliseconds."""
        return settled(self.before), settled(self.after), settled(self.grace)
