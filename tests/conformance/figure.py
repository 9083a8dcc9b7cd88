"""The figure of the article "Crossing the Streams", and the engines that draw it.

A join is written on both topics, the figure is played, and what comes out is told in the figure's own words:
``F.1,F@7`` is the view F.1 with the click F, at second 7; ``∅`` stands for the side that is missing. Of two records at
one second the view is taken first, as an engine takes them that has both in one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import crossstream as cs
from crossstream import serdes
from tests.spark.world import World

#  second   0   1   2   3   4   5   6  6.5  7   8   9  9.5      12          25
#  views    A   B       C   D       F.1 F.2     G                            Z
#  clicks       A   C           E           F       G.1 G.2     B            Z
FIGURE = """
view A@0   view B@1   click A@1     click C@2   view C@3     view D@4   click E@5   view F.1@6   view F.2@6.5
click F@7   view G@8   click G.1@9   click G.2@9.5   click B@12
"""
LATER = "view Z@25   click Z@25"
"""A heartbeat, long after: it moves stream time past every window."""

TEXT = serdes.string()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)

Join = Callable[[cs.StreamsBuilder], Any]
"""Makes the stream of results, out of the topics ``views`` and ``clicks``."""


def both(left: str | None, right: str | None) -> str:
    """The joiner of the article: both labels."""
    return ",".join("∅" if label is None else label for label in (left, right))


@dataclass(frozen=True, slots=True)
class Moment:
    """A record of the figure; its key is the letter of its label."""

    topic: str
    label: str
    ms: int

    @property
    def key(self) -> str:
        return self.label[0]


def moments(figure: str) -> list[Moment]:
    words = figure.split()
    found = []
    for topic, label in zip(words[::2], words[1::2], strict=True):
        label, _, second = label.partition("@")
        found.append(Moment(f"{topic}s", label, round(float(second) * 1000)))
    return found


class Engine(Protocol):
    def play(self, join: Join, figure: str) -> list[str]:
        """What a join gives, in order."""


def topology(join: Join) -> cs.Topology:
    builder = cs.StreamsBuilder()
    join(builder).to("results", PRODUCED)
    return builder.build()


class Driver:
    """The test driver, one record after the other."""

    def play(self, join: Join, figure: str) -> list[str]:
        with cs.TopologyTestDriver(topology(join)) as driver:
            topics = {name: driver.create_input_topic(name, TEXT, TEXT) for name in ("views", "clicks")}
            for moment in moments(figure):
                topics[moment.topic].pipe_input(moment.key, moment.label, moment.ms)
            found = driver.create_output_topic("results", TEXT, TEXT).read_records()
        return [told(record.value, record.timestamp) for record in found]


@dataclass
class Spark:
    """Spark, all that is in the topics in one batch."""

    session: Any
    world: World

    def play(self, join: Join, figure: str) -> list[str]:
        self.world.create(views=1, clicks=1, results=1)
        for topic in ("views", "clicks"):
            mine = [moment for moment in moments(figure) if moment.topic == topic]
            self.world.append(topic, [(moment.key, moment.label, moment.ms) for moment in mine])
        with cs.SparkStreams(topology(join), self.world.config(partitions=1), self.session) as app:
            app.process_available()
        return [told(output.value, output.ts) for output in self.world.read("results")]


def told(value: Any, ms: int) -> str:
    return f"{value}@{ms / 1000:g}"
