"""Timers on the wall clock fire in a running application, also where no record comes in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.application.waiting import wait_for
from tests.faults.one_process import streams
from tests.spark.world import World

TEXT, NUMBER = serdes.string(), serdes.int64()


class Ticking:
    """Forwards how often it fired, five times."""

    def init(self, context: Any) -> None:
        self.context = context
        self.timer = context.schedule("200 ms", "wall-clock", self.tick)

    def tick(self, now: int) -> None:
        store = self.context.store("ticks")
        count = (store.get("n") or 0) + 1
        store.put("n", count)
        self.context.forward("n", count)
        if count == 5:
            self.timer.cancel()

    def process(self, record: Any) -> None:
        pass


@pytest.mark.slow
def test_they_fire_without_records_also_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(words=1, ticks=1)
    world.append("words", [("a", "v", 1)])
    builder = cs.StreamsBuilder()
    words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
    ticks = words.process(Ticking, stores=[cs.KeyValueStore("ticks", TEXT, NUMBER)])
    ticks.to("ticks", cs.Produced(key=TEXT, value=NUMBER))
    topology = builder.build()

    def counts() -> list[int]:
        return [record.value for record in world.read("ticks", TEXT, NUMBER)]

    with streams(topology, world.config()) as app:
        app.process_available()
        assert counts() == []
        app.start()
        wait_for(lambda: len(counts()) >= 2)
    with streams(topology, world.config()) as app:
        app.start()
        wait_for(lambda: len(counts()) == 5)
        assert not app.await_termination(1)
        assert counts() == [1, 2, 3, 4, 5]
