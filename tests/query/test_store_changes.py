"""The changes of a store.

law    the rows after batch N - 1, with the changes of batch N applied, are the rows after batch N
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.query.changes import _without
from crossstream.query.feed import DELETE, INSERT, POSTIMAGE, PREIMAGE, Feed, Position
from crossstream.query.table import StoreTable
from crossstream.storage import compaction
from tests.docs.state_folder import Writer
from tests.laws.effort import cases
from tests.query.stores_of_all_kinds import KINDS, TOPICS, Batch, record, writer
from tests.query.test_store_tables import rows_of

Row = tuple[tuple[str, Any], ...]
"""The columns of a row by name."""


def changes(feed: Feed, start: Position, end: Position) -> Iterator[tuple[str, int, Row]]:
    """What has become of which row, in which batch; within a batch in the order in which it is to be applied."""
    found = []
    for steps in feed.plan(start, end):
        for changed in feed.read(steps):
            arrays = feed.table.arrays(changed.rows, feed.table.columns)
            rows = pa.table(arrays, names=[column.name for column in feed.table.columns]).to_pylist()
            found += [(changed.batch, changed.kind, tuple(row.items())) for row in rows]
    order = {DELETE: 0, PREIMAGE: 0, INSERT: 1, POSTIMAGE: 1}
    for batch, kind, row in sorted(found, key=lambda one: (one[0], order[one[1]])):
        yield kind, batch, row


def applied(rows: Counter[Row], feed: Feed, start: Position, end: Position) -> Counter[Row]:
    """Rows with changes: each row that goes is there."""
    rows = rows.copy()
    for kind, _, row in changes(feed, start, end):
        if kind in (DELETE, PREIMAGE):
            assert rows[row] > 0, f"{kind} of {row}, which is not there"
            rows[row] -= 1
        else:
            rows[row] += 1
    return +rows


def snapshot(table: StoreTable, batch: int) -> Counter[Row]:
    return Counter(tuple(row.items()) for row in rows_of(table, batch))


_KEYS = [f"k{number}" for number in range(6)]
_RECORDS = st.builds(
    record, st.sampled_from(_KEYS), st.integers(0, 3), st.sampled_from(["a", "b", None]), st.integers(0, 30)
)
_LATER = st.integers(0, 12)
"""By how much the records of a batch are later than those before it, so that windows and records expire."""
_BATCHES = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(TOPICS), st.lists(_RECORDS, min_size=1, max_size=6)), _LATER),
    min_size=1,
    max_size=14,
)


def batches_of(drawn: Sequence[tuple[Batch, int]]) -> Iterator[Batch]:
    clock = 0
    for batch, later in drawn:
        clock += later
        moved = {
            topic: [(key, value, time + clock) for key, value, time in rows] for topic, rows in batch.items()
        }
        yield {
            topic: [row for row in rows if row[1] is not None or topic in ("table", "versioned")]
            for topic, rows in moved.items()
        }


@cases(0.3)
@given(_BATCHES, st.integers(1, 3), st.sets(st.integers(0, 13), max_size=2), st.data())
def test_the_changes_of_a_batch_make_its_rows_of_those_before(
    drawn: Sequence[tuple[Batch, int]], partitions: int, rescaled: set[int], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(writer(Path(folder), partitions)) as written:
        for number, batch in enumerate(batches_of(drawn)):
            if number in rescaled:
                written.rescale(written.partitions % 3 + 1)
            written.run({topic: rows for topic, rows in batch.items() if rows})
        for name in KINDS:
            table = StoreTable.open(folder, name)
            feed = Feed(table, preimages=True)
            rows: Counter[Row] = Counter()
            position = Position(-1, False, feed.state())
            while (end := feed.end(position, data.draw(st.integers(1, 4)))) != position:
                rows, position = applied(rows, feed, position, end), end
                assert rows == snapshot(table, position.batch), name
            begun = feed.beginning(data.draw(st.integers(0, position.batch)), None)
            assert applied(Counter(), feed, begun, feed.end(begun)) == rows, name


@cases(0.3)
@given(_BATCHES, st.randoms(use_true_random=False))
def test_the_newest_change_of_each_key_is_its_row_in_whatever_order_they_come(
    drawn: Sequence[tuple[Batch, int]], random: Random
) -> None:
    """What AUTO CDC of Declarative Pipelines does: by key the change with the largest ``_commit_version`` counts."""
    with tempfile.TemporaryDirectory() as folder, closing(writer(Path(folder))) as written:
        for batch in batches_of(drawn):
            written.run({topic: rows for topic, rows in batch.items() if rows})
        for name in ("rows", "versions", "averages", "windows", "sessions"):
            table = StoreTable.open(folder, name)
            feed = Feed(table)
            identity = [c.name for c in table.columns if c.part in ("key", "start", "end")]
            begun = feed.beginning(0, None)
            found = list(changes(feed, begun, feed.end(begun)))
            random.shuffle(found)
            newest: dict[Any, tuple[int, str, Row]] = {}
            for kind, number, row in found:
                key = tuple(dict(row)[column] for column in identity)
                assert key not in newest or newest[key][0] != number, "two changes of a key in one version"
                if key not in newest or newest[key][0] < number:
                    newest[key] = number, kind, row
            rows = Counter(row for _, kind, row in newest.values() if kind != DELETE)
            assert rows == snapshot(table, written.batch - 1), name


def test_a_merge_is_no_change(tmp_path: Path) -> None:
    with closing(writer(tmp_path, partitions=1)) as written:
        for batch in range(2 * compaction.FAN_IN):
            written.run({"table": [record(f"k{batch}", batch, "a", batch)]})
        feed = Feed(StoreTable.open(tmp_path, "rows"))
        state = feed.state()
        for batch in range(2 * compaction.FAN_IN):
            found = list(changes(feed, Position(batch - 1, False, state), Position(batch, False, state)))
            assert [(kind, number, dict(row)["key"]) for kind, number, row in found] == [
                ("insert", batch, f"k{batch}")
            ]


def test_a_row_that_is_put_again_is_no_change(tmp_path: Path) -> None:
    """Its time is one, unless the reader does not ask for times."""
    with closing(writer(tmp_path, partitions=1)) as written:
        written.run({"table": [record("k", 1, "a", 5), record("l", 1, "a", 5)]})
        written.run({"table": [record("k", 1, "a", 5), record("l", 1, "a", 6)]})
        table = StoreTable.open(tmp_path, "rows")
        state = Feed(table).state()
        between = Position(0, False, state), Position(1, False, state)
        assert [(kind, dict(row)["key"]) for kind, _, row in changes(Feed(table), *between)] == [
            ("update_postimage", "l")
        ]
        assert list(changes(Feed(table, times=False), *between)) == []


class TestALongStream:
    """Retention takes the batches that a reader has not read."""

    @pytest.fixture
    def written(self, tmp_path: Path) -> Iterator[Writer]:
        with closing(writer(tmp_path, retain=2)) as made:
            yield made

    def run(self, written: Writer, batches: int) -> None:
        for _ in range(batches):
            number = written.batch
            written.run({"table": [record("k", number, "a", number)]})

    def test_that_stands_still_is_told_so(self, written: Writer) -> None:
        self.run(written, 2)
        feed = Feed(StoreTable.open(written.root, "rows"))
        begun = feed.beginning(None, None)
        self.run(written, 6)
        with pytest.raises(cs.StateError, match="batch 1 is not kept any more") as caught:
            feed.plan(begun, feed.end(begun))
        assert caught.value.code == "CS-713"
        assert "checkpoint" in str(caught.value.next)

    def test_whose_batch_goes_while_it_is_read_is_told_so(self, written: Writer) -> None:
        self.run(written, 2)
        feed = Feed(StoreTable.open(written.root, "rows"))
        begun = feed.beginning(0, None)
        steps = [steps for steps in feed.plan(begun, feed.end(begun)) if steps]
        self.run(written, 6)
        with pytest.raises(cs.StateError, match="is not kept any more") as caught:
            [list(feed.read(one)) for one in steps]
        assert caught.value.code == "CS-713"

    def test_begins_with_a_batch_that_is_kept(self, written: Writer) -> None:
        self.run(written, 6)
        feed = Feed(StoreTable.open(written.root, "rows"))
        with pytest.raises(cs.StateError, match="batch 0 is not kept") as caught:
            feed.beginning(None, 1)
        assert caught.value.code == "CS-713"
        assert feed.beginning(None, 5) == Position(4, False, feed.state())
        assert feed.beginning(None, "latest") == Position(5, False, feed.state())

    def test_of_state_that_is_older_now_is_told_so(self, written: Writer) -> None:
        self.run(written, 2)
        feed = Feed(StoreTable.open(written.root, "rows"))
        with pytest.raises(cs.StateError, match="has read batch 7, and the newest one is 1"):
            feed.end(Position(7, False, feed.state()))
        with pytest.raises(cs.StateError, match="not the one that the stream began with"):
            feed.end(Position(1, False, "another"))


def test_before_the_first_batch_there_is_nothing(tmp_path: Path) -> None:
    with closing(writer(tmp_path)) as written:
        feed = Feed(StoreTable.open(tmp_path, "rows"))
        begun = feed.beginning(None, None)
        assert begun == Position(-1, True, feed.state())
        assert feed.end(begun) == begun
        written.run({"table": [record("k", 1, "a", 1)]})
        assert [kind for kind, _, _ in changes(feed, begun, feed.end(begun))] == ["insert"]


@given(*[st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=4)] * 2)
@example([(0, 5), (10, 5)], [(5, 5)])
def test_rows_of_a_file_without_others(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    first, second = apart(one), apart(other)
    left = {row for start, stop in _without(first, second) for row in range(start, stop)}
    assert left == numbers(first) - numbers(second)


def apart(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that share no rows, in order."""
    made, end = [], 0
    for start, rows in sorted(spans):
        begin = max(start, end)
        end = begin + rows
        made.append((begin, end))
    return made


def numbers(spans: list[tuple[int, int]]) -> set[int]:
    return {row for start, stop in spans for row in range(start, stop)}
