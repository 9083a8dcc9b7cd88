"""`KStream.process` and its kin, and the stores that they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import polars as pl
import pyarrow as pa

from crossstream.api.checks import (
    REQUIRED,
    check_name,
    check_signature,
    function_of,
    needed_key,
    settle_durations,
    settle_serdes,
    settled,
    with_known_serdes,
)
from crossstream.api.draft import Previewed, child, given_name
from crossstream.api.options import Named
from crossstream.api.types import SerdeField
from crossstream.durations import Duration, to_milliseconds
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.nodes import Deduplicate, Process, ProcessorStore, TransformBatches
from crossstream.serdes.json.plain import typed_as
from crossstream.signatures import fits_call, keyword_settings
from crossstream.typing import KeySelector

S = TypeVar("S", bound="Processing[Any]")
T = TypeVar("T")


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True)
class KeyValueStore:
    """A store of a processor with one value for each key. It can be queried under its name.

    In the processor: ``get put delete range prefix all``.

    >>> from crossstream import serdes
    >>> KeyValueStore("seen", key=serdes.string(), value=serdes.int64()).name
    'seen'
    """

    name: str
    key: SerdeField
    value: SerdeField

    def __post_init__(self) -> None:
        _check("KeyValueStore", self)

    def spec(self) -> ProcessorStore:
        """The store, as a node has it."""
        return ProcessorStore("key-value", self.name, self.key, self.value)


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True)
class WindowStore:
    """A store of a processor with a value for each key and timestamp. It can be queried under its name.

    ``retention`` (a duration): a row expires when its timestamp is that much behind the newest one that was put. In the
    processor: ``get put delete fetch``.

    >>> from crossstream import serdes
    >>> WindowStore("recent", key=serdes.string(), value=serdes.int64(), retention="1 hour").retention
    3600000
    """

    name: str
    key: SerdeField
    value: SerdeField
    retention: Duration

    def __post_init__(self) -> None:
        _check("WindowStore", self)
        settle_durations(self, "retention", minimum=1)

    def spec(self) -> ProcessorStore:
        """The store, as a node has it."""
        return ProcessorStore("window", self.name, self.key, self.value, settled(self.retention))


@keyword_settings("CS-101")
@dataclass(frozen=True, slots=True)
class VersionedStore:
    """A store of a processor that keeps versions: which value a key had at any time of its history (KIP-889).

    ``history_retention`` (a duration): how far the history reaches behind the newest timestamp that was put. In the
    processor: ``get put delete fetch``.

    >>> from crossstream import serdes
    >>> VersionedStore("prices", key=serdes.string(), value=serdes.float64(), history_retention="1 day").name
    'prices'
    """

    name: str
    key: SerdeField
    value: SerdeField
    history_retention: Duration

    def __post_init__(self) -> None:
        _check("VersionedStore", self)
        settle_durations(self, "history_retention")

    def spec(self) -> ProcessorStore:
        """The store, as a node has it."""
        return ProcessorStore("versioned", self.name, self.key, self.value, settled(self.history_retention))


ProcessorStores = Sequence[KeyValueStore | WindowStore | VersionedStore]


class Processing(Previewed, Generic[T]):
    """The methods of a stream that take a processor, and `deduplicate`. ``T``: a stream of any keys and values."""

    __slots__ = ()

    def deduplicate(
        self: S, within: Duration, key: KeySelector | None = None, named: Named | None = None
    ) -> S:
        """The first record of each key in every ``within`` of stream time (a duration); the others are left out.

        A record is a duplicate if one with the same key came out before it, and their timestamps are at most ``within``
        apart. ``key`` returns what identifies a record instead of its key; text names a field of the value. Records
        without a key, or for which it is None, all come out. The store forgets a record when stream time is more than
        ``within`` past it, so a record that is later than that may come out again. Raises CS-110 for a duration that
        is not valid, CS-140 if the key serde is unknown. Source: KIP-655, docs/processors.md.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.deduplicate("10 minutes", key=lambda order: order["id"])
        <KStream orders.deduplicate>
        """
        ms = to_milliseconds(within, "within", code="CS-110")
        identity = None
        if key is None:
            needed_key("deduplicate", self._node.key, None, "repartition(Repartitioned(key=…)) before it")
        else:
            identity = function_of("deduplicate", "key", key, {"value": self._node}, by_name=True)
        name = given_name("deduplicate", named)
        node = child(self._draft, Deduplicate, "deduplicate", self._node, name, within=ms, identity=identity)
        return type(self)(self._draft, node)

    def process(
        self,
        supplier: Callable[[], Any] = REQUIRED,
        stores: ProcessorStores = (),
        named: Named | None = None,
    ) -> T:
        """Gives every record to a processor of your own, which may keep state, set timers and forward any records.

        ``supplier()`` makes an object with ``process(record)``, and maybe ``init(context)`` and ``close()``: one for
        each state partition in each batch. What it has to remember it keeps in its ``stores``; attributes live for a
        batch. Records of one key come in order; `Record` has their fields, `ProcessorContext` what the processor can
        do. Both serdes are forgotten: what follows must give its own. Raises CS-104 for anything but a callable without
        arguments, CS-101 for other stores, CS-120 for names that are taken. Sources: KIP-820, docs/processors.md.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> class Swapped:
        ...     def init(self, context):
        ...         self.context = context
        ...     def process(self, record):
        ...         self.context.forward(record.value, record.key)
        >>> words = StreamsBuilder().stream("words", Consumed(key=serdes.string(), value=serdes.string()))
        >>> words.process(Swapped)
        <KStream words.process>
        """
        forgotten = dict.fromkeys(("key", "key_type", "value", "value_type"))
        return self._process("process", supplier, stores, named, forgotten, keeps_key=False)

    def process_values(
        self,
        supplier: Callable[[], Any] = REQUIRED,
        stores: ProcessorStores = (),
        named: Named | None = None,
    ) -> T:
        """As `process`, and the processor forwards records under the key of the record in hand only.

        The key serde stays, and no operator below has to move records. The value serde is forgotten.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> class Loud:
        ...     def init(self, context):
        ...         self.context = context
        ...     def process(self, record):
        ...         self.context.forward(record.key, record.value.upper())
        >>> words = StreamsBuilder().stream("words", Consumed(key=serdes.string(), value=serdes.string()))
        >>> words.process_values(Loud)
        <KStream words.process_values>
        """
        forgotten = dict.fromkeys(("value", "value_type"))
        return self._process("process_values", supplier, stores, named, forgotten, keeps_key=True)

    def _process(
        self,
        path: str,
        supplier: Any,
        stores: Any,
        named: Named | None,
        forgotten: dict[str, Any],
        keeps_key: bool,
    ) -> T:
        if supplier is REQUIRED:
            supplier = None
        check_signature(path, "supplier", supplier, (), optional=False)
        name = given_name(path, named)
        settings = {**forgotten, "supplier": supplier, "keeps_key": keeps_key}
        specs = _specs(path, stores)
        node = child(self._draft, Process, path, self._node, name, stores=specs, **settings)
        made: Any = type(self)(self._draft, node)
        return made  # type: ignore[no-any-return]

    def transform_batches(
        self,
        function: Callable[..., Any] = REQUIRED,
        schema: pa.Schema = REQUIRED,
        stores: ProcessorStores = (),
        named: Named | None = None,
    ) -> T:
        """Gives Arrow record batches to a function, which returns record batches with the columns of ``schema``.

        ``function(batch)``, or ``function(batch, context)`` with the stores of a processor. It gets the columns key,
        value and timestamp (ms) of records of one state partition, in order of arrival, with the declared types; values
        without a type are what Arrow makes of the objects. It returns a `pyarrow.RecordBatch`, a table, a list of them,
        or None, with the columns key, value and perhaps timestamp; without that, rows have the largest timestamp they
        got. The function may not assume where batches begin and end. An exception stops the application: which record
        is at fault is not known. Raises CS-104 for another function, CS-101 for another schema or other stores.

        >>> import pyarrow as pa, pyarrow.compute as pc
        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> words = StreamsBuilder().stream("words", Consumed(key=serdes.string(), value=serdes.string()))
        >>> def loud(batch):
        ...     return batch.set_column(1, "value", pc.utf8_upper(batch["value"]))
        >>> schema = pa.schema({"key": pa.string(), "value": pa.string(), "timestamp": pa.int64()})
        >>> words.transform_batches(loud, schema)
        <KStream words.transform_batches>
        """
        given: Any = None if function is REQUIRED else function
        with_context = callable(given) and not fits_call(given, ("batch",))
        arguments = ("batch", "context") if with_context else ("batch",)
        check_signature("transform_batches", "function", given, arguments, optional=False)
        columns = _columns(schema)
        types = {f"{part}_type": typed_as(_dtype(columns[part])) for part in ("key", "value")}
        name = given_name("transform_batches", named)
        settings = {
            **types,
            "key": None,
            "value": None,
            "function": function,
            "columns": tuple(columns.items()),
            "with_context": with_context,
            "stores": _specs("transform_batches", stores),
        }
        node = child(self._draft, TransformBatches, "transform_batches", self._node, name, **settings)
        made: Any = type(self)(self._draft, node)
        return made  # type: ignore[no-any-return]


def _check(owner: str, store: KeyValueStore | WindowStore | VersionedStore) -> None:
    check_name(owner, "name", store.name)
    settle_serdes(store, "key", "value", optional=False)


def _specs(operator: str, stores: Any) -> tuple[ProcessorStore, ...]:
    """The stores of a node. Raises CS-101 for anything else, CS-120 for two of one name."""
    given = list(stores) if isinstance(stores, list | tuple) else [stores]
    for store in given:
        if not isinstance(store, KeyValueStore | WindowStore | VersionedStore):
            what = f"stores of {operator} has {store!r}, which is no store"
            step = 'write stores=[cs.KeyValueStore("seen", key=serdes.string(), value=serdes.json())]'
            raise refuse("CS-101", what, step, **caller_location(operator))
    names = [store.name for store in given]
    if len(set(names)) < len(names):
        what = f"two stores of {operator} are named {next(name for name in names if names.count(name) > 1)!r}"
        raise refuse("CS-120", what, **caller_location(operator))
    return tuple(with_known_serdes(store).spec() for store in given)


def _columns(schema: Any) -> dict[str, pa.DataType]:
    """The types of the columns of a schema. Raises CS-101 unless they are key, value and perhaps timestamp."""
    names = schema.names if isinstance(schema, pa.Schema) else []
    if sorted(names) not in (["key", "value"], ["key", "timestamp", "value"]):
        what = f"the schema of transform_batches is {'missing' if schema is REQUIRED else repr(schema)}"
        step = 'give the columns of what the function returns: pa.schema({"key": pa.string(), "value": pa.int64()})'
        raise refuse("CS-101", what, step, **caller_location("transform_batches"))
    return {name: schema.field(name).type for name in names}


def _dtype(kind: pa.DataType) -> pl.DataType:
    made = pl.from_arrow(pa.array([], kind))
    assert isinstance(made, pl.Series)
    return made.dtype
