"""Windows of an application that is started again, with other numbers of partitions."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.cli import main
from crossstream.query.verification import verify_state
from tests.application.engines import Engine, on_spark_too
from tests.docs.state_reader import StateFolder, hash_of
from tests.reference.windows import COUNT, Windowing
from tests.spark.world import World

TEXT = serdes.string()
KEYS = [f"k{number}" for number in range(20)]


def counts() -> cs.Topology:
    """Clicks counted in hopping windows, and in sessions; the latter come out when they have closed."""
    builder = cs.StreamsBuilder()
    clicks = builder.stream("clicks", cs.Consumed(key=TEXT, value=TEXT)).group_by_key()
    hopping = cs.TimeWindows(size=100, advance=50, grace=20)
    clicks.windowed_by(hopping).count(materialized=cs.Materialized(store="hopping"))
    visits = clicks.windowed_by(cs.SessionWindows(gap=30, grace=1), emit="close")
    made = visits.count(materialized=cs.Materialized(store="visits"))
    made.to_stream().to("closed", cs.Produced(key=serdes.session_windowed(TEXT), value=serdes.int64()))
    return builder.build()


def test_restarts_with_other_numbers(
    engine: Engine, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The windows that are open are those of the records, and each session comes out once, whatever the partitions."""
    rng, now = Random(7), 0
    world.create(clicks=2, closed=2)
    hopping, visits = Windowing("time", 100, COUNT, 20, 50), Windowing("session", 30, COUNT, 1)
    for partitions in (2, 5, None, 1):
        with engine.streams(counts(), world.config(partitions=partitions)) as app:
            for _ in range(2):
                times = sorted(rng.randrange(now, now + 300) for _ in range(400))
                records = [(rng.choice(KEYS), "x", time) for time in times]
                now += 300
                records += [(key, "x", now) for key in KEYS]  # brings every partition to this time
                for record in records:
                    hopping.process(*record)
                    visits.process(*record)
                world.append("clicks", records)
                app.process_available()
                rows = dict(app.store("hopping").all())
                wanted = {window: row[0] for window, row in hopping.rows.items() if window[2] > now - 20}
                assert {window: rows[window] for window in wanted} == wanted
                assert {key: app.store("visits").fetch(key)[-1][1] for key in KEYS} == {
                    key: row[0] for (key, _, end), row in visits.rows.items() if end == now
                }
        assert dict(cs.open_store(world.state_dir, "hopping").all()) == rows
        found = verify_state(world.state_dir)
        assert (found.problems, found.leftovers) == ([], [])
    made = world.read("closed", serdes.session_windowed(TEXT), serdes.int64())
    closed = {window: row[0] for window, row in visits.rows.items() if window[2] < now - 31}
    assert sorted((tuple(one.key), one.value) for one in made) == sorted(closed.items())
    folder = StateFolder(world.state_dir)
    for store in ("hopping", "visits"):
        for place, row in folder.rows(store, folder.batches()[-1]):
            assert place == (hash_of(row["key"]) >> 32) * folder.partitions(folder.batches()[-1]) >> 32
    assert main(["query", str(world.state_dir), "visits", "get", "k3", "--format", "json"]) == 0
    assert '"key":["k3",' in capsys.readouterr().out.replace(" ", "")
    assert main(["state", "inspect", str(world.state_dir)]) == 0
    assert "windowed-sessions" in capsys.readouterr().out


@on_spark_too
def test_engines_and_the_driver_close_the_same_windows(engine: Engine, either_world: World) -> None:
    """In any number of state partitions, with records that come late."""
    rng, records = Random(3), []
    for now in range(0, 3_000, 4):
        records.append((rng.choice(KEYS), "x", max(0, now - rng.choice((0, 0, 10, 60)))))
    windowed = serdes.session_windowed(TEXT), serdes.int64()
    with cs.TopologyTestDriver(counts(), commit_every=100) as driver:
        topic = driver.create_input_topic("clicks", TEXT, TEXT)
        for key, value, ts in records:
            topic.pipe_input(key, value, timestamp=ts)
        driver.commit()
        closed = driver.create_output_topic("closed", *windowed).read_records()
        wanted = Counter((tuple(one.key), one.value, one.timestamp) for one in closed)
        dropped = driver.metrics()["dropped"]
    either_world.create(clicks=1, closed=2)
    counted: Counter[str] = Counter()
    with engine.streams(counts(), either_world.config(partitions=4)) as app:
        for start in range(0, len(records), 300):
            either_world.append("clicks", records[start : start + 300])
            app.process_available()
            counted.update(app.progress.dropped)
        assert app.progress.waiting == {}
    made = either_world.read("closed", *windowed)
    assert Counter((tuple(one.key), one.value, one.ts) for one in made) == wanted
    assert counted == dropped
    assert sum(wanted.values()) > 300
