"""KTable with several KTables, by a foreign key into each of them.

    law    the result holds, for each left row, joiner(left row, {name: the right row its foreign key names}), for the
           left rows whose foreign keys all name a right row (inner), or for all left rows (left join: None for those
           that are missing)

A partition of left rows keeps them, an index of them by foreign key, and the right rows they refer to (`state.py`),
which `right_rows.py` gets there. So a result is made where its left row is, from rows as they are after the batch:
once, whatever of it has changed. Source: decision 0019, semantics 8.12 to 8.15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crossstream.columns.changes import Changes, concat_headers, reference
from crossstream.columns.evaluate import Outcome, evaluate, uncalled
from crossstream.columns.functions import Function
from crossstream.columns.hashing import hash_keys
from crossstream.columns.match_counts import Asked
from crossstream.columns.values import Values
from crossstream.operators.star_join.right_rows import WAS
from crossstream.operators.star_join.state import ChangedRows, Coded, Home, Partners
from crossstream.operators.table_join.kernel import Joined
from crossstream.serdes import Serde
from crossstream.storage.columns import Column, take, take_or_null
from crossstream.storage.sorted_run import stable_order

Kind = Literal["inner", "left"]


@dataclass(frozen=True, slots=True)
class LeftSerdes:
    """Of the left rows: primary key and value."""

    key: Serde | None
    value: Serde | None


def resolve_many(
    kind: Kind,
    joiner: Function,
    home: Home,
    rows: Changes | None,
    answers: Changes | None,
    serdes: LeftSerdes,
    asked: Sequence[Asked],
    *,
    chunk: int,
) -> Iterator[Joined]:
    """The results of a batch, in chunks of about ``chunk`` rows.

    ``rows``: left rows that changed, in order of their hash; ``answers``: what is told of right rows. Both are put
    into ``home``. ``asked``: counts, for each table, left rows that refer to it.
    """
    if home.anew:
        home.index_all()
    join = _Join(kind, joiner, home, home.as_it_is(), ChangedRows.of(answers, home.bits), serdes, asked)
    if answers is not None:
        home.put_partners(answers)
    if rows is not None and rows.rows:
        references = home.coded([rows.extra[reference(name)] for name in home.names])
        home.put_rows(rows, references, serdes.value)
        yield from join.from_left(rows, references)
    yield from join.from_right(chunk)


@dataclass(frozen=True, slots=True)
class _Join:
    """One batch in one partition: what there is, what there was, and the right rows that changed."""

    kind: Kind
    joiner: Function
    home: Home
    was: Home
    changed: ChangedRows | None
    serdes: LeftSerdes
    asked: Sequence[Asked]

    def from_left(self, rows: Changes, references: Sequence[Coded]) -> Iterator[Joined]:
        """Left rows that changed, with the right rows as they are after the batch."""
        partners = self.home.partners_of(references, self.changed)
        there = ~rows.value.missing()
        for asked, foreign, partner in zip(self.asked, references, partners, strict=True):
            asked.count(there & (foreign.codes >= 0), there & partner.present)
        exists = there & self._complete(partners)
        told = exists | self._had(rows, np.flatnonzero(~exists))
        picked = np.flatnonzero(told)
        if len(picked):
            result, left = self._stamped(rows, partners, exists), rows.value
            if len(picked) < rows.rows:
                result, left = result.take(picked), left.take(picked)
            yield self._made(result, left, partners, picked, exists)

    def _had(self, rows: Changes, candidates: np.ndarray) -> np.ndarray:
        """Which of the ``candidates`` had a result before the batch."""
        had = np.zeros(rows.rows, bool)
        candidates = candidates[np.asarray(rows.extra[WAS])[candidates] == 1]
        if len(candidates):
            keys = take(rows.key.wire(), candidates)
            old = self.was.references_of(hash_keys(keys, self.was.bits), keys)
            had[candidates] = self._were_complete(old)
        return had

    def from_right(self, chunk: int) -> Iterator[Joined]:
        """Left rows that have not changed themselves, by the right rows that have."""
        if self.changed is not None:
            run = self.changed.run
            for queries, columns in self.was.referrers.scan(run["h"], run["key"], chunk):
                joined = self._from_right(self.changed, queries, columns)
                if joined is not None:
                    yield joined

    def _from_right(
        self, changed: ChangedRows, queries: np.ndarray, columns: dict[str, Column]
    ) -> Joined | None:
        """Each left row once, by the first of its foreign keys whose right row has changed."""
        order = stable_order(columns["s"])
        hashes, keys = columns["s"][order], take(columns["key2"], order)
        put = self.home.put_now(hashes, keys)
        if put.all():
            return None
        if put.any():
            kept = np.flatnonzero(~put)
            order, hashes, keys = order[kept], hashes[kept], take(keys, kept)
        match = self.was.rows.lookup(hashes, keys)
        references = [match.gather(reference(name)) for name in self.home.names]
        partners = self.home.partners_of(self.home.coded(references), changed)
        first = changed.first(partners) == queries[order]
        exists = self._complete(partners)
        told = first & exists
        lacks = np.flatnonzero(first & ~exists)
        if len(lacks):
            told[lacks] = self._were_complete([take(column, lacks) for column in references])
        picked = np.flatnonzero(told)
        if not len(picked):
            return None
        left, latest = Values(self.serdes.value, wire=match.gather("value")), changed.latest(partners)
        if len(picked) < left.rows:
            keys, left, latest = take(keys, picked), left.take(picked), latest[picked]
        result = changed.triggered(Values(self.serdes.key, wire=keys), latest)
        return self._made(result, left, partners, picked, exists)

    def _made(
        self,
        result: Changes,
        left: Values,
        partners: Sequence[Partners],
        picked: np.ndarray,
        exists: np.ndarray,
    ) -> Joined:
        rights = [partner.values for partner in partners]
        return made(self.joiner, self.home.names, result, left, rights, picked, exists[picked])

    def _complete(self, partners: Sequence[Partners]) -> np.ndarray:
        """For which left rows there is a result, as far as right rows matter."""
        there = [partner.present for partner in partners]
        return np.logical_and.reduce(there) if self.kind == "inner" else np.ones(len(there[0]), bool)

    def _were_complete(self, references: Sequence[Column]) -> np.ndarray:
        """Likewise before the batch; where that is not known, any row may have had a result."""
        if self.kind == "left" or self.was.anew:
            return np.ones(len(references[0]), bool)
        return self._complete(self.was.partners_of(self.was.coded(references), None))

    def _stamped(self, rows: Changes, partners: Sequence[Partners], exists: np.ndarray) -> Changes:
        """Results of left changes: the newest timestamp of all rows; where a right row came later, that one's."""
        newest = rows.ts
        for partner in partners:
            newest = np.where(partner.present & exists, np.maximum(newest, partner.ts), newest)
        result = Changes(rows.key, rows.value, newest, rows.major, rows.minor, rows.headers)
        latest = None if self.changed is None else self.changed.latest(partners)
        if self.changed is None or latest is None or (latest < 0).all():
            return result
        other = self.changed.triggered(rows.key, latest)
        later = (latest >= 0) & self.changed.later(latest, rows.major, rows.minor)
        headers = concat_headers([(rows.headers, rows.rows), (other.headers, rows.rows)])
        place = np.where(later, rows.rows, 0) + np.arange(rows.rows)
        return Changes(
            rows.key,
            rows.value,
            np.where(later, other.ts, newest),
            np.where(later, other.major, rows.major),
            np.where(later, other.minor, rows.minor),
            None if headers is None else take_or_null(headers, place),
        )


