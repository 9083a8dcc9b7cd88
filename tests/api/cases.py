"""What the tests of the DSL share."""

from __future__ import annotations

import inspect

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes

JSON = cs.Consumed(key=serdes.string(), value=serdes.json())
ROW = serdes.json({"a": pl.Int64, "price": pl.Float64, "other": pl.String})
TYPED = cs.Consumed(key=serdes.string(), value=ROW)
"""With values of a declared type, which expressions need."""


def stream(topic="orders", consumed=JSON, builder=None):
    """A stream of its own builder, or of the one given."""
    return (builder or cs.StreamsBuilder()).stream(topic, consumed)


def tables(*topics, consumed=JSON):
    """Tables of one builder."""
    builder = cs.StreamsBuilder()
    return [builder.table(topic, consumed) for topic in topics]


def node_of(handle):
    """The graph's node behind a KStream or KTable."""
    return handle._node


def serde_names(handle):
    """The names of the key and value serdes of what a handle yields."""
    node = node_of(handle)
    return tuple(None if serde is None else serde.name for serde in (node.key, node.value))


def refused(code, act, *words):
    """The error of ``act()``: its code, the words it must say, the caller's line and a next step."""
    caller = inspect.stack()[1]
    with pytest.raises(cs.TopologyError) as caught:
        act()
    error = caught.value
    assert error.code == code, str(error)
    assert error.next
    file, _, line = str(error.where["line"]).rpartition(":")
    if file != __file__:  # `stream` and `tables` here are the user's code too
        assert file == caller.filename
        assert abs(int(line) - caller.lineno) <= 4
    for word in words:
        assert word in str(error)
    return error
