"""Windows below a join of streams: every change comes out, whatever the batches."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from tests.laws.effort import cases
from tests.operators.aggregate.windowed import TEXT, cut, random_case, random_records, topology


@cases(0.5)
@given(st.integers(0, 10**9))
def test_a_join_sees_every_change(seed: int) -> None:
    random = Random(seed)
    case, records = random_case(random), random_records(random, 20)
    reference = case.reference()
    wanted = Counter(
        (r.key, f"{r.start}-{r.end}: {r.value}", r.ts)
        for record in records
        for r in reference.process(*record)
    )
    with cs.TopologyTestDriver(topology(case, joined=True), commit_every=10**6) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        output = driver.create_output_topic("out", TEXT, TEXT)
        made = []
        for batch in cut(random, records):
            for record in batch:
                topic.pipe_input(*record[:2], timestamp=record.ts)
            driver.commit()
            made += [(r.key, r.value, r.timestamp) for r in output.read_records()]
    assert Counter(made) == wanted, (case, records)
