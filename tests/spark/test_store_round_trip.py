"""store → readStream → the table of a second application: equal after each batch."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import crossstream as cs
from tests.query.stores_of_all_kinds import writer
from tests.spark.test_store_source import run
from tests.spark.world import World


def copied(spark: Any, state: Path) -> cs.Topology:
    builder = cs.StreamsBuilder()
    changes = spark.readStream.format("crossstream").option("store", "rows").load(str(state))
    builder.table_from(changes, key="key", columns=["price", "name"], name="rows", store="copy")
    return builder.build()


def test_a_second_application_has_the_store_after_each_batch(
    spark: Any, world: World, tmp_path: Path
) -> None:
    """It is started again in between, and the first one changes its number of state partitions."""
    cs.register(spark)
    state = tmp_path / "first"
    with closing(writer(state)) as written:
        for batches in ((0, 1, 2), (4, 5)):
            if written.batch == 3:
                written.rescale(3)
            run(written, batches[0])
            with cs.SparkStreams(copied(spark, state), world.config(), spark=spark) as app:
                for batch in batches:
                    if batch > batches[0]:
                        run(written, batch)
                    app.process_available()
                    rows = dict(cs.open_store(state, "rows", as_of=batch).all())
                    assert dict(cs.open_store(world.state_dir, "copy").all()) == rows
