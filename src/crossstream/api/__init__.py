"""The public vocabulary of a topology: builder, streams, tables, options. Nothing runs here.

A method checks its arguments, raises `TopologyError` in the user's line, adds a node to the draft and returns a handle
to it. Start with `builder.py`; `stream.py` and `table.py` have the operators; `types.py` the types of expressions.
"""

from crossstream.api.branched import BranchedKStream
from crossstream.api.builder import StreamsBuilder
from crossstream.api.options import (
    Consumed,
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
from crossstream.api.table import GlobalKTable, KTable

__all__ = [
    "BranchedKStream",
    "Consumed",
    "GlobalKTable",
    "JoinWindows",
    "Joined",
    "KStream",
    "KTable",
    "Materialized",
    "Named",
    "Produced",
    "Repartitioned",
    "StreamJoined",
    "StreamsBuilder",
    "TableJoined",
]
