"""What workers find out about joins whose keys never meet comes to the driver: it warns once, and progress has it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.application.engines import Engine
from tests.spark.world import ALONE, SPREAD, World

JSON = serdes.json()
JOIN = "orders.left_join(customers)"


def topology() -> cs.Topology:
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=JSON, value=JSON)
    orders = builder.table("orders", consumed, cs.Materialized(store="orders"))
    customers = builder.table("customers", consumed, cs.Materialized(store="customers"))
    joined = orders.left_join(
        customers, lambda order, customer: [order, customer], foreign_key=lambda order: order["customer"]
    )
    joined.to_stream().to("joined", cs.Produced(key=JSON, value=JSON))
    return builder.build()


@pytest.mark.parametrize("single_task_rows", [ALONE, SPREAD])
def test_of_a_foreign_key(
    engine: Engine, tmp_path: Any, caplog: pytest.LogCaptureFixture, single_task_rows: int
) -> None:
    world = World(tmp_path, single_task_rows=single_task_rows)
    world.create(orders=2, customers=1, joined=1)
    world.append("customers", [({"id": number}, {}, number) for number in range(16)], JSON, JSON)
    orders = [(number, {"customer": number % 16}, number) for number in range(1_200)]
    with engine.streams(topology(), world.config(partitions=3)) as app:
        world.append("orders", orders[:600], JSON, JSON)
        app.process_available()
        assert app.progress.unmatched == {JOIN: 600 + 16}
        assert (app.progress.matched, app.progress.warnings) == ({JOIN: 0}, ())
        world.append("orders", orders[600:], JSON, JSON)
        app.process_available()
        assert app.progress.unmatched == {JOIN: 600}
        [text] = app.progress.warnings
        assert "none of 1,216 rows found a partner: orders asks for the key" in text
        assert "(int, json), customers has keys such as {'id': " in text
        warned = [one for one in caplog.records if one.levelno >= logging.WARNING]
        assert [(one.name, one.getMessage()) for one in warned] == [("crossstream.joins", text)]
        world.append("customers", [(3, {}, 2_000)], JSON, JSON)
        app.process_available()
        assert (app.progress.matched, app.progress.unmatched) == ({JOIN: 1}, {JOIN: 0})
        assert app.progress.warnings == ()
    assert len([one for one in caplog.records if one.name == "crossstream.joins"]) == 1


def test_a_field_that_no_row_has(engine: Engine, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    builder = cs.StreamsBuilder()
    orders, customers = builder.table("orders"), builder.table("customers")
    orders.join(customers, foreign_key="custmer", on_merge="keep-left").to("joined")
    world = World(tmp_path)
    world.create(orders=2, customers=1, joined=1)
    with engine.streams(builder.build(), world.config(partitions=3)) as app:
        for first in (0, 1_000):
            rows = [(str(number), {"customer": "c"}, number) for number in range(first, first + 1_000)]
            world.append("orders", rows, value=JSON)
            app.process_available()
        [text] = app.progress.warnings
    assert text == (
        "orders.join(customers): foreign_key names the field 'custmer', and none of 2,000 rows has it: "
        "did you mean 'customer'? they have 'customer'"
    )
    assert [one.getMessage() for one in caplog.records if one.name == "crossstream.fields"] == [text]
