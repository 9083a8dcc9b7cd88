"""In which parts stored rows and topics are read: bounded ones, the smaller tables first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil

from crossstream.application.loop import Loop
from crossstream.evolution.reading import BoundedLog, is_part_of_state
from crossstream.topics import TopicPartition

BATCH = 500_000
"""So many rows are read in a batch."""

Ends = dict[TopicPartition, int]


def stages(loop: Loop) -> Iterator[Ends]:
    """Up to where the sources of an open application are read, one after the other.

    A join of a small table with a large one has fewest rows on the way if the small one is there before. Every part has
    rows of all state partitions, so that all tasks have something to do. What has an order in time comes last.
    """
    ends = loop.inputs.end_offsets()
    reached: Ends = {
        TopicPartition(topic, partition): at
        for topics in loop.sources.positions.values()
        for topic, positions in topics.items()
        for partition, at in positions.items()
    }
    begins, sizes = dict(reached), Counter[str]()
    log = loop.inputs.topics
    for tp, end in ends.items():
        if is_part_of_state(tp.topic) and not (isinstance(log, BoundedLog) and log.is_timed(tp.topic)):
            sizes[tp.topic] += end - begins[tp]
    waiting = 0
    for topic, rows in sorted(sizes.items(), key=lambda one: (one[1], one[0])):
        parts = max(1, ceil(rows / BATCH))
        for number in range(1, parts + 1):
            if waiting and waiting + rows / parts > BATCH:
                yield dict(reached)
                waiting = 0
            waiting += ceil(rows / parts)
            for tp in (one for one in ends if one.topic == topic):
                reached[tp] = begins[tp] + (ends[tp] - begins[tp]) * number // parts
    yield ends
