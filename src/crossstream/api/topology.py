"""`Topology`: what `StreamsBuilder.build` returns, with its texts and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossstream.catalog.planners import plan_topology
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph import describe, picture
from crossstream.graph.nodes import Graph
from crossstream.graph.svg import to_svg
from crossstream.missing_names import PointsToNames
from crossstream.signatures import check_partitions


@dataclass(frozen=True, slots=True)
class Topology(PointsToNames, Graph):
    """A finished topology: nodes by name, parents before children.

    ``frames`` holds what the driver reads for sources that are DataFrames, by node name.
    """

    def describe(self) -> str:
        """The topology as text, in the layout of Kafka's ``TopologyDescription``. Source: semantics 3.11.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", Consumed(key=serdes.string(), value=serdes.json())).to("out")
        >>> print(builder.build().describe().strip())
        Topologies:
           Sub-topology: 0
            Source: in (topics: [in])
              --> in.to(out)
            Sink: in.to(out) (topic: out)
              <-- in
        """
        return describe.to_text(self)

    def to_mermaid(self) -> str:
        """The topology as a Mermaid flowchart.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", Consumed(key=serdes.string(), value=serdes.json())).to("out")
        >>> builder.build().to_mermaid().splitlines()[:3]
        ['flowchart TD', '  t0[/"in"/]', '  t1[/"out"/]']
        """
        return picture.to_mermaid(self)

    def to_dot(self) -> str:
        """The topology as a Graphviz digraph.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", Consumed(key=serdes.string(), value=serdes.json())).to("out")
        >>> builder.build().to_dot().splitlines()[0]
        'digraph topology {'
        """
        return picture.to_dot(self)

    def to_dict(self) -> dict[str, Any]:
        """The topology as plain data for JSON: nodes in the order they were built, and sub-topologies.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", Consumed(key=serdes.string(), value=serdes.json())).to("out")
        >>> [node["name"] for node in builder.build().to_dict()["nodes"]]
        ['in', 'in.to(out)']
        """
        return describe.to_dict(self)

    def plan(self, partitions: int | None = None) -> str:
        """The rounds, stores and re-keyings an engine will run, as text; ``partitions``: state partitions.

        Raises `TopologyError` CS-101 for anything but a number of at least 1.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", Consumed(key=serdes.string(), value=serdes.json())).to("out")
        >>> print(builder.build().plan(partitions=2).strip())
        Round 0: one task for each share of the source partitions
          read in
          sink in.to(out) <- in
        """
        check_partitions("plan", partitions)
        return plan_topology(self).text(partitions)

    def _repr_html_(self) -> str:
        """The picture a notebook shows: inline SVG, nothing loaded from elsewhere."""
        return to_svg(self)


def check_topology(owner: str, given: object) -> None:
    """Refuses (CS-201) anything but a `Topology`."""
    if not isinstance(given, Topology):
        what = f"{owner} runs a Topology, not a {type(given).__name__}"
        step = f"pass what StreamsBuilder.build() gives, first: {owner}(builder.build(), …)"
        raise refuse("CS-201", what, step, **caller_location())


def check_config(owner: str, given: object) -> None:
    """Refuses (CS-201) anything but a `StreamsConfig`."""
    if not isinstance(given, StreamsConfig):
        what = f"{owner} takes its settings as a StreamsConfig, not as a {type(given).__name__}"
        step = 'write StreamsConfig(application_id="…", …); StreamsConfig(**…) makes one of a dict'
        raise refuse("CS-201", what, step, **caller_location())
