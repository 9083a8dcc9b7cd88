"""The steps of a plan: operators, each in its round, with the flows it reads and makes."""

from __future__ import annotations

from dataclasses import dataclass

from crossstream.columns.branch_order import Parting
from crossstream.serdes.serde import ANYBODY, Readers


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operator in a round: ``inputs`` are flows, ``output`` the flow it makes (if any)."""

    node: str
    round: int
    inputs: tuple[str, ...]
    output: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStep(Step):
    """Records of a source; ``form``: what the first reader wants values decoded to.

    ``fields``: of a struct those that expressions name; None: all. The others of a declared type are checked only, for
    the ``readers``, which may come later.
    ``later``: only later rounds look at the values, so that they may be decoded where they arrive.
    """

    form: str | None = None
    fields: frozenset[str] | None = None
    readers: Readers = ANYBODY
    table: bool = False
    later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StatelessStep(Step):
    """filter, map, … on a stream; filter and map_values on a table. ``null_keys``: a re-keying lets them pass.

    ``old``: a filter leaves out what was no row before either, if it is told the values before. ``ordered``: a merge
    gives its rows in order of arrival, those of one record in turn from ``partings``, and in the order of its inputs.
    ``ways``: inputs that lead to such a merge on other ways too, and which way this is.
    """

    null_keys: bool = False
    old: bool = True
    ordered: bool = False
    partings: tuple[Parting, ...] = ()
    ways: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep(Step):
    """Adds the serialised foreign key of each row as the extra column ``column``."""

    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeStep(Step):
    """Keeps a table in a store and yields its net changes; ``old``: with the values before.

    ``changelog``: a second flow, with each change that an input record makes. ``counts``: this is the store that counts
    refused rows, where a table has several. ``admit``: null keys are refused here, and counted under this reason.
    """

    store: str
    old: bool = False
    changelog: str | None = None
    admit: str | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoinStep(Step):
    """Primary-key join; ``stores``: of the left and the right table.

    ``changelog``: yields each change that an input record makes, not the last of the batch.
    """

    stores: tuple[str, str]
    old: bool = False
    changelog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderStep(Step):
    """Hands changes on that were made by foreign key, those of each primary key in order of arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStreamJoinStep(Step):
    """Stream–stream join; inputs are both streams, one name twice for a stream joined with itself.

    ``stores``: of the left and the right records; ``waiting``: of those that wait for their windows to close, if any
    do. ``refused``: of either side, the reason under which null keys are counted. ``right_first``: the sources whose
    records reach both sides, and the right one first.
    """

    stores: tuple[str, str]
    refused: tuple[str, str]
    waiting: str | None = None
    right_first: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTableJoinStep(Step):
    """Stream–table join; inputs are the stream's records and the records that the table in ``store`` is kept from.

    ``looking_first``: the sources whose records look the table up before they change it.
    ``buffer``: the store of the records that wait, if any do. ``refusal``: under which reason an inner join counts
    null keys.
    """

    store: str
    buffer: str | None = None
    looking_first: frozenset[str] = frozenset()
    refusal: str = "null-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeStep(Step):
    """First half of a foreign-key join, keyed by the primary key. ``answers``: flow of rows without foreign key.

    ``changelog``: each change asks, not the last one of a batch.
    """

    store: str
    column: str
    answers: str
    changelog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveStep(Step):
    """Second half, keyed by the foreign key: inputs are subscriptions, answers and right changes.

    ``referrers``: where the result has right rows nobody refers to, the store that counts referrers. ``changelog``: the
    inputs are every change, and so are the results.
    """

    subscriptions: str
    right_store: str
    referrers: str | None = None
    changelog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalStep(Step):
    """Keeps a global table, before the other rounds of a batch, and its changes for them to look back at."""

    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGlobalJoinStep(Step):
    """Looks rows of a global table up, in whatever partition the records are."""

    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferManyStep(Step):
    """First round of a join of many, keyed by the primary key: which foreign keys this partition has use for.

    ``references``: store of the foreign keys of each left row; ``interest``: of how many rows have each of them.
    ``asks``: flow of foreign keys whose rows are wanted. ``changelog``: each change is handed on and asks, not the last one
    of a batch. ``undecoded``: the step that read the left rows, if nobody has decoded their values before.
    """

    references: str
    interest: str
    asks: str
    changelog: bool = False
    undecoded: ReadStep | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerManyStep(Step):
    """Second round, keyed by foreign keys: inputs are the asks and the changes of each right table.

    ``interested``: store of the partitions that want the row of a foreign key. ``changelog``: the changes are every
    change, and so are the answers.
    """

    interested: str
    right_stores: tuple[str, ...]
    changelog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveManyStep(Step):
    """Third round, where the left rows are again: inputs are these and the answers.

    ``rows``: store of the left rows and their foreign keys; ``referrers``: of the left rows by foreign key;
    ``partners``: of the right rows that some left row here refers to, in the form of ``right_stores``. ``changelog``: the
    inputs are every change, and so are the results.
    """

    rows: str
    referrers: str
    partners: str
    right_stores: tuple[str, ...]
    changelog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalResolveStep(Step):
    """Second half of a table's join with a global table, in the round of the first: nothing has to be moved.

    Inputs are subscriptions and answers; the changes of the global table come from where it is kept. ``changelog``: see
    `ResolveStep`.
    """

    subscriptions: str
    table: str
    changelog: bool = False


@dataclass(frozen=True, slots=True)
class TopicOrder:
    """The order in which several sinks write to a topic: that of arrival.

    The rows of one record go in turn from ``partings``, and then in the order of ``sinks`` (names).
    """

    sinks: tuple[str, ...]
    partings: tuple[Parting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStep(Step):
    """Writes a flow to its topic.

    ``shares``: where a record may come to several sinks of a topic, what they are called together. ``orders``: when all
    of them have finished, of the last one, by topic; None: of topics that no sink names. ``ways``: as of a
    `StatelessStep`.
    """

    shares: str | None = None
    orders: tuple[tuple[str | None, TopicOrder], ...] = ()
    ways: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSinkStep(Step):
    """Sends a flow to the driver, which makes a DataFrame of it."""
