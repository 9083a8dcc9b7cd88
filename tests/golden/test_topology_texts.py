"""The texts of topologies, pinned. ``UPDATE_GOLDEN=1`` writes them anew; read the difference first."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import crossstream as cs
from crossstream.graph.traversal import sub_topologies
from tests.golden.topologies import TOPOLOGIES

FOLDER = Path(__file__).parent / "topologies"


def as_json(topology: cs.Topology) -> str:
    """`to_dict` without the lines of the test itself."""
    shown = topology.to_dict()
    for node in shown["nodes"]:
        file, _, line = node.pop("line").rpartition(":")
        assert file.endswith("topologies.py")
        assert line.isdigit()
    return json.dumps(shown, indent=1, ensure_ascii=False) + "\n"


FORMS = {
    "describe.txt": cs.Topology.describe,
    "mermaid.txt": cs.Topology.to_mermaid,
    "dot.txt": cs.Topology.to_dot,
    "json.txt": as_json,
}


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("form", FORMS)
def test_texts(name, form):
    shown = FORMS[form](TOPOLOGIES[name]())
    pinned = FOLDER / f"{name}.{form}"
    if os.environ.get("UPDATE_GOLDEN"):
        pinned.write_text(shown)
    assert shown == pinned.read_text()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_layout_is_kafkas(name):
    """The lines that tools which draw Kafka's descriptions look for."""
    entry = re.compile(r"    (Source|Processor|Sink): \S+ \((topics|stores|topic|extractor class): .*\)")
    arrow = re.compile(r"      (-->|<--) \S+(, \S+)*")
    heading = re.compile(r"  Sub-topology: \d+( for global store \(will not generate tasks\))?")
    head, first, *lines = TOPOLOGIES[name]().describe().splitlines()
    assert head == "Topologies:"
    assert heading.fullmatch(first[1:])
    for line in filter(None, lines):
        assert any(form.fullmatch(line) for form in (entry, arrow, heading)), line


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_node_is_in_one_sub_topology(name):
    topology = TOPOLOGIES[name]()
    assert sorted(node for part in sub_topologies(topology) for node in part) == sorted(topology.nodes)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_notebook_picture_shows_every_box(name):
    topology = TOPOLOGIES[name]()
    svg = ElementTree.fromstring(topology._repr_html_())
    texts = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}title")}
    sinks = {node.name for node in topology if not topology.children(node.name) and node.name not in texts}
    assert all(" to" in f" {name}" or ".to(" in name or name == "out" for name in sinks)
    assert {node.name for node in topology} - sinks <= texts
    assert "http" not in topology._repr_html_().replace("http://www.w3.org/2000/svg", "")


def test_names_from_topics_are_escaped():
    builder = cs.StreamsBuilder()
    builder.stream(re.compile('a<b>"c"&d'), cs.Consumed(key=cs.serdes.string(), value=cs.serdes.json()))
    topology = builder.build()
    ElementTree.fromstring(topology._repr_html_())
    assert "<b>" not in topology.to_mermaid()
    assert '\\"c\\"' in topology.to_dot()


def test_the_plan_is_text():
    plan = TOPOLOGIES["marketplace"]().plan(partitions=4)
    assert plan.startswith("Round 0:")
    assert "4 tasks" in plan
