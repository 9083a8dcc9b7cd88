"""Tables of Delta's own change feed, written and read by Spark with Delta's jars: after every batch the join is right.

> offers = orders ⋈ customers, at the versions that the batch has read.

Random commits of Spark SQL: inserts, updates, deletes, merges that do all three, and keys that are deleted and inserted
in one commit; several commits come in one batch, and the application starts again at random. With deletion vectors and
without. PySpark 4.1.1 and the jars of Delta 4.1.0 are in an environment of their own, for the newest PySpark has no
jars of Delta yet; everything else is as in the other tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from random import Random
from typing import Any

import pytest
from benchmarks.peers import delta_spark

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(3600)]

PROGRAM = Path(__file__).with_name("delta_feed_program.py")
SOURCES = Path(__file__).resolve().parents[3] / "src"
STEPS = int(os.environ.get("STEPS", "25"))
ORDERS, CUSTOMERS = range(1, 13), ("a", "b", "c", "d")
CREATE = """
CREATE TABLE delta.`{{{0}}}` ({1}) USING DELTA
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = '{2}')
"""
COLUMNS = {
    "orders": "id BIGINT, customer_id STRING, amount DOUBLE",
    "customers": "id STRING, name STRING, region STRING",
}


class Commits:
    """Random statements; ``{orders}`` and ``{customers}`` stand for the tables. Only rows that are there change."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.there: dict[str, set[Any]] = {"orders": set(), "customers": set()}

    def insert(self, table: str) -> str | None:
        new = self._some(set(ORDERS if table == "orders" else CUSTOMERS) - self.there[table])
        self.there[table] |= set(new)
        return f"INSERT INTO delta.`{{{table}}}` VALUES {self._rows(table, new)}" if new else None

    def update(self, table: str) -> str | None:
        some = self._some(self.there[table])
        change = f"amount = {self._amount()}" if table == "orders" else f"name = {self._name()}"
        if table == "orders" and self.random.random() < 0.5:
            change = f"customer_id = '{self.random.choice(CUSTOMERS)}'"
        return f"UPDATE delta.`{{{table}}}` SET {change} WHERE id IN ({_list(some)})" if some else None

    def delete(self, table: str) -> str | None:
        some = self._some(self.there[table])
        self.there[table] -= set(some)
        return f"DELETE FROM delta.`{{{table}}}` WHERE id IN ({_list(some)})" if some else None

    def merge(self, table: str) -> str | None:
        """Rows that are there are updated, or deleted; others are inserted."""
        keys = self._some(set(ORDERS if table == "orders" else CUSTOMERS))
        gone = set(self._some(self.there[table] & set(keys)))
        self.there[table] = (self.there[table] | set(keys)) - gone
        names = [one.split()[0] for one in COLUMNS[table].split(", ")]
        source = f"(SELECT * FROM VALUES {self._rows(table, keys)} AS s({', '.join(names)}))"
        return (
            (
                f"MERGE INTO delta.`{{{table}}}` t USING {source} s ON t.id = s.id "
                f"WHEN MATCHED AND s.id IN ({_list(gone) or 'NULL'}) THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
            if keys
            else None
        )

    def replace(self, table: str) -> str | None:
        """Deletes the keys and inserts them, in one commit."""
        keys = self._some(self.there[table])
        if not keys:
            return None
        return (
            f"INSERT INTO delta.`{{{table}}}` REPLACE WHERE id IN ({_list(keys)}) "
            f"VALUES {self._rows(table, keys)}"
        )

    def optimize(self, table: str) -> str:
        return f"OPTIMIZE delta.`{{{table}}}`"

    def some(self) -> list[str]:
        """One commit to three."""
        kinds = [self.insert, self.update, self.delete, self.merge, self.replace, self.optimize]
        made = [
            self.random.choice(kinds)(self.random.choice(["orders", "orders", "customers"]))
            for _ in range(self.random.randint(1, 3))
        ]
        return [statement for statement in made if statement is not None]

    def _some(self, keys: set[Any]) -> list[Any]:
        found = sorted(keys)
        return sorted(self.random.sample(found, min(len(found), self.random.randint(1, 4))))

    def _rows(self, table: str, keys: list[Any]) -> str:
        return ", ".join(self._row(table, key) for key in keys)

    def _row(self, table: str, key: Any) -> str:
        if table == "orders":
            return f"({key}, '{self.random.choice(CUSTOMERS)}', CAST({self._amount()} AS DOUBLE))"
        return f"('{key}', {self._name()}, {self.random.choice(['NULL', repr('eu'), repr('us')])})"

    def _amount(self) -> float:
        return self.random.randint(0, 999) / 10

    def _name(self) -> str:
        return f"'N{self.random.randint(0, 999)}'"


def _list(keys: Any) -> str:
    return ", ".join(repr(key) for key in sorted(keys))


def script(seed: int, vectors: bool) -> list[dict[str, Any]]:
    random = Random(seed)
    commits = Commits(random)
    made = [CREATE.format(table, COLUMNS[table], str(vectors).lower()) for table in COLUMNS]
    first = [commits.insert("customers"), commits.insert("orders")]
    steps = [{"commits": [*made, *first], "restart": False}]
    for _ in range(STEPS):
        steps.append({"commits": commits.some(), "restart": random.random() < 0.2})
    return steps


@pytest.mark.parametrize("vectors", [False, True], ids=["files", "deletion vectors"])
def test_every_batch_is_the_join_of_its_versions(tmp_path: Path, vectors: bool) -> None:
    seed = int(os.environ.get("CROSSSTREAM_SEED", "1"))
    print(f"seed {seed}")
    steps = script(seed, vectors)
    settings = {**delta_spark.settings(), "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    settings["spark.ui.showConsoleProgress"] = "false"
    ran = subprocess.run(
        [str(delta_spark.python()), "-P", str(PROGRAM)],
        input=json.dumps({"settings": settings, "folder": str(tmp_path), "steps": steps}),
        env=dict(delta_spark.environment(SOURCES, Path(sysconfig.get_path("purelib")))),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    version, *batches = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert version == {"pyspark": delta_spark.PYSPARK}
    assert len(batches) == len(steps)
    for step, batch in zip(steps, batches, strict=True):
        assert _sorted(batch["found"]) == _sorted(batch["wanted"]), (step, batch["batch"])
    assert len({json.dumps(_sorted(batch["wanted"])) for batch in batches}) > STEPS // 2
    assert batches[-1]["batch"] >= STEPS // 2


def _sorted(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return sorted(([row[name] for name in sorted(row)] for row in rows), key=lambda row: json.dumps(row))
