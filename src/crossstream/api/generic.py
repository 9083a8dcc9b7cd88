"""Type variables of keys and values, and the options of joins, for type checkers: ``KTable[str, Order]``.

What is not declared is Any: a plain ``KTable`` is a ``KTable[Any, Any]``. A joiner with the key first, and one without,
are overloads: from a union of them type checkers would not infer the parameters of a lambda.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from crossstream.api.asked_history import LakeHistory
from crossstream.api.merging import OnMerge
from crossstream.api.options import Joined, Materialized, Named, StreamJoined, TableJoined
from crossstream.api.types import AsSerde
from crossstream.columns.changes import Headers
from crossstream.durations import Duration
from crossstream.serdes.keys import LeftOrRight
from crossstream.typing import ForeignKeyExtractor, KeySelector

if TYPE_CHECKING:  # type checkers bring typing_extensions; Python 3.10 has no defaults
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    K1 = TypeVar("K1", default=Any)
    V1 = TypeVar("V1", default=Any)
    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    K, V, K1, V1, R = map(TypeVar, ("K", "V", "K1", "V1", "R"))


class Stored(TypedDict, total=False):
    """The short form of `Materialized`, of a result whose values are those of its input."""

    store: str | None


class Kept(Stored, total=False):
    """The store of a source, in both forms."""

    materialized: Materialized | None


class Preceded(TypedDict, total=False):
    """What comes before the records of a topic."""

    history: LakeHistory | None


class Continued(Kept, Preceded, total=False):
    """The store of a source, and what comes before its topic."""


class Made(Stored, total=False):
    """The short form of `Materialized`, of a result with new values."""

    value: AsSerde | None


class RightOptions(Made, total=False):
    """Options of a join that also has rows of the other table alone."""

    on_merge: OnMerge
    foreign_key: ForeignKeyExtractor | None
    keyed_by: type[LeftOrRight] | None
    table_joined: TableJoined | None
    materialized: Materialized | None
    headers: Headers | None


class OuterOptions(RightOptions, total=False):
    """Options of a join that has the rows of both tables."""

    named: Named | None


class TableOptions(Made, total=False):
    """Options of the join of a table."""

    on_merge: OnMerge
    foreign_key: ForeignKeyExtractor | None
    key_selector: KeySelector | None
    table_joined: TableJoined | None
    named: Named | None
    materialized: Materialized | None
    headers: Headers | None


class OuterByFunction(TypedDict, total=False):
    """Options of the join of two streams whose joiner gets the key or is an expression."""

    stream_joined: StreamJoined | None
    within: Duration | None
    before: Duration | None
    after: Duration | None
    grace: Duration | None
    on_merge: OnMerge
    headers: Headers | None


class ByFunction(OuterByFunction, total=False):
    """As `OuterByFunction`, of a stream with whatever can be joined."""

    joined: Joined | None
    key_selector: KeySelector | None
    named: Named | None
