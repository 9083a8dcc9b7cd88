"""Classes that stand in the application's own file: what is kept of them is theirs again after a restart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from crossstream import serdes
from tests.spark.world import World

APPLICATION = """
import sys
from dataclasses import dataclass
from enum import Enum

import crossstream as cs
from crossstream import serdes


class Status(Enum):
    OPEN = "open"


@dataclass
class Order:
    status: Status
    n: int


def annotated(value) -> Order:
    return Order(Status.OPEN, value["n"])


def told(one) -> str:
    return f"{isinstance(one, Order)} {one.status is Status.OPEN} {one.n}"


builder = cs.StreamsBuilder()
consumed = cs.Consumed(key=serdes.string(), value=serdes.json())
rows = builder.table("rows", consumed)
kept = cs.Materialized(store="orders", value=serdes.json(Order))
named = rows.map_values(lambda value: Order(Status.OPEN, value["n"]), materialized=kept)
calls = builder.stream("calls", consumed)
calls.join(named, lambda call, one: told(one)).to("out", cs.Produced(value=serdes.string()))
by_annotation = rows.to_stream().map_values(annotated).to_table(materialized=cs.Materialized(store="by-annotation"))
calls.join(by_annotation, lambda call, one: told(one)).to("out", cs.Produced(value=serdes.string()))

config = cs.StreamsConfig(
    application_id="orders", topics_dir=sys.argv[1], state_dir=sys.argv[2], spark={"spark.master": "local[1]"}
)
if __name__ == "__main__":
    with cs.SparkStreams(builder.build(), config) as streams:
        streams.process_available()
"""


def test_classes_of_the_application_s_own_file_are_those_of_the_next_start(tmp_path: Path) -> None:
    """Two processes: what the first kept, the second reads as instances of its own classes."""
    world = World(tmp_path)
    world.create(rows=1, calls=1, out=1)
    (tmp_path / "app.py").write_text(APPLICATION)
    for topic, value in (("rows", {"n": 7}), ("calls", {})):
        world.append(topic, [("k", value, 1)], value=serdes.json())
        command = [sys.executable, "app.py", str(world.topics_dir), str(world.state_dir)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert [record.value for record in world.read("out")] == ["True True 7"] * 2
