"""What a source may be given as its topics, and what a global table may not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from crossstream.api.checks import check_topic
from crossstream.api.options import Consumed, Materialized
from crossstream.api.types import typed
from crossstream.columns.functions import Function
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.nodes import Node
from crossstream.serdes.contract import EngineSerde


def check_global(name: str, consumed: Consumed, asked: Materialized) -> None:
    """Refuses (CS-101) a versioned global table, and one that begins at the end of its topic."""
    if asked.history_retention is not None:
        what = "keeps no versions: a record sees the row of the moment when it is processed"
        step = "leave history_retention out; builder.table(…) makes versioned tables"
    elif consumed.offset_reset != "earliest":
        what = "holds its whole topic and cannot begin later in it"
        step = "leave offset_reset out"
    else:
        return
    raise refuse("CS-101", f"a global table {what}", step, **caller_location(name))


def topics_of(topics: object) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    """The names, or the pattern, that `StreamsBuilder.stream` was given. Raises CS-101 and CS-102 for others."""
    if isinstance(topics, re.Pattern) and isinstance(topics.pattern, str):
        return (), topics
    names: list[Any] = []
    if isinstance(topics, Sequence) and not isinstance(topics, bytes):
        names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        check_topic("stream", name)
    if not names or len(set(names)) < len(names):
        what = f"{topics!r} is not a topic, a list of different topics or a pattern of text"
        step = 'pass "orders", ["orders", "returns"] or re.compile("orders-.*"); stream_from(…) reads a DataFrame'
        raise refuse("CS-101", what, step, **caller_location("stream"))
    return tuple(names), None


def check_extractor(consumed: Consumed, name: str, key: EngineSerde, value: EngineSerde) -> None:
    """Checks the fields that an expression for timestamps reads, see `typed`."""
    if isinstance(consumed.timestamp_extractor, pl.Expr):
        source = {"value": Node(name=name, key=key, value=value)}
        function = Function.of(consumed.timestamp_extractor)
        typed(function, name, "timestamp_extractor", source, timestamp=pl.Int64())
