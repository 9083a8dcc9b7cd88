"""The public vocabulary of a topology: builder, streams, tables, options. Nothing runs here.

A method checks its arguments, raises `TopologyError` in the user's line, adds a node to the draft and returns a handle
to it. Start with `builder.py`; `stream.py` and `table.py` have the operators; `types.py` the types of expressions.
"""

from crossstream.api.branched import BranchedKStream
from crossstream.api.builder import StreamsBuilder
from crossstream.api.global_table import GlobalKTable
from crossstream.api.grouped import CogroupedKStream, GroupedKStream, GroupedKTable, WindowedKStream
from crossstream.api.options import (
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    StreamJoined,
    TableJoined,
)
from crossstream.api.stream import KStream
from crossstream.api.table import KTable
from crossstream.api.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = [
    "BranchedKStream",
    "CogroupedKStream",
    "Consumed",
    "GlobalKTable",
    "Grouped",
    "GroupedKStream",
    "GroupedKTable",
    "JoinWindows",
    "Joined",
    "KStream",
    "KTable",
    "Materialized",
    "Named",
    "Produced",
    "Repartitioned",
    "SessionWindows",
    "SlidingWindows",
    "StreamJoined",
    "StreamsBuilder",
    "TableJoined",
    "TimeWindows",
    "UnlimitedWindows",
    "WindowedKStream",
]
