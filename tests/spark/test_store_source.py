"""The format ``crossstream``: a store as a table of Spark, and its changes as a stream."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyspark
import pytest

import crossstream as cs
from crossstream.query.feed import DELETE
from tests.docs.state_folder import Writer
from tests.query.stores_of_all_kinds import KINDS, record, writer

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

BATCHES = 6


def run(written: Writer, batch: int) -> None:
    rows = [record(f"k{n}", n * batch, f"n{n % 3}", 3 * batch + n % 5) for n in range(batch, batch + 9)]
    gone = [record(f"k{batch}", 0, None, 3 * batch + 6)] if batch % 2 else []
    written.run({"table": rows + gone, "versioned": rows + gone, "stream": rows, "other": rows})


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("state")
    with closing(writer(root)) as written:
        for batch in range(BATCHES):
            run(written, batch)
    return root


@pytest.fixture
def session(spark: Any) -> Any:
    cs.register(spark)
    return spark


def table(spark: Any, state: Path, name: str, **options: Any) -> Any:
    return spark.read.format("crossstream").option("store", name).options(**options).load(str(state))


def test_has_the_rows_of_every_kind_of_store(session: Any, state: Path) -> None:
    """What the rows are: tests/query/test_store_tables.py."""
    counts = {name: table(session, state, name).count() for name in KINDS}
    assert counts == {name: cs.open_store(state, name).count() for name in KINDS}


def test_has_the_values_of_a_batch(session: Any, state: Path) -> None:
    found = table(session, state, "rows", batch=2)
    assert found.columns == ["key", "price", "name", "timestamp"]
    rows = {
        row.key: {"price": row.price, "name": row.name}
        for row in found.select("key", "price", "name").collect()
    }
    assert rows == dict(cs.open_store(state, "rows", as_of=2).all())
    assert found.rdd.getNumPartitions() == 2 if hasattr(found, "rdd") else True


def test_shows_windows_and_fields_of_keys(session: Any, state: Path) -> None:
    windows = table(session, state, "windows").where("start >= timestamp_millis(10)")
    wanted = [window for window, _ in cs.open_store(state, "windows").all() if window.start >= 10]
    assert windows.count() == len(wanted) > 0
    pair = table(session, state, "pairs").where("shop = 'n1' and number = 4").collect()
    assert [row.value for row in pair] == [cs.open_store(state, "pairs").get({"shop": "n1", "number": 4})]


@pytest.mark.skipif(VERSION < (4, 1), reason="PySpark 4.0 pushes no filters to sources in Python")
def test_pushes_the_key(session: Any, state: Path) -> None:
    one = table(session, state, "rows").where("key = 'k9'")
    assert [row.key for row in one.collect()] == ["k9"]
    assert one.rdd.getNumPartitions() == 1
    assert sorted(
        row.key for row in table(session, state, "rows").where("key in ('k6', 'k9', 'no')").collect()
    ) == [
        "k6",
        "k9",
    ]


def test_reads_the_columns_that_are_asked_for(session: Any, state: Path) -> None:
    assert table(session, state, "rows", columns="price, key").columns == ["price", "key"]
    asked = (
        session.read.format("crossstream")
        .option("store", "rows")
        .schema("key string, value binary, price double")
    )
    row = next(row for row in asked.load(str(state)).collect() if row.key == "k9")
    assert (bytes(row.value), row.price) == (b'{"price":45,"name":"n0"}', 45.0)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"store": "nope"}, "CS-710", "its queryable stores are"),
        ({"store": "rows", "batch": 99}, "CS-713", "kept are batches 0 to 5"),
        ({"store": "rows", "colums": "a"}, "CS-201", "the options are: store, batch"),
        ({"store": "rows", "columns": "prize"}, "CS-711", "it has: key, price, name, timestamp"),
        ({"store": "rows", "versions": True}, "CS-711", "history_retention"),
        ({"store": "rows", "batch": -1}, "CS-201", "not a number from 0 on"),
        ({"store": "rows", "changes": True}, "CS-201", "spark.readStream"),
        ({}, "CS-201", "the store is not named"),
    ],
)
def test_mistakes_have_a_code_and_a_next_step(
    session: Any, state: Path, options: dict[str, Any], code: str, said: str
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of Spark, whose classes differ by version
        session.read.format("crossstream").options(**options).load(str(state)).collect()
    assert f"[{code}]" in str(caught.value)
    assert said in str(caught.value)
    assert "During handling" not in str(caught.value)


class Applied:
    """A table that each batch of a stream changes."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, str]] = {}
        self.after: dict[int, dict[str, tuple[int, str]]] = {}

    def __call__(self, frame: Any, _: int) -> None:
        found = frame.select("_commit_version", "_change_type", "key", "price", "name").collect()
        for version, kind, key, price, name in sorted(found):
            if kind == DELETE:
                assert self.rows.pop(key) == (price, name)
            else:
                assert (key in self.rows) == (kind == "update_postimage")
                self.rows[key] = price, name
            self.after[version] = dict(self.rows)


def follow(spark: Any, state: Path, checkpoint: Path, applied: Applied, **options: Any) -> list[int]:
    """Reads all there is; how many rows each batch of Spark had."""
    stream = (
        spark.readStream.format("crossstream").option("store", "rows").options(**options).load(str(state))
    )
    started = stream.writeStream.foreachBatch(applied).option("checkpointLocation", str(checkpoint))
    query = started.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def rows_after(state: Path, batch: int) -> dict[str, tuple[int, str]]:
    return {key: (row["price"], row["name"]) for key, row in cs.open_store(state, "rows", as_of=batch).all()}


@pytest.mark.skipif(
    VERSION < (4, 2), reason="before PySpark 4.2 a stream takes all batches that there are at once"
)
def test_a_stream_makes_the_table_after_each_batch(session: Any, tmp_path: Path) -> None:
    """Started again, it goes on where it was; in between the number of state partitions changes."""
    state, applied = tmp_path / "state", Applied()
    with closing(writer(state)) as written:
        for batch in range(4):
            run(written, batch)
        first = follow(session, state, tmp_path / "checkpoint", applied, batch=0, maxBatchesPerTrigger=2)
        assert len(first) == 2  # a snapshot and a batch, then two batches
        written.rescale(3)
        for batch in range(5, 7):
            run(written, batch)
        follow(session, state, tmp_path / "checkpoint", applied)
    assert set(applied.after) == {0, 1, 2, 3, 5, 6}
    for batch, rows in applied.after.items():
        assert rows == rows_after(state, batch), batch


def test_a_stream_has_columns_of_changes(session: Any, state: Path) -> None:
    stream = session.readStream.format("crossstream").option("store", "rows").load(str(state))
    assert stream.columns[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]
    assert table(session, state, "rows").columns == stream.columns[:-3]


def test_a_stream_whose_batches_are_gone_says_so(session: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with closing(writer(state, retain=2)) as written:
        run(written, 0)
        follow(session, state, tmp_path / "checkpoint", Applied())
        for batch in range(1, 7):
            run(written, batch)
        with pytest.raises(Exception, match="CS-713") as caught:
            follow(session, state, tmp_path / "checkpoint", Applied())
    assert "batch 0 is not kept any more" in str(caught.value)
    assert "new checkpoint" in str(caught.value)


def test_register_takes_a_session() -> None:
    with pytest.raises(cs.ConfigError, match="register takes a session of Spark, not None") as caught:
        cs.register(None)  # type: ignore[arg-type]
    assert caught.value.code == "CS-201"
