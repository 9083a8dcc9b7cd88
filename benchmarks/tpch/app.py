"""A query of TPC-H as a crossstream application in a process of its own. ``functions``: the name of the query."""

from __future__ import annotations

from typing import Any

from benchmarks.generate import Topics
from benchmarks.ours import Ours, main


class OursQuery(Ours):
    """`Ours` with these topologies."""

    module = "benchmarks.tpch.app"
    max_records = None


def asked(topics: Topics, query: str) -> Any:
    from benchmarks.tpch.queries import topology

    return topology(topics.prefix, query)


if __name__ == "__main__":
    main(asked)
