"""A table of Postgres holds what the table of crossstream holds, however its changes are cut into batches."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.databases.tables import made
from tests.lakehouse.test_tables import TEXT, topology

NUMBER = serdes.int64()
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9)), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=CHANGES, cuts=st.sets(st.integers(1, 11), max_size=4), starts=st.booleans())
@example(changes=[("a", 1), ("a", None), ("a", 2), ("b", None)], cuts={1, 2}, starts=True)
def test_the_rows_are_those_of_the_table(
    server: Any, changes: list[tuple[str, int | None]], cuts: set[int], starts: bool
) -> None:
    """``starts``: a driver for each batch, as if the application began with new state."""
    tables = made(server)
    built = topology(tables, of=(TEXT, NUMBER))
    ends = sorted(cut for cut in {*cuts, len(changes)} if cut <= len(changes))
    batches = [changes[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    drivers = [[batch] for batch in batches] if starts else [batches]
    for own in drivers:
        with cs.TopologyTestDriver(built, commit_every=100) as driver:
            topic = driver.create_input_topic("orders", TEXT, NUMBER)
            for batch in own:
                topic.pipe_records([cs.TestRecord(key, value, at) for at, (key, value) in enumerate(batch)])
                driver.commit()
    held = {key: value for key, value in dict(changes).items() if value is not None}
    found = dict(tables.execute("SELECT * FROM orders"))
    tables.execute("DROP SCHEMA {} CASCADE")
    assert found == held
