"""Interactive queries: committed batches only, from the application and from any other process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

import crossstream as cs
from tests.application.engines import Engine
from tests.spark.fixtures import importable_in_workers
from tests.spark.marketplace import JSON, TEXT, marketplace, merchants, products
from tests.spark.world import World

ROWS = 60

# Prints, once for each state it sees, the values found in the rows; a mixture of batches would print several.
WATCHER = """
import json, sys, time
import crossstream as cs
store, seen = cs.open_store(sys.argv[1], "offers"), []
print("ready", flush=True)
until = time.monotonic() + 120
while time.monotonic() < until and (not seen or seen[-1] != ["last"]):
    shops = sorted({value["shop"] for _, value in store.all()})
    names = len(store.to_arrow())
    if not seen or seen[-1] != shops:
        seen.append(shops)
        print(json.dumps(shops), flush=True)
    time.sleep(0.01)
print("rows", names)
"""


def same_shop_everywhere(world: World, shop: str) -> None:
    """Every merchant takes the same name: after this batch all offers show it."""
    world.append("merchants", [(key, {"shop": shop}, 0) for key, _, _ in merchants(5)], TEXT, JSON)


def test_another_process_sees_committed_batches_only(engine: Engine, world: World) -> None:
    importable_in_workers()
    world.create(products=3, merchants=2, offers=1)
    world.append("products", products(ROWS, 5), TEXT, JSON)
    shops = [f"shop {number}" for number in range(8)]
    with engine.streams(marketplace(), world.config(partitions=3)) as app:
        same_shop_everywhere(world, shops[0])
        app.process_available()
        command = [sys.executable, "-c", WATCHER, str(world.state_dir)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watcher:
            assert watcher.stdout is not None
            assert watcher.stdout.readline() == "ready\n"
            for shop in [*shops[1:], "last"]:
                same_shop_everywhere(world, shop)
                app.process_available()
                time.sleep(0.05)
            *lines, rows = watcher.stdout.read().splitlines()
    seen = [json.loads(line) for line in lines]
    assert all(len(names) == 1 for names in seen), seen
    assert rows == f"rows {ROWS}"
    order = [*shops, "last"]
    assert [order.index(names[0]) for names in seen] == sorted(order.index(names[0]) for names in seen)
    assert len(seen) > 1


def test_a_batch_that_is_running_is_not_seen(engine: Engine, world: World) -> None:
    world.create(products=1, merchants=1, offers=1)
    world.append("merchants", merchants(1), TEXT, JSON)

    def slow(product: Any) -> Any:
        time.sleep(0.02)
        return product["merchant"]

    with engine.streams(marketplace(foreign_key=slow), world.config()) as app:
        app.process_available()
        world.append("products", products(50, 1), TEXT, JSON)
        app.start()
        store = cs.open_store(world.state_dir, "offers")
        sizes = {len(dict(store.all()))}
        while app.progress.batch < 1:
            sizes.add(len(dict(store.all())))
        app.process_available()
        assert len(dict(store.all())) == 50
        assert sizes <= {0, 50}
        assert 0 in sizes


def test_the_past_can_be_read(engine: Engine, world: World) -> None:
    world.create(products=2, merchants=1, offers=1)
    world.append("products", products(10, 5), TEXT, JSON)
    with engine.streams(marketplace(), world.config(partitions=2, retain_batches=3)) as app:
        for number in range(8):
            same_shop_everywhere(world, f"shop {number}")
            app.process_available()
        assert app.progress.batch == 7
        for batch in (5, 6, 7):
            past = cs.open_store(world.state_dir, "offers", as_of=batch)
            assert {value["shop"] for _, value in past.all()} == {f"shop {batch}"}
            assert past.get("p3") == {"name": "P3", "shop": f"shop {batch}"}
        for batch in (0, 8):
            with pytest.raises(cs.StateError, match=f"batch {batch} is not kept") as caught:
                cs.open_store(world.state_dir, "offers", as_of=batch)
            assert caught.value.code == "CS-713"
            assert "to 7" in (caught.value.next or "")


def test_a_reader_stays_right_while_its_batches_retire(engine: Engine, world: World) -> None:
    world.create(products=1, merchants=1, offers=1)
    world.append("products", products(10, 5), TEXT, JSON)
    with engine.streams(marketplace(), world.config(retain_batches=1)) as app:
        same_shop_everywhere(world, "first")
        app.process_available()
        reader = app.store("offers")
        for number in range(6):
            same_shop_everywhere(world, f"shop {number}")
            app.process_available()
            assert {value["shop"] for _, value in reader.all()} == {f"shop {number}"}


def test_stores_that_are_not_there(engine: Engine, world: World) -> None:
    with pytest.raises(cs.StateError, match="there is no state here") as caught:
        cs.open_store(world.state_dir, "offers")
    assert caught.value.code == "CS-713"
    world.create(products=1, merchants=1)
    with engine.streams(marketplace(), world.config()) as app:
        app.process_available()
        assert dict(app.store("offers").all()) == {}
        with pytest.raises(cs.StateError, match="there is no store named 'orders'") as caught:
            app.store("orders")
        assert caught.value.code == "CS-710"
        assert "offers" in (caught.value.next or "")
