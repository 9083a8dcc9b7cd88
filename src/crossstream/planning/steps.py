"""The steps of a plan: operators, each in its round, with the flows it reads and makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from crossstream.columns.order import Fork, TopicOrder
from crossstream.serdes.contract import ANY_READER, EngineSerde, Readers


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operator in a round: ``inputs`` are flows, ``output`` the flow it makes (if any)."""

    node: str
    round: int
    inputs: tuple[str, ...]
    output: str | None = None

    @property
    def kind(self) -> str:
        """What plans call it."""
        return type(self).__name__.removesuffix("Step").lower()

    @property
    def timer(self) -> str | None:
        """The store that says when the step has something to do by the clock, without rows; None: it never has."""
        return None

    @property
    def hears_of_snapshots(self) -> bool:
        """Whether readers tell it which snapshots of a database they saw."""
        return False

    def names(self) -> Iterator[str]:
        """The names in the settings of this kind of step: of its stores, and of other flows."""
        for setting in fields(self)[len(fields(Step)) :]:
            given = getattr(self, setting.name)
            if isinstance(given, str):
                yield given
            elif isinstance(given, tuple):
                yield from (name for name in given if isinstance(name, str))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStep(Step):
    """Records of a source. ``form``: what values are decoded to for their first reader.

    ``fields``: the fields of a struct that expressions name; None: all. The other fields of a declared type are
    checked only. ``readers``: who reads the values, here or later. ``later``: only later rounds read the values, so
    they may be decoded where they arrive. ``snapshots_begin``: rows of a first snapshot hold from the beginning of
    time on (decision 0044).
    """

    form: str | None = None
    fields: frozenset[str] | None = None
    readers: Readers = ANY_READER
    table: bool = False
    later: bool = False
    snapshots_begin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StatelessStep(Step):
    """filter, map, … on a stream; filter and map_values on a table. ``null_keys``: a re-keying keeps null keys.

    ``old``: a filter reads the old values, and leaves out what was no row before either. ``ordered``: a merge sorts
    its rows by arrival, those of one record by ``forks``, then by the order of its inputs. ``branches``: the inputs
    that fork, and the number of the branch that begins here. ``stored``: of a table that has a store of its own.
    """

    null_keys: bool = False
    old: bool = True
    stored: bool = False
    ordered: bool = False
    forks: tuple[Fork, ...] = ()
    branches: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeStep(Step):
    """Writes values in the serde of its output, as a shuffle does, for a reader that declares it in their round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep(Step):
    """Adds the serialised foreign key of each row as the extra column ``column``."""

    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeStep(Step):
    """Keeps a table in a store and yields its net changes; ``old``: with the values before.

    ``changelog``: a second flow, with each change that an input record makes. ``counts``: of several stores of a
    table, this one counts refused rows. ``null_key_reason``: the reason under which refused null keys are counted.
    ``latest``: of a table with versions it keeps the latest ones only. ``copies``: of rows of hot keys, for one join.
    """

    store: str
    old: bool = False
    changelog: str | None = None
    null_key_reason: str | None = None
    counts: bool = True
    latest: bool = False
    copies: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRowsStep(Step):
    """Completes the rows of change events from the rows before, and leaves out events that came too late.

    ``snapshots``: at the end of a snapshot it deletes the rows that this did not show.
    """

    store: str
    snapshots: bool = False

    @property
    def hears_of_snapshots(self) -> bool:
        return self.snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireStep(Step):
    """Adds the deletes of rows that were not written for so long to the records of a table.

    ``store``: where the table is kept, in the same round. ``ttl`` in ms. ``by_clock``: the clock on the wall says how
    late it is, not stream time. ``tick``: it goes in steps of so many ms.
    """

    store: str
    ttl: int
    tick: int
    by_clock: bool = False

    @property
    def timer(self) -> str | None:
        return self.store if self.by_clock else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoinStep(Step):
    """Primary-key join; ``stores``: of the left and the right table.

    ``changelog``: yields each change that an input record makes, not the last of the batch. ``stored``: the result
    has a store of its own.
    """

    stores: tuple[str, str]
    old: bool = False
    changelog: bool = False
    stored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderStep(Step):
    """Puts changes made by foreign key in order of arrival for each primary key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStreamJoinStep(Step):
    """Stream–stream join; inputs are both streams, one name twice for a stream joined with itself.

    ``stores``: of the left and the right records. ``waiting``: store of records that wait for their windows to close.
    ``refused``: for each side, the reason under which null keys are counted. ``right_first``: the sources whose
    records visit the right side before the left side.
    """

    stores: tuple[str, str]
    refused: tuple[str, str]
    waiting: str | None = None
    right_first: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTableJoinStep(Step):
    """Stream–table join; inputs are the stream's records and the records that the table in ``store`` is kept from.

    ``looking_first``: the sources whose records look the table up before they change it.
    ``buffer``: store of records that wait for the table. ``refusal``: the reason under which an inner join counts
    null keys.
    """

    store: str
    buffer: str | None = None
    looking_first: frozenset[str] = frozenset()
    refusal: str = "null-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeStep(Step):
    """First half of a foreign-key join, keyed by the primary key. ``answers``: flow of rows without foreign key.

    ``changelog``: each change subscribes, not only the last one of a batch. ``referring``: where referrers are counted,
    the flow that does it for hot keys, and the store that has these.
    """

    store: str
    column: str
    answers: str
    changelog: bool = False
    referring: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveStep(Step):
    """Second half, keyed by the foreign key: inputs are subscriptions, answers and right changes.

    ``referrers``: store that counts referrers, where the result has right rows without referrers. ``changelog``:
    inputs and results are every change. ``copies``: store of the right rows of hot keys, whose changes are an input.
    """

    subscriptions: str
    right_store: str
    referrers: str | None = None
    changelog: bool = False
    copies: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTableStep(Step):
    """The changes of a table as old rows to take away and new rows to add, under the keys of their groups.

    ``row_keys``: with the keys of the rows in the table; ``row_keys_to_skip``: only where bad records are skipped.
    """

    row_keys: bool = False
    row_keys_to_skip: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateStep(Step):
    """Aggregates the records of groups, or the changes of grouped tables, into the table in ``store``.

    ``old``, ``changelog``: as in `MaterializeStep`. ``null_key_reasons``: for each input, the reason under which
    refused null keys are counted. ``rows``: the store of the rows of the groups of a table, if an aggregate needs them.
    ``refused``: the store of rows of a table that the user's function refused.
    """

    store: str
    null_key_reasons: tuple[str, ...]
    old: bool = False
    changelog: str | None = None
    rows: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedAggregateStep(AggregateStep):
    """Aggregates the records of groups in windows.

    ``retention``: how long (ms) windows are kept after they have begun, sliding windows and sessions after their end.
    ``repeats``: the readers take several changes of a window in one record.
    """

    retention: int | None = None
    repeats: bool = False

    @property
    def kind(self) -> str:
        return "aggregate"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifyStep(Step):
    """Records by their identity; their own key travels as an extra column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateStep(Step):
    """Leaves out duplicates. ``store``: when records came out."""

    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformBatchesStep(Step):
    """Gives the records of a batch to a function. ``key``, ``value``: the serdes of these.

    ``stores``: its own, by name; ``timers``: the store of stream time, and of the timers of a processor.
    """

    key: EngineSerde
    value: EngineSerde
    stores: tuple[str, ...]
    timers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStep(TransformBatchesStep):
    """Gives each record to a processor."""

    @property
    def timer(self) -> str | None:
        return self.timers


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressStep(Step):
    """Holds changes back in ``store``. ``old``: emits and keeps old rows. ``key``: the serde of the rows' keys.

    ``by_group``: rows are in the state partition of the group that a window is of, not of their own key.
    """

    store: str
    key: EngineSerde
    old: bool = False
    by_group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalStep(Step):
    """Keeps a global table before the other rounds of a batch, and its changes for them to look up."""

    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGlobalJoinStep(Step):
    """Looks up rows of a global table, in the partition where the records are."""

    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferManyStep(Step):
    """First round of a star join, keyed by the primary key: which foreign keys this partition needs.

    ``references``: store of the foreign keys of each left row; ``counts``: number of left rows for each of them.
    ``asks``: flow of foreign keys whose rows are needed. ``changelog``: each change asks. ``undecoded``: the step that
    read the left rows without decoding their values.
    """

    references: str
    counts: str
    asks: str
    changelog: bool = False
    undecoded: ReadStep | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerManyStep(Step):
    """Second round, keyed by foreign keys: inputs are the asks and the changes of each right table.

    ``subscribers``: store of the partitions that need the row of a key. ``changelog``: all of it is every change.
    """

    subscribers: str
    right_stores: tuple[str, ...]
    changelog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveManyStep(Step):
    """Third round, where the left rows are again: inputs are these and the answers.

    ``rows``: store of the left rows and their foreign keys; ``referrers``: of the left rows by foreign key;
    ``right_rows``: of the right rows that some left row here refers to, in the form of ``right_stores``.
    ``changelog``: inputs and results are every change.
    """

    rows: str
    referrers: str
    right_rows: str
    right_stores: tuple[str, ...]
    changelog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalResolveStep(Step):
    """Second half of a table's join with a global table, in the round of the first: no row moves.

    Inputs: subscriptions and answers; changes of the global table come from where it is kept. ``changelog``: as there.
    """

    subscriptions: str
    table: str
    changelog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStep(Step):
    """Writes a flow to its topic.

    ``shares``: the name of a group of sinks that write together. ``orders``: on the last sink of the group, the order
    for each topic; None: for topics that no sink names. ``branches``: see `StatelessStep`.
    """

    shares: str | None = None
    orders: tuple[tuple[str | None, TopicOrder], ...] = ()
    branches: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSinkStep(Step):
    """Sends a flow to the driver, for a DataFrame or a table. ``parallel``: in files that Spark reads."""

    parallel: bool = False
