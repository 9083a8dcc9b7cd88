"""The public vocabulary of a topology: validate, make a node, return a handle; nothing runs here."""

from crossstream.dsl.branched import BranchedKStream
from crossstream.dsl.builder import StreamsBuilder
from crossstream.dsl.global_table import GlobalKTable
from crossstream.dsl.kstream import KStream
from crossstream.dsl.ktable import KTable
from crossstream.dsl.options import (
    Consumed,
    Joined,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    StreamJoined,
    TableJoined,
)
from crossstream.dsl.windows import JoinWindows

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
