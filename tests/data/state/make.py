"""Writes the state of this version: ``python -m tests.data.state.make``, once for each release.

    <version>/state, topics     of an application with joins, windows, aggregations and a timer, after some batches
    <version>/answers.json      what its stores answered

The topology stays the same for all versions. Folders of releases are never written again.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crossstream as cs
from crossstream import serdes
from tests.faults.one_process import process
from tests.spark.world import World

HERE = Path(__file__).parent
TEXT, JSON = serdes.string(), serdes.json()
STORES = ("orders", "shops", "offers", "counts", "sessions", "totals", "prices", "seen")
SINKS = ("results", "pairs", "priced", "closed")
BATCHES, ROWS = 4, 12


class Remember:
    """Keeps the last value of each key, and forwards how many it has had."""

    def init(self, context: Any) -> None:
        self.context, self.seen = context, context.store("seen")

    def process(self, record: Any) -> None:
        number = (self.seen.get(record.key) or {"n": 0})["n"] + 1
        self.seen.put(record.key, {"n": number, "last": record.value})

    def close(self) -> None: ...


def topology() -> cs.Topology:
    """All kinds of stores there are."""
    builder = cs.StreamsBuilder()
    read = cs.Consumed(key=TEXT, value=JSON)
    orders = builder.table("orders", read, cs.Materialized(store="orders"))
    shops = builder.table("shops", read, cs.Materialized(store="shops"))
    offers = orders.left_join(
        shops,
        lambda order, shop: {"order": order["n"], "shop": shop and shop["n"]},
        foreign_key=lambda order: order["shop"],
        materialized=cs.Materialized(store="offers"),
    )
    offers.to_stream().to("results", cs.Produced(key=TEXT, value=JSON))
    views, clicks = builder.stream("views", read), builder.stream("clicks", read)
    windows = cs.JoinWindows.of("10 seconds", grace="5 seconds")
    pairs = views.left_join(clicks, lambda view, click: [view["n"], click and click["n"]], windows)
    pairs.to("pairs", cs.Produced(key=TEXT, value=JSON))
    prices = builder.table("prices", read, cs.Materialized(store="prices", history_retention="1 minute"))
    priced = views.join(prices, lambda view, price: [view["n"], price["n"]])
    priced.to("priced", cs.Produced(key=TEXT, value=JSON))
    grouped = clicks.group_by_key()
    hours = grouped.windowed_by(cs.TimeWindows(size="20 seconds", grace="10 seconds"))
    counts = hours.count(materialized=cs.Materialized(store="counts"))
    final = counts.suppress(cs.Suppressed(until="window-closes"))
    final.to_stream().select_key(lambda window, _: window.key).to(
        "closed", cs.Produced(key=TEXT, value=serdes.int64())
    )
    sessions = grouped.windowed_by(cs.SessionWindows(gap="8 seconds", grace="10 seconds"))
    sessions.count(materialized=cs.Materialized(store="sessions"))
    by_shop = orders.group_by(
        lambda _, order: (order["shop"], order["n"]),
        cs.Grouped(key=TEXT, value=serdes.int64()),
    )
    by_shop.reduce(
        lambda total, n: total + n, lambda total, n: total - n, materialized=cs.Materialized(store="totals")
    )
    views.process(Remember, stores=[cs.KeyValueStore("seen", key=TEXT, value=JSON)])
    return builder.build()


def batches(seed: int, start: int, count: int) -> Iterator[dict[str, list[Any]]]:
    """Records by topic; the same ones in every version."""
    rng = random.Random(seed)
    for number in range(start, start + count):
        times = [1_000 * (ROWS * number + row) for row in range(ROWS)]
        yield {
            topic: [
                (f"k{rng.randrange(6)}", {"n": rng.randrange(100), "shop": f"k{rng.randrange(4)}"}, ts)
                for ts in times
            ]
            for topic in ("orders", "shops", "views", "clicks", "prices")
        }


def run(world: World, given: Iterator[dict[str, list[Any]]]) -> None:
    """One batch after the other."""
    for records in given:
        for topic, rows in records.items():
            world.append(topic, rows, TEXT, JSON)
        process(topology(), world.config(partitions=2, retain_batches=1))


def create(world: World) -> None:
    world.create(orders=2, shops=2, views=2, clicks=2, prices=2, results=2, pairs=2, priced=2, closed=1)


def answers(state: Path) -> dict[str, list[str]]:
    """What all stores answer, as text, sorted."""
    return {name: sorted(map(repr, cs.open_store(state, name).all())) for name in STORES}


def main(folder: Path) -> None:
    if folder.exists():
        sys.exit(f"{folder} is there: the state of a release does not change")
    world = World(folder)
    create(world)
    run(world, batches(1, 0, BATCHES))
    (folder / "answers.json").write_text(json.dumps(answers(world.state_dir), indent=1) + "\n")
    for place in (world.state_dir / "lock", world.state_dir / "staged"):
        shutil.rmtree(place, ignore_errors=True) if place.is_dir() else place.unlink(missing_ok=True)


if __name__ == "__main__":
    main(HERE / cs.__version__)