def made(
    joiner: Function,
    names: Sequence[str],
    result: Changes,
    left: Values,
    rights: Sequence[Values],
    picked: np.ndarray,
    exists: np.ndarray,
) -> Joined:
    """The joiner where the row exists, a tombstone elsewhere. ``picked``: the rows of ``rights`` to take."""
    rows = np.flatnonzero(exists)
    if not len(rows):
        return Joined(result.with_value(uncalled(joiner, result.rows)))
    if len(rows) < rights[0].rows:
        rights = [one.take(picked[rows]) for one in rights]
    if len(rows) == result.rows:
        outcome = call_many(joiner, names, result.key, left, rights)
        return Joined.of(result.with_value(outcome.values), outcome.failures, left, left)
    outcome = call_many(joiner, names, result.key.take(rows), left.take(rows), rights)
    place = np.full(result.rows, -1)
    place[rows] = np.arange(len(rows))
    failures = [failure.at(rows[failure.row]) for failure in outcome.failures]
    return Joined.of(result.with_value(outcome.values.take(place)), failures, left, left)


def call_many(
    joiner: Function, names: Sequence[str], keys: Values, left: Values, rights: Sequence[Values]
) -> Outcome:
    """The joiner on every row: a callable gets the right rows as a dict, an expression as a column each."""
    if joiner.expression is not None:
        return evaluate(joiner, keys, left=left, **dict(zip(names, rights, strict=True)))
    columns = [values.own_objects() for values in rights]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return evaluate(joiner, keys, left=left, rows=Values(objects=rows))
