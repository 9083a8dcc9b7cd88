"""Star join: a KTable with several KTables, by a foreign key into each of them.

A partition of left rows keeps them, an index of them by foreign key, and the right rows they refer to, each once, which
`subscriptions.py` gets there. So results are made where their left rows are. Foreign keys into several tables share a
store; the number of the table is the first byte of such a key. What a batch makes (`Emit`):

    net         the last result of each row, made once from the rows after the batch; its trigger is the record that
                came last
    changelog   what taking the records one by one makes: a left change sees the right rows as they are when it comes,
                a right change answers the rows that refer to it when it comes

For a changelog a left row is cut into *spans*, from one of its changes to the next (`Spans`). Net results skip that:
see decision 0033 for what it costs. Source: decision 0019, semantics 8.12 to 8.15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, LookupCounts, concat_changes, reference
from crossstream.columns.evaluate import Outcome, evaluate, uncalled
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import arrival_of, by_key
from crossstream.columns.values import Values
from crossstream.operators.star_join.right_changes import Coded, RightChanges, RightRows, Seen, Spans
from crossstream.operators.star_join.subscriptions import (
    CHANGED,
    CURRENT,
    DROPPED,
    MOVED,
    RAW,
    WAS,
    answers_of,
)
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column, take
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import places_of, sorted_order, stable_order
from crossstream.tables.join_spec import JoinSpec
from crossstream.tables.joined import Joined
from crossstream.tables.rows import as_stored


@dataclass(frozen=True, slots=True)
class PartitionState:
    """``names``: of the right tables, with the serdes of their ``values``. ``key``, ``value``: serdes of left rows.

    ``rows``: left rows and their foreign keys; ``index``: their primary keys by foreign key. ``rebuilt``: index and
    right rows are made in this batch, so it is not known what they were before it.
    """

    names: Sequence[str]
    values: Sequence[EngineSerde | None]
    rows: Snapshot
    index: Snapshot
    right_rows: Snapshot
    key: EngineSerde | None
    value: EngineSerde | None
    bits: int
    rebuilt: bool = False

    def snapshot(self) -> PartitionState:
        """What is kept now; later puts do not change it."""
        rows, index, right_rows = (
            Snapshot(view.layout, view.levels, view.memtable)
            for view in (self.rows, self.index, self.right_rows)
        )
        return replace(self, rows=rows, index=index, right_rows=right_rows)

    def coded(self, columns: Sequence[Column]) -> list[Coded]:
        """One column of foreign keys for each table, each different one once."""
        return [Coded.of(number, column, self.bits) for number, column in enumerate(columns)]

    def references_of(self, hashes: np.ndarray, keys: Column) -> list[Column]:
        """The foreign keys of stored left rows, a column for each table."""
        match = self.rows.lookup(hashes, keys)
        return [match.gather(reference(name)) for name in self.names]

    def is_put(self, hashes: np.ndarray, keys: Column) -> np.ndarray:
        """Which left rows this batch has put (``hashes`` sorted)."""
        hit = np.zeros(len(hashes), bool)
        if self.rows.memtable is not None and self.rows.memtable.rows:
            hit[self.rows.memtable.match(hashes, keys)[0]] = True
        return hit

    def put_rows(self, rows: Changes, now: Sequence[Coded]) -> None:
        """Puts left rows that changed, in order of their hash, with their foreign keys after the batch."""
        hashes, keys = rows.hashes(self.bits), rows.key.wire()
        moved = np.asarray(rows.extra[MOVED])
        leavers = np.flatnonzero((moved > 0) & (np.asarray(rows.extra[WAS]) == 1))
        before = self.coded(self.references_of(hashes[leavers], take(keys, leavers)))
        references = {reference(name): rows.extra[reference(name)] for name in self.names}
        gone = rows.value.missing().astype(np.uint8)
        own = {"h": hashes, "key": keys, "value": rows.value.wire(self.value), "ts": rows.ts, "gone": gone}
        self.rows.put({**own, **references})
        entries = [
            _Entries.of(one, whose, (moved[whose] >> number & 1).astype(bool), leaves)
            for references, whose, leaves in ((before, leavers, True), (now, np.arange(rows.rows), False))
            for number, one in enumerate(references)
        ]
        self._put_index(entries, keys, hashes)

    def rebuild_index(self) -> None:
        """Makes the index from the rows."""
        live = self.rows.live()
        everyone, all_of_them = np.arange(live.rows), np.ones(live.rows, bool)
        references = self.coded([live[reference(name)] for name in self.names])
        entries = [_Entries.of(one, everyone, all_of_them, False) for one in references]
        self._put_index(entries, live["key"], live["h"])

    def _put_index(self, entries: Sequence[_Entries], keys: Column, hashes: np.ndarray) -> None:
        """Puts entries of left rows with these keys and hashes, in their final order: cheaper than sorting keys."""
        first = np.cumsum([0, *(len(one.foreign.keys) for one in entries[:-1])])
        codes = np.concatenate([one.codes + at for one, at in zip(entries, first, strict=True)])
        if not len(codes):
            return
        rows = np.concatenate([one.rows for one in entries])
        gone = np.repeat([one.leaves for one in entries], [len(one.rows) for one in entries])
        h, s = np.concatenate([one.foreign.hashes for one in entries])[codes], hashes[rows]
        order = sorted_order({"h": h, "s": s})
        foreign = take(pa.concat_arrays([one.foreign.keys for one in entries]), codes[order])
        key2 = take(keys, rows[order])
        self.index.put(
            {"h": h[order], "s": s[order], "key": foreign, "key2": key2, "gone": gone[order].astype(np.uint8)}
        )

    def put_right_rows(self, rows: Changes, gone: np.ndarray) -> None:
        """Puts right rows, each once, under their foreign key with the number of the table in front."""
        if rows.rows:
            keys, value = rows.key.wire(), rows.value.wire(RAW)
            h = hash_keys(keys, self.bits)
            self.right_rows.put(
                {"h": h, "key": keys, "value": value, "ts": rows.ts, "gone": gone.astype(np.uint8)}
            )


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of the index: left ``rows`` that begin to refer to a foreign key, or that leave it; ``codes``: which."""

    foreign: Coded
    codes: np.ndarray
    rows: np.ndarray
    leaves: bool

    @classmethod
    def of(cls, foreign: Coded, rows: np.ndarray, mask: np.ndarray, leaves: bool) -> _Entries:
        """Of these rows those that have a foreign key, and for which the mask holds."""
        there = np.flatnonzero((foreign.codes >= 0) & mask)
        return cls(foreign, foreign.codes[there], rows[there], leaves)


