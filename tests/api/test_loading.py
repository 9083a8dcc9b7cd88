"""`Consumed(load="first")`: where it is taken, and where it is refused in the user's line."""

from __future__ import annotations

import pytest

import crossstream as cs
from crossstream.graph import nodes as graph
from tests.api.cases import refused

FIRST = cs.Consumed(load="first")


def test_a_table_loads_first():
    builder = cs.StreamsBuilder()
    for topic, consumed in (
        ("a", FIRST),
        ("b", cs.Consumed(load="first", offset_reset="1 hour")),
        ("c", None),
    ):
        builder.table(topic, consumed)
    loads = {node.name: node.loads_first for node in builder.build().each(graph.Source)}
    assert loads == {"a": True, "b": True, "c": False}


@pytest.mark.parametrize(
    ("source", "consumed", "reason"),
    [
        ("stream", FIRST, "this is a stream"),
        ("global_table", FIRST, "is always read before other records"),
        ("table", cs.Consumed(load="first", offset_reset="latest"), "passes it over"),
    ],
)
def test_what_has_nothing_to_load_is_refused(source, consumed, reason):
    refused("CS-101", lambda: getattr(cs.StreamsBuilder(), source)("orders", consumed), reason)
