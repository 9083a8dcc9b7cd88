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
    from crossstream.api import (
        BranchedKStream,
        CogroupedKStream,
        Consumed,
        GlobalKTable,
        Grouped,
        GroupedKStream,
        GroupedKTable,
        Joined,
        JoinWindows,
        KStream,
        KTable,
        Materialized,
        Named,
        Produced,
        Repartitioned,
        SessionWindows,
        SlidingWindows,
        StreamJoined,
        StreamsBuilder,
        TableJoined,
        TimeWindows,
        UnlimitedWindows,
        WindowedKStream,
    )
    from crossstream.api.topology import Topology
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
    from crossstream.query.files import open_store
    from crossstream.serdes.keys import LeftOrRight
    from crossstream.serdes.windowed import Windowed
    from crossstream.spark import SparkStreams
    from crossstream.testing import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver


__all__ = [
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
    "LeftOrRight",
    "Materialized",
    "Named",
    "ProcessingError",
    "Produced",
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
    "TableJoined",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TimeWindows",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "UnlimitedWindows",
    "Windowed",
    "WindowedKStream",
    "__version__",
    "agg",
    "keyed",
    "open_store",
    "serdes",
]

_HOMES = {
    "crossstream.api": "BranchedKStream CogroupedKStream Consumed GlobalKTable Grouped GroupedKStream GroupedKTable "
    "JoinWindows Joined KStream KTable Materialized Named Produced Repartitioned SessionWindows SlidingWindows "
    "StreamJoined StreamsBuilder TableJoined TimeWindows UnlimitedWindows WindowedKStream",
    "crossstream.api.topology": "Topology",
    "crossstream.columns.functions": "keyed",
    "crossstream.config": "DeadLetter StreamsConfig",
    "crossstream.errors": "ConfigError CopartitionError CrossStreamError IncompatibleStateError ProcessingError "
    "SerdeError SinkError SourceError StateError TopologyError",
    "crossstream.query.files": "open_store",
    "crossstream.serdes.keys": "LeftOrRight",
    "crossstream.serdes.windowed": "Windowed",
    "crossstream.spark": "SparkStreams",
    "crossstream.testing": "TestInputTopic TestOutputTopic TestRecord TopologyTestDriver",
}
"""The module of each public name."""
_NOT_YET = ("Suppressed",)
"""Names of Kafka Streams that come with aggregations."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker knows the names from above

    def __getattr__(name: str) -> Any:
        """Loads a public name when it is first used."""
        if name in ("agg", "serdes"):
            return importlib.import_module(f"crossstream.{name}")
        if name in _NOT_YET:
            raise AttributeError(f"module {__name__!r} has no {name} yet: see Status in README.md")
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """The public names, not what this module needs to find them."""
    return __all__