def resolve(
    spec: JoinSpec,
    state: PartitionState,
    rows: Changes | None,
    answers: Changes | None,
    counts: Sequence[LookupCounts],
) -> Iterator[Joined]:
    """The results of a batch, in chunks. Puts what it gets into ``state``.

    ``rows``: left rows that changed: net changes in order of their hash, or every change in any order. ``answers``: of
    right rows, see `subscriptions.answer`. ``counts``: for each table, of left rows that refer to it.
    """
    if state.rebuilt:
        state.rebuild_index()
    current, changes, dropped = (answers_of(answers, kind) for kind in (CURRENT, CHANGED, DROPPED))
    if current is not None:
        state.put_right_rows(current, current.value.missing())
    before, changed = state.snapshot(), RightChanges.of(changes, state.bits)
    if changes is not None:
        last = changed.last()
        state.put_right_rows(last, last.value.missing())
    if dropped is not None:
        state.put_right_rows(dropped, np.ones(dropped.rows, bool))
    join = _Join(spec, state, before, changed)
    if rows is not None and rows.rows:
        yield from (join.net_of_left if spec.emit == "net" else join.every_of_left)(rows, counts)
    from_right = join.net_of_right if spec.emit == "net" else join.every_of_right
    for queries, columns in before.index.scan(changed.puts.hashes, changed.puts.keys, spec.chunk):
        yield from from_right(queries, columns)


