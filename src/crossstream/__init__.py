"""crossstream: the joins of Kafka Streams on Apache Spark.

Build, describe, draw and test a topology without a JVM and without a broker. Every public name is loaded at its
first use: importing crossstream is fast, and only programs that use PySpark or a Kafka client load them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from crossstream._version import __version__

if TYPE_CHECKING:
    from crossstream import agg, serdes
    from crossstream.api.branched import BranchedKStream
    from crossstream.api.builder import StreamsBuilder
    from crossstream.api.debezium import debezium
    from crossstream.api.global_table import GlobalKTable
    from crossstream.api.grouped import CogroupedKStream, GroupedKStream, GroupedKTable, WindowedKStream
    from crossstream.api.histories import history, offsets
    from crossstream.api.merging import prefixed
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
    from crossstream.api.processors import KeyValueStore, VersionedStore, WindowStore
    from crossstream.api.stream import KStream
    from crossstream.api.table import KTable
    from crossstream.api.topology import Topology
    from crossstream.api.windows import (
        SessionWindows,
        SlidingWindows,
        Suppressed,
        TimeWindows,
        UnlimitedWindows,
    )
    from crossstream.cli.application import run
    from crossstream.columns.functions import keyed
    from crossstream.config import DeadLetter, StreamsConfig
    from crossstream.errors import (
        ConfigError,
        CopartitionError,
        CrossStreamError,
        IncompatibleStateError,
        ProcessingError,
        SerdeError,
        SinkError,
        SourceError,
        StateError,
        TopologyError,
    )
    from crossstream.once import BatchMark, once_in
    from crossstream.operators.process.context import ProcessorContext, Record
    from crossstream.query.files import open_store
    from crossstream.serdes.keys import LeftOrRight
    from crossstream.serdes.windowed import Windowed
    from crossstream.spark import SparkStreams, register
    from crossstream.testing import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver


__all__ = [
    "BatchMark",
    "BranchedKStream",
    "CogroupedKStream",
    "ConfigError",
    "Consumed",
    "CopartitionError",
    "CrossStreamError",
    "DeadLetter",
    "GlobalKTable",
    "Grouped",
    "GroupedKStream",
    "GroupedKTable",
    "IncompatibleStateError",
    "JoinWindows",
    "Joined",
    "KStream",
    "KTable",
    "KeyValueStore",
    "LeftOrRight",
    "Materialized",
    "Named",
    "ProcessingError",
    "ProcessorContext",
    "Produced",
    "Record",
    "Repartitioned",
    "SerdeError",
    "SessionWindows",
    "SinkError",
    "SlidingWindows",
    "SourceError",
    "SparkStreams",
    "StateError",
    "StreamJoined",
    "StreamsBuilder",
    "StreamsConfig",
    "Suppressed",
    "TableJoined",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TimeWindows",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "UnlimitedWindows",
    "VersionedStore",
    "WindowStore",
    "Windowed",
    "WindowedKStream",
    "__version__",
    "agg",
    "debezium",
    "history",
    "keyed",
    "offsets",
    "once_in",
    "open_store",
    "prefixed",
    "register",
    "run",
    "serdes",
]

_HOMES = {
    "crossstream.api.branched": "BranchedKStream",
    "crossstream.api.builder": "StreamsBuilder",
    "crossstream.api.debezium": "debezium",
    "crossstream.api.grouped": "CogroupedKStream GroupedKStream GroupedKTable WindowedKStream",
    "crossstream.api.histories": "history offsets",
    "crossstream.api.merging": "prefixed",
    "crossstream.api.options": "Consumed Grouped JoinWindows Joined Materialized Named Produced Repartitioned "
    "StreamJoined TableJoined",
    "crossstream.api.processors": "KeyValueStore VersionedStore WindowStore",
    "crossstream.api.stream": "KStream",
    "crossstream.api.global_table": "GlobalKTable",
    "crossstream.api.table": "KTable",
    "crossstream.api.windows": "SessionWindows SlidingWindows Suppressed TimeWindows UnlimitedWindows",
    "crossstream.api.topology": "Topology",
    "crossstream.cli.application": "run",
    "crossstream.columns.functions": "keyed",
    "crossstream.config": "DeadLetter StreamsConfig",
    "crossstream.errors": "ConfigError CopartitionError CrossStreamError IncompatibleStateError ProcessingError "
    "SerdeError SinkError SourceError StateError TopologyError",
    "crossstream.once": "BatchMark once_in",
    "crossstream.operators.process.context": "ProcessorContext Record",
    "crossstream.query.files": "open_store",
    "crossstream.serdes.keys": "LeftOrRight",
    "crossstream.serdes.windowed": "Windowed",
    "crossstream.spark": "SparkStreams register",
    "crossstream.testing": "TestInputTopic TestOutputTopic TestRecord TopologyTestDriver",
}
"""The module of each public name."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker knows the names from above

    def __getattr__(name: str) -> Any:
        """Loads a public name when it is first used."""
        if name in ("agg", "serdes"):
            return importlib.import_module(f"crossstream.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """The public names, not what this module needs to find them."""
    return __all__
