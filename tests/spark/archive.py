"""``python -m tests.spark.archive``: writes the archive of Spark's classes (decision 0037), unless there is one.

A JVM without the archive writes it when it ends, which takes twenty seconds of a core. In a run of all tests several
JVMs would, and the rest would start without it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import crossstream as cs
from crossstream.jvm import archive_of_classes
from tests.spark.fixtures import SETTINGS, importable_in_workers
from tests.spark.marketplace import JSON, TEXT, marketplace, merchants, products
from tests.spark.world import World


def write() -> None:
    """Runs a small application, whose JVM writes the archive at its end."""
    from pyspark import SparkContext

    importable_in_workers()
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.create(products=2, merchants=1, offers=2)
        world.append("merchants", merchants(5), TEXT, JSON)
        world.append("products", products(20, 5), TEXT, JSON)
        with cs.SparkStreams(marketplace(), world.config(spark=SETTINGS)) as app:
            app.process_available()
        jvm = SparkContext._gateway.proc  # type: ignore[union-attr]
        jvm.stdin.close()  # what it ends with
        jvm.wait(timeout=120)


if __name__ == "__main__":
    archive = archive_of_classes()
    if archive is not None and not archive.exists():
        write()
