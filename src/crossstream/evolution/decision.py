"""What a changed application does with the state of the one before, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from crossstream.serdes.contract import EngineSerde
from crossstream.storage.log_entries import Application, Commit
from crossstream.storage.root import StateRoot

Compared = Literal["store", "sink", "nothing"]
"""What new rows of a result are compared with: the rows of an old store, those that the sink has, or nothing: all are
sent."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Rows of a table that a store of the old state has. ``store``: its name there; ``kind``: that of its layout.

    ``key``, ``value``: the serdes that the new code reads its bytes with. ``by_second_key``: the key of a row is the
    second key of the store.
    """

    store: str
    key: EngineSerde
    value: EngineSerde
    kind: str = "key-value"
    by_second_key: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """A sink whose rows may differ. ``store``: of the old state, with the rows that it was sent, where ``compared`` is
    "store"; they are in the serdes of the sink after encoding with ``StoredTable``'s.

    ``table``: the node whose rows it writes. ``old``: the sink before, "" for a new one. ``place``: where it
    writes to, for people.
    """

    sink: str
    compared: Compared
    before: StoredTable | None = None
    table: str = ""
    old: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """An operator of the new topology, and the one before that it continues. ``how``: why they are the same."""

    new: str
    old: str
    how: Literal["its name", "its store", "the same meaning", "its place in the graph"]


@dataclass(frozen=True, slots=True)
class Question:
    """A function of which it cannot be known whether it changed. ``why``: in words."""

    node: str
    role: str
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of state. ``before``, ``commit``: what it belongs to, and its last commit; ``wanted``: the new one.

    ``kept``: new stores, with the names of the old ones that are the same; an old one may be that of several.
    ``rebuilt``: new stores without one, of which rows are computed. ``empty``: new stores that begin empty: what fills
    them is read as at a first start. ``dropped``: old stores that nothing needs. ``rows``: tables of the new topology
    whose rows an old store has, by the name of the node. ``read_again``: sources that are read from their topics, and
    why. ``results``: of which the rows that differ are sent. ``events``: new sinks whose results come of other code
    than before, and are events: none are sent again. ``untouched``: sinks that are as they were. ``gone``: old sinks.

    ``sources``: new sources, with the names of the old ones whose positions they continue from. ``begins``: new sources
    that begin as at a first start. ``matched``: by new operator. ``changes``: in words, a line each.
    """

    before: Application
    commit: Commit
    wanted: Application
    kept: Mapping[str, str] = field(default_factory=dict)
    rebuilt: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    rows: Mapping[str, StoredTable] = field(default_factory=dict)
    read_again: Mapping[str, str] = field(default_factory=dict)
    results: tuple[Result, ...] = ()
    gone: tuple[str, ...] = ()
    replay_from: int | None = None
    empty: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    begins: tuple[str, ...] = ()
    matched: Mapping[str, Match] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes: the state is that of the new code already."""
        moved = any(new != old for new, old in (*self.kept.items(), *self.sources.items()))
        work = (self.rebuilt, self.empty, self.dropped, self.results, self.events, self.gone, self.read_again)
        return not moved and not any(work)

    @property
    def asked(self) -> Mapping[str, list[Question]]:
        """The questions by why it is not known."""
        found: dict[str, list[Question]] = {}
        for one in self.questions:
            found.setdefault(one.why, []).append(one)
        return found


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows in a store: of which root, store, and by state partition in which manifest; with what they are read."""

    root: StateRoot
    table: StoredTable
    versions: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class NewResult:
    """The rows of a result: ``after`` in the serdes of the sink; ``before`` None: all rows of ``after`` are sent."""

    sink: str
    after: HeldRows
    before: HeldRows | None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was rebuilt, in a temporary root. ``versions``: of the new stores, by store and state partition.

    ``positions``, ``topic_ids``: of sources that were read again, or are new. ``results``: what is compared.
    ``events``: by sink of a stream the topic with all its results, in the `event_topics` of the temporary folder; none
    if they are not sent again. ``copies``: new stores whose files are those of another one.
    """

    root: StateRoot
    commit: Commit
    versions: Mapping[str, Mapping[int, str]]
    positions: Mapping[str, Mapping[str, Mapping[int, int]]]
    topic_ids: Mapping[str, str]
    results: tuple[NewResult, ...]
    events: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
