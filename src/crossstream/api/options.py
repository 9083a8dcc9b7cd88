"""Option objects: frozen, keyword arguments only, checked when made.

All raise `TopologyError` in the line that makes them: CS-101 unknown, missing or positional setting,
or one that nothing uses yet, CS-102 name against Kafka's rule, CS-101 value of a wrong kind, CS-104 function that
cannot be called as crossstream calls it, CS-104 one that does not run then. Sources: semantics 3.5 and 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from crossstream.api.checks import check_choice, check_name, check_serdes, check_signature, settle_durations
from crossstream.durations import Duration, to_milliseconds
from crossstream.errors import TopologyError
from crossstream.graph.nodes import StoreSpec
from crossstream.location import here
from crossstream.serdes import Serde
from crossstream.signatures import check_partitions, keyword_settings, refuse_calls, settings_refusal
from crossstream.typing import KeyPartitioner, Partitioner, TimestampExtractor


@keyword_settings(TopologyError, "CS-101", positional=1)
@dataclass(frozen=True, slots=True)
class Named:
    """The name of an operator, for `describe`, errors, metrics and the state it may keep.

    Without one an operator is named by its path (``orders.filter``).

    >>> Named("paid-orders").name
    'paid-orders'
    """

    name: str

    def __post_init__(self) -> None:
        check_name("Named", "name", self.name)


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """How a topic is read: the serdes of its keys and values, and where to begin.

    ``timestamp_extractor(key, value, timestamp)`` gives a record another timestamp than its own (ms since
    the epoch, or a `datetime`, in UTC if it has no zone). It may be an expression over the value's fields and the
    columns ``key`` and ``timestamp``; of a value with a field ``timestamp`` that is the field, of any other
    the record's own timestamp. ``offset_reset`` is where an application that starts for the first time begins.
    ``name`` names the source, which else is called after its topic.

    >>> from crossstream import serdes
    >>> Consumed(key=serdes.string(), value=serdes.json(), offset_reset="latest").offset_reset
    'latest'
    """

    key: Serde | None = None
    value: Serde | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: Literal["earliest", "latest"] = "earliest"
    name: str | None = None

    def __post_init__(self) -> None:
        check_serdes("Consumed", key=self.key, value=self.value)
        check_signature(
            "Consumed", "timestamp_extractor", self.timestamp_extractor, ("key", "value", "timestamp")
        )
        check_choice("Consumed", "offset_reset", self.offset_reset, ("earliest", "latest"))
        check_name("Consumed", "name", self.name, optional=True)


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """How a topic is written. Serdes left out are those of the stream, where they are known.

    ``partitioner(topic, key, value, num_partitions)`` returns a partition, a list of them (a copy each; an
    empty list drops the record) or None for Kafka's default. Source: semantics 3.12.

    >>> from crossstream import serdes
    >>> Produced(key=serdes.string(), partitioner=lambda topic, key, value, count: 0).name is None
    True
    """

    key: Serde | None = None
    value: Serde | None = None
    partitioner: Partitioner | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_serdes("Produced", key=self.key, value=self.value)
        check_signature("Produced", "partitioner", self.partitioner, ("topic", "key", "value", "count"))
        check_name("Produced", "name", self.name, optional=True)


_NOT_YET = {
    "retention": "leave it out: it is how long a store of windows keeps them, and there are none yet;"
    " history_retention=…, which makes a table versioned, is something else"
}


@keyword_settings(TopologyError, "CS-101", hints=_NOT_YET)
@dataclass(frozen=True, slots=True, kw_only=True)
class Materialized:
    """Keep a table in a store; with ``store`` set it can be queried under that name.

    Serdes left out are those of the table; the value of a named join or `map_values` without a serde is
    stored as JSON if its left input is JSON, else in a form of the engine's own. ``caching`` is there for those
    who come from Kafka: nothing is cached between batches, and a batch gives the last change of each key.
    ``history_retention`` (a duration) makes the table versioned: versions that old can still be asked for, and
    joins ignore records behind the newest version of their key. Source: semantics 2.2.6, KIP-889, KIP-914.
    ``retention`` is for stores of windows, and None until there are any.

    >>> Materialized(store="promotions").store
    'promotions'
    """

    store: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    caching: bool = True
    retention: None = None
    history_retention: Duration | None = None

    def __post_init__(self) -> None:
        check_serdes("Materialized", key=self.key, value=self.value)
        if self.retention is not None:
            raise _not_yet("retention", self.retention)
        settle_durations(self, "history_retention")
        check_choice("Materialized", "caching", self.caching, (True, False))
        check_name("Materialized", "store", self.store, optional=True)

    def spec(self, key: Serde | None, value: Serde | None) -> StoreSpec:
        """The store this asks for, with the serdes that were found for it."""
        history = self.history_retention
        kept = None if history is None else to_milliseconds(history, "history_retention", error=TopologyError)
        return StoreSpec(name=self.store, key=key, value=value, caching=self.caching, history_retention=kept)


def _not_yet(setting: str, given: object) -> TopologyError:
    return TopologyError(
        f"Materialized({setting}={given!r}): nothing uses this setting yet",
        code="CS-101",
        where=here(),
        next=_NOT_YET[setting],
    )


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Repartitioned:
    """Move the records of a stream to the partitions of their keys, now.

    ``key`` is needed where the stream's key serde is unknown (after `map`, `flat_map`, `select_key`).
    ``partitions``: a wish that both inputs of a join must share if both have one; at least 1.
    ``partitioner(key, num_partitions)`` returns the partition of a key, instead of its hash.

    >>> from crossstream import serdes
    >>> Repartitioned(key=serdes.string(), name="by-customer").name
    'by-customer'
    """

    key: Serde | None = None
    value: Serde | None = None
    name: str | None = None
    partitions: int | None = None
    partitioner: KeyPartitioner | None = None

    def __post_init__(self) -> None:
        check_serdes("Repartitioned", key=self.key, value=self.value)
        check_name("Repartitioned", "name", self.name, optional=True)
        check_partitions("Repartitioned", self.partitions)
        check_signature("Repartitioned", "partitioner", self.partitioner, ("key", "count"))


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoined:
    """Options of the join of two streams: serdes, a name, and names for what it keeps.

    ``key``: of both streams; ``value``, ``other_value``: of the left and of the right one; where they are unknown.
    With ``store`` and ``other_store`` the records that are kept of the left and of the right stream can be queried.
    Source: semantics 3.5.

    >>> StreamJoined(name="seen", store="recent-views", other_store="recent-clicks").store
    'recent-views'
    """

    key: Serde | None = None
    value: Serde | None = None
    other_value: Serde | None = None
    name: str | None = None
    store: str | None = None
    other_store: str | None = None

    def __post_init__(self) -> None:
        check_serdes("StreamJoined", key=self.key, value=self.value, other_value=self.other_value)
        for setting in ("name", "store", "other_store"):
            check_name("StreamJoined", setting, getattr(self, setting), optional=True)
        if self.store is not None and self.store == self.other_store:
            raise TopologyError(
                f"StreamJoined gives both stores the name {self.store!r}",
                code="CS-120",
                where=here(),
                next="name them differently, or leave one out",
            )


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Options of the join of a stream with a table: serdes, the grace period, a name.

    ``key``, ``value``: of the stream, where they are unknown; without ``key`` they are the table's. ``other_value``:
    of the table, for readers. With ``grace`` (a duration) each record waits until the stream's time is so much
    further, and then sees the version of the row that was valid at its own timestamp; the table must be versioned,
    and keep versions for at least that long. Sources: KIP-923, semantics 2.3.2.

    >>> Joined(grace="10 seconds", name="enriched").grace
    10000
    """

    key: Serde | None = None
    value: Serde | None = None
    other_value: Serde | None = None
    grace: Duration | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_serdes("Joined", key=self.key, value=self.value, other_value=self.other_value)
        settle_durations(self, "grace")
        check_name("Joined", "name", self.name, optional=True)


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoined:
    """Options of a foreign-key join: its name, and partitioners for inputs that are not partitioned by hash.

    ``partitioner(key, num_partitions)`` tells where rows of the left table are, ``other_partitioner`` where
    those of the other table are; each must look at the key only and return one partition.
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
    dict.fromkeys(("before", "after"), "a window with bounds of its own is JoinWindows(before=…, after=…)")
)


@keyword_settings(TopologyError, "CS-101")
@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWindows:
    """Which records of two streams are partners: those of one key whose timestamps are close to each other.

    The right record may be up to ``before`` older and up to ``after`` newer than the left one, both ends included;
    a bound may be negative (``before="-5 seconds"``: at least 5 s newer), but together they are at least 0. ``grace``
    is how much longer, in stream time, a record waits for partners that are late. A record of a left or outer join
    that finds none comes out alone when its window and the grace period are over; with ``eager=True`` (Kafka before
    3.1) at once, even if partners follow. Durations, which are kept in milliseconds. Raises CS-110 for what is none,
    CS-110 for an empty window. Sources: semantics 2.1.1, KIP-633.

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
            raise TopologyError(
                f"the window is empty: it ends {-before - after} ms before it begins",
                code="CS-110",
                where=here(),
                next="let before and after add up to 0 or more; one of them may be negative",
            )

    @classmethod
    @refuse_calls(settings_refusal(TopologyError, "CS-101", "JoinWindows.of", _BOUNDS))
    def of(cls, duration: Duration, grace: Duration = 0, eager: bool = False) -> JoinWindows:
        """A window of ``duration`` to either side.

        >>> JoinWindows.of("10 seconds", grace="1 minute")
        JoinWindows(before=10000, after=10000, grace=60000, eager=False)
        """
        return cls(before=duration, after=duration, grace=grace, eager=eager)

    def milliseconds(self) -> tuple[int, int, int]:
        """``before``, ``after`` and ``grace`` in milliseconds."""
        before, after = (
            to_milliseconds(getattr(self, name), name, minimum=None, error=TopologyError)
            for name in ("before", "after")
        )
        return before, after, to_milliseconds(self.grace, "grace", error=TopologyError)
