"""However records arrive, and wherever connector and reader start again: each batch is a state of the database."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.operators.debezium.transactions.database import TABLES, Database, Record, topology
from tests.operators.debezium.transactions.memory import Memory, Reader

GRAPH = topology()

some_changes = st.lists(
    st.tuples(st.sampled_from(TABLES), st.integers(0, 3), st.integers(0, 9) | st.none()), max_size=4
)
some_steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), some_changes),
        st.tuples(st.just("again"), st.integers(0, 30)),
    ),
    min_size=1,
    max_size=8,
)


class Written:
    """What a connector has written, and the states of the database by transaction."""

    def __init__(self, partitions: int) -> None:
        self.database = Database(partitions)
        self.sent: list[Record] = []
        self.states: dict[str, dict[tuple[str, int], int]] = {}

    def snapshot(self, rows: list[tuple[str, int, int]]) -> None:
        self.sent += self.database.snapshot(*{row[:2]: row for row in rows}.values())
        self.states[""] = dict(self.database.rows)
        self.loaded = len(self.sent)

    def step(self, what: str, given: Any) -> None:
        if what == "commit":
            self.sent += self.database.transaction(*given)
            self.states[str(self.database.xid)] = dict(self.database.rows)
        elif what == "again":
            self.sent += self.sent[max(self.loaded, len(self.sent) - given) :]


@given(
    partitions=st.integers(1, 3),
    snapshot=st.lists(st.tuples(st.sampled_from(TABLES), st.integers(0, 3), st.integers(0, 9)), max_size=5),
    steps=some_steps,
    most=st.sampled_from([None, 1, 3]),
    chances=st.randoms(use_true_random=False),
)
def test_each_batch_is_a_state_that_the_database_had(
    partitions: int, snapshot: list[Any], steps: list[Any], most: int | None, chances: Any
) -> None:
    made = Written(partitions)
    made.snapshot(snapshot)
    for what, given_ in steps:
        made.step(what, given_)
    memory = Memory()
    reader = Reader(memory, GRAPH, partitions, most)
    for stop in sorted(chances.sample(range(made.loaded), chances.randint(0, made.loaded))):
        memory.append(made.sent[sum(map(len, memory.records.values())) : stop])
        assert not reader.batch()
    memory.append(made.sent[sum(map(len, memory.records.values())) : made.loaded])
    queues: dict[Any, list[Record]] = {}
    for one in made.sent[made.loaded :]:
        queues.setdefault((one.topic, one.partition), []).append(one)
    while any(queues.values()):
        queue = chances.choice([queue for queue in queues.values() if queue])
        count = chances.randint(1, 4)
        memory.append(queue[:count])
        del queue[:count]
        if chances.random() < 0.3:
            reader.restart()
        while chances.random() < 0.7 and reader.batch():
            assert reader.stand is not None
            assert reader.rows == made.states[reader.stand.transaction], reader.stand
    while reader.batch():
        assert reader.stand is not None
        assert reader.rows == made.states[reader.stand.transaction], reader.stand
    assert reader.rows == made.database.rows
    assert reader.transactions.waits == ()
