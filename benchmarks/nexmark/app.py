"""A query as an application in a process of its own. ``functions`` of `Ours`: the name of the query."""

from __future__ import annotations

import crossstream as cs
from benchmarks import generate
from benchmarks.nexmark.queries import topology
from benchmarks.nexmark.topics import Topics
from benchmarks.ours import Ours, main


class OursNexmark(Ours):
    """`Ours` with these topologies."""

    module = "benchmarks.nexmark.app"
    max_records = None


def side(name: str, query: str, servers: str, topics: Topics, warm: Topics) -> OursNexmark:
    """``crossstream``, or ``crossstream@CHECKOUT`` for the version of another checkout."""
    _, at, checkout = name.partition("@")
    places = (generate.Topics.of(each.prefix) for each in (topics, warm))
    return OursNexmark(
        servers, topics.prefix, next(places), warm_up=next(places), functions=f"{query}{at}{checkout}"
    )


def application(topics: generate.Topics, query: str) -> cs.Topology:
    """The query on topics with this prefix."""
    return topology(query, Topics.of(topics.prefix))


if __name__ == "__main__":
    main(application)
