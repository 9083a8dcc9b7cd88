"""An application on Kafka and Spark writes each result once, whichever of its processes and the broker are killed.

All joins and aggregations run while an idempotent producer writes their input. What readers of committed records find
is compared, byte by byte, with what the same batches give undisturbed. CROSSSTREAM_SEED repeats the kills, KILLS=200
makes it long, and one line a kill is printed (``pytest -s``).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from tests.end_to_end.kills import (
    CLUSTER,
    LOCAL,
    MOMENTS,
    VICTIMS,
    Application,
    Broker,
    Feeder,
    Killer,
    own_broker,
    until_read,
)
from tests.end_to_end.undisturbed import ByKey, by_key, surplus, undisturbed
from tests.faults.application import WITHOUT_SPARK
from tests.faults.everything import RESULTS, STREAMS, TABLES, everything
from tests.kafka.committed import ends, read
from tests.spark.world import ALONE, SPREAD, World

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.timeout(14_400),
]

KILLS = int(os.environ.get("KILLS", "12"))
INPUTS = {**dict.fromkeys([*STREAMS, *TABLES], 2), "shops": 1}
KEYS = 12
STEP_MS = 20


@dataclass
class Outcome:
    """What readers of committed records found, what they should, and how it came about."""

    found: ByKey
    wanted: ByKey
    kills: Counter[tuple[str, str]]
    ended: list[str]
    inputs: dict[str, int]


def disturbed(
    tmp_path: Path, seed: int, attack: Callable[[Killer], None], rows: int = SPREAD, **settings: str
) -> Outcome:
    """Runs the application under attack, and then to its end."""
    world = World(tmp_path / "killed", f"killed-{seed}", single_task_rows=rows)
    world.root.mkdir(parents=True)
    print(f"seed {seed}", flush=True)
    with own_broker(tmp_path, **INPUTS, **{RESULTS: 2}) as broker:
        master = settings.pop("master", LOCAL)
        environment = {
            "SERVERS": broker.servers,
            "GUARANTEE": "exactly_once",
            "APPLICATION": world.application_id,
            "STEPS": "0.03",
            **settings,
        }
        app = Application(world, tmp_path / "stderr", "everything", environment, master)
        feeder = Feeder(broker.servers, visits(Random(seed)))
        killer = Killer(app, broker, Random(seed))
        try:
            with feeder.feeding():
                attack(killer)
            close_windows(broker, feeder)
            # In 50 kills of a broker it stored a record of the feeder twice: what is in the topics counts.
            there = {topic: sum(ends(broker.servers, topic).values()) for topic in INPUTS}
            assert all(there[topic] >= feeder.given[topic] for topic in INPUTS), (there, feeder.given)
            until_read(app, {topic: ends(broker.servers, topic) for topic in INPUTS})
        finally:
            app.kill_all()
        open_ends = ends(broker.servers, RESULTS, "read_uncommitted")
        assert ends(broker.servers, RESULTS) == open_ends, "a transaction was left open"
        found = by_key(read(broker.servers, RESULTS))
        wanted = undisturbed(broker.servers, world, everything(), INPUTS, RESULTS, tmp_path / "once")
    return Outcome(found, wanted, killer.kills, killer.ended, dict(feeder.given))


def visits(rng: Random) -> Callable[[int], tuple[str, str, str, int]]:
    """Records of all topics; those of streams come up to 0.8 seconds late."""
    topics = [*STREAMS * 4, *TABLES * 2]

    def made(number: int) -> tuple[str, str, str, int]:
        topic = rng.choice(topics)
        late = rng.randrange(800) if topic in STREAMS else 0
        value = f"k{rng.randrange(KEYS)}-{topic[0]}{number}"
        return topic, f"k{rng.randrange(KEYS)}", value, 1_000 + number * STEP_MS - late + 800

    return made


def close_windows(broker: Broker, feeder: Feeder) -> None:
    """Records of each key, a minute later."""
    producer = Producer({"bootstrap.servers": broker.servers, "partitioner": "murmur2_random"})
    end = sum(feeder.given.values()) * STEP_MS + 60_000
    for topic in STREAMS:
        for key in range(KEYS):
            producer.produce(topic, "end", f"k{key}", timestamp=end)
            feeder.given[topic] += 1
    assert producer.flush(60) == 0


def check(outcome: Outcome) -> None:
    """Each result is there once, as the same batches give it undisturbed, and all kinds of results are."""
    print(sum(outcome.kills.values()), "kills:", dict(outcome.kills), outcome.inputs, flush=True)
    assert surplus(outcome.found, outcome.wanted) == 0
    assert outcome.found == outcome.wanted
    kinds = Counter(key.partition(b":")[0] for _, key in outcome.found if key is not None)
    assert len(kinds) == 20, kinds
    assert outcome.ended == []


@pytest.mark.parametrize(
    ("master", "rows"),
    [(WITHOUT_SPARK, SPREAD), (LOCAL, SPREAD), (LOCAL, ALONE), (CLUSTER, SPREAD)],
    ids=["without Spark", "shared", "alone", "executors"],
)
def test_killed_again_and_again(tmp_path: Path, fresh: int, master: str, rows: int) -> None:
    """Without Spark an application starts in a moment: many more kills in the same time."""

    def attack(killer: Killer) -> None:
        killer.victims = VICTIMS[master]
        for _ in range(KILLS):
            killer.kill()

    check(disturbed(tmp_path, fresh, attack, rows, master=master))


BITES = {
    "at least once": ("committing", {"GUARANTEE": "at_least_once", "STEPS": "0.5"}),
    "mark ignored": ("commit_transaction", {"MARK": "ignored"}),
}


@pytest.mark.parametrize("how", BITES)
def test_the_test_bites(tmp_path: Path, fresh: int, how: str) -> None:
    """The same kills, with one promise less, and the same comparison finds results that came twice, and no other."""
    moment, settings = BITES[how]

    def attack(killer: Killer) -> None:
        killer.victims, killer.moments = ("driver",), (moment,)
        for _ in range(3):
            killer.after_a_batch()  # the first one gives no results
            killer.kill()

    outcome = disturbed(tmp_path, fresh, attack, master=WITHOUT_SPARK, **settings)
    assert surplus(outcome.found, outcome.wanted) > 0
    assert outcome.found.keys() == outcome.wanted.keys()
    for key, values in outcome.wanted.items():
        assert set(outcome.found[key]) == set(values)
    assert moment in MOMENTS
