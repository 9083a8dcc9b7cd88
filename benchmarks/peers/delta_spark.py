"""The newest PySpark that Delta Lake has jars for, with these, in an environment of its own beside this one's.

Both lie in the cache of `crossstream.dev.background`, and are fetched once: PySpark by pip, the jars from Maven.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from crossstream.dev.background import Jars, records_folder
from crossstream.machine import cache_directory
from crossstream.storage.files import locked

PYSPARK, DELTA = "4.1.1", "4.1.0"
JARS = Jars(f"delta-{DELTA}", f"Delta Lake {DELTA}", (("io.delta", "delta-spark_2.13", DELTA),))
KAFKA = Jars(
    f"spark-kafka-{PYSPARK}",
    f"Spark's Kafka source {PYSPARK}",
    (("org.apache.spark", "spark-sql-kafka-0-10_2.13", PYSPARK),),
)
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Of the 50 parts of a table's log that Delta makes by default each is a task.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def settings(kafka: bool = False) -> dict[str, str]:
    """Those with which a session reads and writes Delta tables; ``kafka``: and reads topics.

    Fetches the jars if they are not there yet.
    """
    wanted = [(JARS, "delta-*.jar")]  # all others are Spark's own
    if kafka:
        wanted += [
            (KAFKA, f"{name}*.jar") for name in ("spark-sql-kafka", "spark-token", "kafka-", "commons-pool")
        ]
    jars = sorted(str(jar) for from_, pattern in wanted for jar in from_.fetch().glob(pattern))
    return {**SETTINGS, "spark.jars": ",".join(jars)}


def python() -> Path:
    """The interpreter of the environment, which has PySpark; made if it is not there yet."""
    name = f"pyspark-{PYSPARK}"
    folder = cache_directory() / name
    done = folder / "installed"
    found = folder / "bin" / "python"
    with locked(records_folder() / f"{name}.lock"):
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            subprocess.run([str(found), "-m", "pip", "install", "--quiet", f"pyspark=={PYSPARK}"], check=True)
            done.touch()
    return found


def environment(*also: Path) -> Mapping[str, str]:
    """Of a process of `python` which imports from these folders, too: PySpark itself comes from its own environment."""
    own = (
        python().parent.parent
        / "lib"
        / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        / "site-packages"
    )
    dropped = ("SPARK_HOME", "PYSPARK_DRIVER_PYTHON")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    path = os.pathsep.join(str(folder) for folder in (own, *also))
    return {**kept, "PYTHONPATH": path, "PYSPARK_PYTHON": str(python())}
