"""The random applications, changes and histories that the law of changes is tried with are worth it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.evolution.changes.cases import drawn
from tests.evolution.changes.kinds import KINDS
from tests.evolution.changes.worlds import Life, check_events, check_rows, check_stores, fold, fresh
from tests.laws.effort import cases


@cases(0.3)
@given(st.integers(0, 10**9))
def test_a_fresh_run_on_files_in_any_batches_is_what_the_driver_says(seed: int) -> None:
    (stage, _) = drawn(Random(seed), records=24).stages
    items, cut = stage.items, len(stage.items) // 2
    (wanted,) = fresh(stage.app, items)
    with TemporaryDirectory() as folder:
        life = Life(Path(folder), stage.app, stage.partitions)
        for part in (items[:cut], items[cut:]):
            life.feed(part)
            life.run(max_records_per_batch=stage.every)
        check_rows(stage.app, life.topics(), wanted)
        check_events(stage.app, life.topics(), wanted.topics)
        check_stores(life, wanted)


def test_every_kind_of_change_is_drawn_and_most_of_them_change_results() -> None:
    drawn_kinds: Counter[str] = Counter()
    differ: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    for seed in range(72):
        before, after = drawn(Random(seed)).stages
        drawn_kinds[after.kind] += 1
        operators.update({op.op for op in before.app.ops})
        rows = [
            {topic: fold(found) for topic, found in fresh(app, before.items)[0].topics.items()}
            for app in (before.app, after.app)
        ]
        differ[after.kind] += rows[0] != rows[1]
    print(drawn_kinds, differ, operators)
    assert set(drawn_kinds) == set(KINDS)
    on_tables = {"table", "filter", "map", "join", "fk", "many", "group"}
    assert set(operators) == on_tables | {"stream", "enrich", "pair", "window", "tally", "latest"}
    assert set(differ) - {"kept with versions"} == {kind for kind, count in differ.items() if count}
    assert sum(differ.values()) > sum(drawn_kinds.values()) / 3
