"""Where the sources of a changed application continue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from crossstream.evolution.decision import Rebuilt
from crossstream.graph.names import matches
from crossstream.graph.nodes import Graph, Source
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Commit, Starts

Positions = Mapping[str, Mapping[str, Mapping[int, int]]]


def positions_after(graph: Graph, before: Commit, rebuilt: Positions) -> dict[str, dict[str, dict[int, int]]]:
    """Next offsets by source, topic and partition: those of before, whatever the source was called.

    ``rebuilt``: of sources that are new, or were read again. What no source reads any more is left out.
    """
    read = {topic: at for topics in before.positions.values() for topic, at in topics.items()}
    found: dict[str, dict[str, dict[int, int]]] = {}
    for node in graph.each(Source):
        topics = {topic: dict(read[topic]) for topic in _topics(node, read)}
        topics |= {topic: dict(at) for topic, at in rebuilt.get(node.name, {}).items()}
        if topics:
            found[node.name] = topics
    return found


def _topics(node: Source, read: Iterable[str]) -> list[str]:
    """Those of the topics that were read which the source reads."""
    named = {*node.topics, *([] if node.lake is None else [node.lake.topic])}
    return [topic for topic in read if topic in named or matches(node.pattern, topic)]


def topic_ids_after(before: Commit, rebuilt: Rebuilt) -> dict[str, str]:
    """Which topics the positions are in."""
    return {**rebuilt.topic_ids, **before.topic_ids}


def starts_after(before: Starts, rebuilt: Rebuilt) -> Starts:
    """Where sources began: those of before, and the ones that are new."""
    application = BatchLog(rebuilt.root).application()
    new = Starts() if application is None else application.starts
    topics = {topic for of_source in rebuilt.positions.values() for topic in of_source}
    sources = {source for source in new.sources if source in rebuilt.positions}
    return structs.replace(
        before,
        sources=tuple(sorted({*before.sources, *sources})),
        **{
            name: {**_of(getattr(new, name), topics), **getattr(before, name)}
            for name in ("positions", "topic_ids", "loads", "changes", "seams")
        },
    )


def _of(by_topic: Mapping[str, object], topics: set[str]) -> dict[str, object]:
    return {topic: one for topic, one in by_topic.items() if topic in topics}
