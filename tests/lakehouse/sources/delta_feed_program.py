"""Reads Delta's own change feed as tables of crossstream, commit by commit, and prints what is found after each batch.

Run by a PySpark that Delta has jars for. Its input is a script in JSON: the settings of the session, a folder, and
steps. A step is SQL statements, each a commit, and whether the application starts again before it reads them. The
output is a line for each step: the rows of the store, and the join of both tables by Spark itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import crossstream as cs

WANTED = """
SELECT o.id, o.customer_id, o.amount, c.name AS customer_name, c.region AS customer_region
FROM delta.`{orders}` o JOIN delta.`{customers}` c ON o.customer_id = c.id
"""


def main() -> None:
    script = json.load(sys.stdin)
    builder: Any = SparkSession.builder.master("local[2]")
    for name, value in script["settings"].items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    say(pyspark=pyspark.__version__)
    tables = {table: str(Path(script["folder"]) / table) for table in ("orders", "customers")}
    app: Any = None
    for step in script["steps"]:
        for statement in step["commits"]:
            session.sql(statement.format(**tables))
        if app is None or step["restart"]:
            if app is not None:
                app.__exit__(None, None, None)
            app = started(session, tables, Path(script["folder"]) / "state")
        app.process_available()
        batch = app.progress.batch
        wanted = [row.asDict() for row in session.sql(WANTED.format(**tables)).collect()]
        say(batch=batch, found=kept(app), wanted=wanted)
    app.__exit__(None, None, None)
    session.stop()


def started(session: SparkSession, tables: dict[str, str], state: Path) -> cs.SparkStreams:
    builder = cs.StreamsBuilder()

    def table(name: str) -> Any:
        """Without a first version the feed begins with the rows that are there."""
        feed = session.readStream.format("delta").option("readChangeFeed", "true").load(tables[name])
        return builder.table_from(feed, key="id", name=name)

    orders, customers = table("orders"), table("customers")
    orders.join(customers, foreign_key="customer_id", on_merge=cs.prefixed("customer_"), store="offers")
    config = cs.StreamsConfig(application_id="shop", state_dir=state, partitions=2, durable=False)
    app = cs.SparkStreams(builder.build(), config, session)
    app.__enter__()
    return app


def kept(app: cs.SparkStreams) -> list[dict[str, Any]]:
    """The rows of the store, with their keys."""
    return [{"id": key, **value} for key, value in app.store("offers").all()]


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
