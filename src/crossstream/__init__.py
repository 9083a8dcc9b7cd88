"""crossstream: the joins of Kafka Streams on Apache Spark.

Topologies are built, described, drawn and tested without a JVM and without a broker; what needs PySpark or
a Kafka client is loaded when its name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from crossstream import serdes
from crossstream.algebra.functions import keyed
from crossstream.config import DeadLetter, StreamsConfig
from crossstream.dsl import (
    BranchedKStream,
    Consumed,
    KStream,
    KTable,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    StreamsBuilder,
    TableJoined,
)
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
from crossstream.topology.graph import Topology

if TYPE_CHECKING:
    from crossstream.query.files import open_store
    from crossstream.spark import SparkStreams
    from crossstream.testing import TestRecord, TopologyTestDriver

__version__ = "0.1.0"

__all__ = [
    "BranchedKStream",
    "ConfigError",
    "Consumed",
    "CopartitionError",
    "CrossStreamError",
    "DeadLetter",
    "IncompatibleStateError",
    "KStream",
    "KTable",
    "Materialized",
    "Named",
    "ProcessingError",
    "Produced",
    "Repartitioned",
    "SerdeError",
    "SinkError",
    "SourceError",
    "SparkStreams",
    "StateError",
    "StreamsBuilder",
    "StreamsConfig",
    "TableJoined",
    "TestRecord",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "__version__",
    "keyed",
    "open_store",
    "serdes",
]

_LATER = {
    "SparkStreams": "crossstream.spark",
    "TestRecord": "crossstream.testing",
    "TopologyTestDriver": "crossstream.testing",
    "open_store": "crossstream.query.files",
}


def __getattr__(name: str) -> Any:
    """Loads on first use what is not needed to build a topology."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
