"""The queries by name, as topologies."""

from __future__ import annotations

from typing import Any

import crossstream as cs
from benchmarks.nexmark import groups, joins, rows
from benchmarks.nexmark.inputs import Nexmark
from benchmarks.nexmark.topics import Topics

OURS: dict[str, Any] = {
    name: getattr(module, name)
    for name in (f"q{number}" for number in range(24))
    for module in (rows, joins, groups)
    if hasattr(module, name)
}


def topology(query: str, topics: Topics) -> cs.Topology:
    """A query that reads these topics, and writes to the one of its results."""
    nexmark = Nexmark(topics)
    OURS[query](nexmark).to(topics.result(query))
    return nexmark.builder.build()
