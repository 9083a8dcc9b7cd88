"""The format ``crossstream`` in a session of Spark Connect, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.query.stores_of_all_kinds import writer
from tests.spark.fixtures import ROOT
from tests.spark.test_store_source import run

SCRIPT = """
import sys
import crossstream as cs
from pyspark.sql import SparkSession

state, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
assert "connect" in type(spark).__module__
cs.register(spark)
table = spark.read.format("crossstream").option("store", "rows").load(state)
assert table.columns == ["key", "price", "name", "timestamp"], table.columns
assert table.count() == cs.open_store(state, "rows").count()
assert [row.key for row in table.where("key = 'k9'").collect()] == ["k9"]
stream = spark.readStream.format("crossstream").option("store", "rows").option("batch", 0).load(state)
query = stream.writeStream.format("memory").queryName("changes").option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
assert {row[0] for row in spark.sql("select distinct _commit_version from changes").collect()} == {0, 1, 2}
print("all is well")
spark.stop()
"""


@pytest.mark.nightly
def test_a_session_of_connect_reads_a_store_and_its_changes(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    state = tmp_path / "state"
    with closing(writer(state)) as written:
        for batch in range(3):
            run(written, batch)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-c", SCRIPT, str(state), str(tmp_path / "checkpoint")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert "all is well" in done.stdout, done.stderr[-3000:]
