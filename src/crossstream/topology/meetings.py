"""Where ways of a record meet again: at merges, and at sinks that may write to one topic.

A sink whose topic a function chooses may write to any, so it meets those of every topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from crossstream.topology.graph import Merge, Sink
from crossstream.topology.visits import Meeting, Visits


def meetings(visits: Visits) -> Iterator[Meeting]:
    """All those at which a record may arrive on several ways."""
    yield from (Meeting.of(node) for node in visits.topology if isinstance(node, Merge))
    for sinks in sharing(visits):
        yield from by_topic(sinks).values()


def sharing(visits: Visits) -> list[Sequence[Sink]]:
    """The sinks that wait for each other, in groups, those of a group as they were built.

    Two do if they may write to one topic, and a record may come to both.
    """
    groups: list[list[Sink]] = []
    for sink in visits.topology:
        if isinstance(sink, Sink):
            met = [group for group in groups if any(_share(visits, one, sink) for one in group)]
            groups = [group for group in groups if group not in met]
            groups.append([*(one for group in met for one in group), sink])
    places = {node.name: place for place, node in enumerate(visits.topology)}
    return [sorted(group, key=lambda sink: places[sink.name]) for group in groups if len(group) > 1]


def by_topic(sinks: Sequence[Sink]) -> Mapping[str | None, Meeting]:
    """The sinks of a group that may write to each topic. None: to one that none of them names."""
    return {
        topic: Meeting.of_sinks(sink for sink in sinks if sink.topic in (topic, None))
        for topic in dict.fromkeys(sink.topic for sink in sinks)
    }


def _share(visits: Visits, one: Sink, other: Sink) -> bool:
    if one.topic != other.topic and None not in (one.topic, other.topic):
        return False
    return not visits.sources_of(one.name).isdisjoint(visits.sources_of(other.name))
