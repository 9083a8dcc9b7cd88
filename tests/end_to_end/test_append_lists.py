"""Lists that are appended to through an application, whose processes are killed and whose connections are cut.

CROSSSTREAM_SEED repeats the kills and cuts; KILLS=50 makes it long.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

import crossstream as cs
from tests.end_to_end.append_lists import Lists, Writer, judge_growth, judge_lists, judge_reads
from tests.end_to_end.kills import LOCAL, VICTIMS, Application, Killer, own_broker, until_read
from tests.faults.application import WITHOUT_SPARK
from tests.kafka.committed import Wire, ends, read
from tests.kafka.fixtures import proxied
from tests.kafka.proxy import Proxy
from tests.spark.meanwhile import meanwhile
from tests.spark.world import ALONE, World

KILLS = int(os.environ.get("KILLS", "8"))
KEYS = [f"list {number}" for number in range(10)]
WRITERS = 3
CALLS = {
    "produce": 0,
    "fetch": 1,
    "init": 22,
    "partitions": 24,
    "offsets": 25,
    "end": 26,
    "commit offsets": 28,
}
"""Requests whose connection is cut; the numbers are Kafka's."""
CUT_SECONDS = 1.5

Read = dict[tuple[str, int], list[Wire]]


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("master", [WITHOUT_SPARK, LOCAL])
def test_no_append_is_lost_doubled_or_reordered(tmp_path: Path, fresh: int, master: str) -> None:
    """At no time, for any reader of committed records; nor in the state."""
    print(f"seed {fresh}", flush=True)
    rng = Random(fresh)
    world = World(tmp_path / "lists", f"lists-{fresh}", single_task_rows=ALONE)
    world.root.mkdir()
    with own_broker(tmp_path, appends=2, elements=2, lists=2) as broker:
        environment = {
            "SERVERS": broker.proxied_servers,
            "GUARANTEE": "exactly_once",
            "APPLICATION": world.application_id,
            "STEPS": "0.03",
        }
        app = Application(world, tmp_path / "stderr", "appends", environment, master)
        killer = Killer(app, broker, rng, VICTIMS[master])
        proxy = Proxy(*proxied(broker.info))
        reads: list[Read] = []
        try:
            with cut_connections(proxy, Random(fresh + 1)) as cuts:
                with writing(broker.proxied_servers, Random(fresh + 2)) as writers:
                    for _ in range(KILLS):
                        killer.kill()
                        reads.append(whole(broker.servers))
                print(f"{sum(killer.kills.values())} kills: {dict(killer.kills)}, {cuts} cuts", flush=True)
            until_read(app, {"appends": ends(broker.servers, "appends")})
        finally:
            app.kill_all()
            proxy.close()
        reads.append(whole(broker.servers))
        for topic in ("elements", "lists"):
            assert ends(broker.servers, topic) == ends(broker.servers, topic, "read_uncommitted")
    assert not [failure for writer in writers for failure in writer.failures]
    assert killer.ended == []
    problems = judge_reads(reads)
    acknowledged = [writer.acknowledged for writer in writers]
    elements, grown = lists_of(reads[-1], "elements"), lists_of(reads[-1], "lists")
    for key, seen in grown.items():
        problems += judge_growth(key, seen)
    stored = {key: value.split() for key, value in cs.open_store(world.state_dir, "lists").all()}
    last = {key: seen[-1].split() for key, seen in grown.items()}
    for found in (elements, last, stored):
        problems += judge_lists(found, acknowledged)
    assert problems == []
    assert elements == last == stored
    assert cuts
    print(f"{sum(map(len, elements.values()))} appends", flush=True)


@contextmanager
def writing(servers: str, rng: Random) -> Iterator[list[Writer]]:
    """Several writers append inside."""
    stop = threading.Event()
    writers = [Writer(f"w{n}", servers, KEYS, Random(rng.random())) for n in range(WRITERS)]
    threads = [threading.Thread(target=writer.run, args=(stop,)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@contextmanager
def cut_connections(proxy: Proxy, rng: Random) -> Iterator[list[str]]:
    """Every moment the connection of another call is cut, before it arrives or after; gives the calls that were."""
    cuts: list[str] = []
    asked: list[str] = []

    def cut() -> None:
        if asked and proxy.has_cut:
            cuts.append(asked[-1])
        call, how = rng.choice(list(CALLS)), rng.choice(["before", "after"])
        proxy.cut(CALLS[call], how)
        asked.append(f"{call} {how}")

    with meanwhile(cut, CUT_SECONDS):
        yield cuts
    proxy.cut(-1, "before")


def whole(servers: str) -> Read:
    """All that a reader of committed records sees now."""
    return {
        (topic, partition): rows
        for topic in ("elements", "lists")
        for partition, rows in read(servers, topic).items()
    }


def lists_of(found: Read, topic: str) -> Lists:
    """The values of each key of a topic, in their order."""
    lists: Lists = defaultdict(list)
    for (of, _), rows in found.items():
        for key, value, _ in rows if of == topic else ():
            assert key is not None
            assert value is not None
            lists[str(key, "utf-8")].append(str(value, "utf-8"))
    return dict(lists)


GIVEN: list[Lists] = [{"a": ["v.0", "v.1", "v.2"]}, {"a": ["w.0"], "b": ["w.0"]}]


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (["v.0", "w.0", "v.1", "v.2"], None),
        (["v.0", "w.0", "v.2"], "lost ['v.1']"),
        (["v.0", "v.1", "v.2"], "lost ['w.0']"),
        (["v.0", "w.0", "v.1", "v.1", "v.2"], "doubled"),
        (["v.1", "v.0", "w.0", "v.2"], "reordered"),
        (["v.0", "w.0", "v.1", "v.2", "x.0"], "nobody appended ['x.0']"),
    ],
)
def test_the_judge_of_lists(found: list[str], problem: str | None) -> None:
    problems = judge_lists({"a": found, "b": ["w.0"]}, GIVEN)
    assert len(problems) == (problem is not None)
    assert (problem or "") in "".join(problems)


@pytest.mark.parametrize(
    ("seen", "count"),
    [
        (["v.0", "v.0 v.1", "v.0 v.1 w.0"], 0),
        (["v.0", "v.0"], 1),
        (["v.0 v.1", "v.0"], 1),
        (["v.1", "v.10 v.2"], 1),
        (["v.0", "v.0 v.1", "v.0 v.1", "v.1"], 2),
    ],
)
def test_the_judge_of_growth(seen: list[str], count: int) -> None:
    assert len(judge_growth("a", seen)) == count


def test_the_judge_of_reads() -> None:
    at = ("lists", 0)
    assert judge_reads([{}, {at: [1]}, {at: [1, 2]}]) == []
    assert judge_reads([{at: [1, 2]}, {at: [1]}]) != []
    assert judge_reads([{at: [1, 2]}, {at: [2, 1, 3]}]) != []
    assert judge_reads([{at: [1]}, {}]) != []