@dataclass(frozen=True, slots=True)
class _Join:
    """One batch in one partition: what there is, what there was before it, and the right rows that changed."""

    spec: JoinSpec
    state: PartitionState
    before: PartitionState
    changed: RightChanges

    def net_of_left(self, rows: Changes, counts: Sequence[LookupCounts]) -> Iterator[Joined]:
        """Left rows that changed, with the right rows as they are after the batch."""
        references = self._coded(rows)
        self.state.put_rows(rows, references)
        rights = self._right_rows(references)
        there, seen = ~rows.value.missing(), [one.as_looked_up() for one in rights]
        for table, one in zip(counts, seen, strict=True):
            table.count(there & (one.slot >= 0), there & one.present)
        exists = there & self._complete([one.present for one in seen])
        emitted = exists | self._had_result(rows, np.flatnonzero(~exists))
        if emitted.any():
            latest = self.changed.latest([one.last_change() for one in rights])
            yield self._made(rows, self._if_later(latest, rows), exists, seen, emitted)

    def _if_later(self, change: np.ndarray, rows: Changes) -> np.ndarray:
        """The right changes that arrived after the left rows; −1 for the others."""
        if (change < 0).all():
            return change
        major, minor = self.changed.puts.changes.major[change], self.changed.puts.changes.minor[change]
        later = (major > rows.major) | ((major == rows.major) & (minor > rows.minor))
        return np.where(later, change, -1)

    def _had_result(self, rows: Changes, candidates: np.ndarray) -> np.ndarray:
        """Which of the ``candidates`` had a result before the batch."""
        had = np.zeros(rows.rows, bool)
        candidates = candidates[np.asarray(rows.extra[WAS])[candidates] == 1]
        if len(candidates):
            keys = take(rows.key.wire(), candidates)
            had[candidates] = self._were_complete(
                self.before.references_of(hash_keys(keys, self.state.bits), keys)
            )
        return had

    def net_of_right(self, queries: np.ndarray, columns: dict[str, Column]) -> Iterator[Joined]:
        """Left rows that have not changed themselves, by the right rows that have."""
        left, rights, mine = self._unchanged(queries, columns)
        if not left.rows:
            return
        seen = [one.as_looked_up() for one in rights]
        exists = self._complete([one.present for one in seen])
        emitted = mine & exists
        lacks = np.flatnonzero(mine & ~exists)
        if len(lacks):
            references = [take(left.extra[reference(name)], lacks) for name in self.state.names]
            emitted[lacks] = self._were_complete(references)
        if emitted.any():
            latest = self.changed.latest([one.last_change() for one in rights])
            yield self._made(left, latest, exists, seen, emitted)

    def every_of_left(self, rows: Changes, counts: Sequence[LookupCounts]) -> Iterator[Joined]:
        """Each change of left rows, and the changes of right rows that come between."""
        hashes = rows.hashes(self.state.bits)
        order, begins = by_key(rows, hashes, arrival_of(rows))
        rows = rows.take(order)
        last = rows.take(np.flatnonzero(np.append(begins[1:], True)))
        self.state.put_rows(last, self._coded(last))
        found, stored = self._stored(hashes[order[begins]], take(rows.key.wire(), np.flatnonzero(begins)))
        extra = {reference(name): rows.extra[reference(name)] for name in self.state.names}
        now = replace(rows, value=as_stored(rows.value, self.state.value), extra=extra)
        row = np.concatenate([np.flatnonzero(found), np.cumsum(begins) - 1])
        order = np.argsort(row, kind="stable")
        both = concat_changes([stored, now]).take(order)
        yield from self._every(both, self._looked_up(both), row[order], order >= stored.rows, counts)

    def every_of_right(self, queries: np.ndarray, columns: dict[str, Column]) -> Iterator[Joined]:
        """Left rows that do not change, each once, with all changes of its right rows."""
        left, rights, mine = self._unchanged(queries, columns)
        rows = np.flatnonzero(mine)
        if len(rows):
            left, rights = left.take(rows), [one.take(rows) for one in rights]
            yield from self._every(left, rights, np.arange(len(rows)), np.zeros(len(rows), bool))

    def _every(
        self,
        left: Changes,
        rights: Sequence[RightRows],
        row: np.ndarray,
        is_change: np.ndarray,
        counts: Sequence[LookupCounts] = (),
    ) -> Iterator[Joined]:
        spans = Spans.of(replace(left, extra={}), row, is_change, rights, self.changed)
        had = spans.there & ~is_change & self._complete([one.there[one.slot] for one in rights])
        for moments in spans.moments(self.spec.chunk):
            there, own = spans.there[moments.span], moments.change < 0
            for table, one in zip(counts, moments.seen, strict=False):
                table.count(there & own & (one.slot >= 0), there & own & one.present)
            exists = there & self._complete([one.present for one in moments.seen])
            emitted = np.flatnonzero(exists | spans.had_result(moments.span, exists, had))
            if len(emitted):
                changes = spans.changes.take(moments.span[emitted])
                seen = [one.take(emitted) for one in moments.seen]
                yield self._made(changes, moments.change[emitted], exists[emitted], seen)

    def _unchanged(
        self, queries: np.ndarray, columns: dict[str, Column]
    ) -> tuple[Changes, Sequence[RightRows], np.ndarray]:
        """The left rows that the index has under right rows (``queries``), if the batch does not change them.

        And the right rows of each, and whether it was found by the first of them that changed: so it counts once.
        """
        order = stable_order(columns["s"])
        hashes, keys = columns["s"][order], take(columns["key2"], order)
        put = self.state.is_put(hashes, keys)
        if put.any():
            rest = np.flatnonzero(~put)
            order, hashes, keys = order[rest], hashes[rest], take(keys, rest)
        found, left = self._stored(hashes, keys)
        rights = self._looked_up(left)
        first = np.full(left.rows, -1)
        for one in reversed(rights):
            change = one.first_change()
            first = np.where(change >= 0, change, first)
        found_by = queries[order] if left.rows == len(order) else queries[order[found]]
        return left, rights, first == self.changed.puts.starts[found_by]

    def _stored(self, hashes: np.ndarray, keys: Column) -> tuple[np.ndarray, Changes]:
        """Which of the keys had a left row before the batch, and these rows, with their foreign keys."""
        match = self.before.rows.lookup(hashes, keys)
        columns = {name: match.gather(name) for name in ("value", *map(reference, self.before.names))}
        columns["key"] = keys
        if not match.found.all():
            rows = np.flatnonzero(match.found)
            columns = {name: take(column, rows) for name, column in columns.items()}
        key = Values(self.state.key, wire=columns.pop("key"))
        value = Values(self.state.value, wire=columns.pop("value"))
        none = np.zeros(key.rows, np.int64)
        return match.found, Changes(key, value, none, none, none, extra=columns)

    def _looked_up(self, left: Changes) -> list[RightRows]:
        return self._right_rows(self._coded(left))

    def _coded(self, left: Changes) -> list[Coded]:
        return self.state.coded([left.extra[reference(name)] for name in self.state.names])

    def _right_rows(self, references: Sequence[Coded]) -> list[RightRows]:
        """The right rows after the batch for net results, else those before it."""
        view = (self.state if self.spec.emit == "net" else self.before).right_rows
        return [
            RightRows.of(foreign, view, self.changed, serde)
            for foreign, serde in zip(references, self.state.values, strict=True)
        ]

    def _complete(self, present: Sequence[np.ndarray]) -> np.ndarray:
        """Where there is a result, as far as right rows matter."""
        return np.logical_and.reduce(present) if self.spec.kind == "inner" else np.ones(len(present[0]), bool)

    def _were_complete(self, references: Sequence[Column]) -> np.ndarray:
        """Where there was one before the batch; where that is not known, any row may have had one."""
        if self.spec.kind == "left" or self.before.rebuilt:
            return np.ones(len(references[0]), bool)
        present = []
        for foreign in self.before.coded(references):
            found = self.before.right_rows.lookup(foreign.hashes, foreign.keys).found
            present.append(np.append(found, False)[foreign.codes])
        return self._complete(present)

    def _made(
        self,
        left: Changes,
        trigger: np.ndarray,
        exists: np.ndarray,
        seen: Sequence[Seen],
        emitted: np.ndarray | None = None,
    ) -> Joined:
        """The joiner where the result exists, a tombstone elsewhere. ``emitted``: the rows to make, else all.

        ``trigger``: the right change that makes each result; −1: the left row itself.
        """
        if emitted is not None and not emitted.all():
            rows = np.flatnonzero(emitted)
            left, trigger, exists = replace(left, extra={}).take(rows), trigger[rows], exists[rows]
            seen = [one.take(rows) for one in seen]
        result, there = self.changed.stamped(left, trigger, exists, seen), np.flatnonzero(exists)
        if not len(there):
            return Joined(result.with_value(uncalled(self.spec.joiner, result.rows)))
        rights = [one.values(there) for one in seen]
        if len(there) == result.rows:
            outcome = self._call(result.key, left.value, rights)
            return Joined.of(result.with_value(outcome.values), outcome.failures, left.value, left.value)
        outcome = self._call(result.key.take(there), left.value.take(there), rights)
        index = places_of(there, result.rows)
        failures = [failure.at(there[failure.row]) for failure in outcome.failures]
        return Joined.of(result.with_value(outcome.values.take(index)), failures, left.value, left.value)

    def _call(self, keys: Values, left: Values, rights: Sequence[Values]) -> Outcome:
        """The joiner on every row: a callable gets the right rows as a dict, an expression as a column each."""
        names = self.state.names
        if self.spec.joiner.expression is not None:
            return evaluate(self.spec.joiner, keys, left=left, **dict(zip(names, rights, strict=True)))
        columns = [values.own_objects() for values in rights]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return evaluate(self.spec.joiner, keys, left=left, rows=Values(objects=rows))
