"""The steps of a plan: operators, each in its round, with the flows it reads and makes."""

from __future__ import annotations

from dataclasses import dataclass


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

    ``fields``: of a struct without declared type, those that the readers' expressions name; None: all.
    """

    form: str | None = None
    fields: frozenset[str] | None = None
    table: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StatelessStep(Step):
    """filter, map, … on a stream; filter and map_values on a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep(Step):
    """Adds the serialised foreign key of each row as the extra column ``column``; ``index``: which of the join's."""

    column: str
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeStep(Step):
    """Keeps a table in a store and yields its net changes; ``old``: with the values before.

    ``counts``: this is the store that counts refused rows, where a table has several. ``admit``: null keys are
    refused here, and counted under this reason.
    """

    store: str
    old: bool = False
    admit: str | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoinStep(Step):
    """Primary-key join; ``stores``: of the left and the right table."""

    stores: tuple[str, str]
    old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeStep(Step):
    """First half of a foreign-key join, keyed by the primary key. ``answers``: flow of rows without foreign key."""

    store: str
    column: str
    answers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveStep(Step):
    """Second half, keyed by the foreign key: inputs are subscriptions, answers and right changes.

    ``referrers``: where the result has right rows nobody refers to, the store that counts referrers.
    """

    subscriptions: str
    right_store: str
    referrers: str | None = None


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
    ``columns``: where the foreign keys of the left rows are. ``asks``: flow of foreign keys whose rows are wanted.
    """

    references: str
    interest: str
    columns: tuple[str, ...]
    asks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerManyStep(Step):
    """Second round, keyed by foreign keys: inputs are the asks and the changes of each right table.

    ``interested``: store of the partitions that want the row of a foreign key.
    """

    interested: str
    right_stores: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveManyStep(Step):
    """Third round, where the left rows are again: inputs are these and the answers.

    ``rows``: store of the left rows and their foreign keys; ``referrers``: of the left rows by foreign key;
    ``partners``: of the right rows that some left row here refers to, in the form of ``right_stores``.
    """

    rows: str
    referrers: str
    partners: str
    right_stores: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStep(Step):
    """Writes a flow to its topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSinkStep(Step):
    """Sends a flow to the driver, which makes a DataFrame of it."""
