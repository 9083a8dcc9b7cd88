"""The bytes that dead letters have: in the serdes that the topology knows, whatever else was in the batch.

Rows of one flow may have bytes, or have been made by a function; those of a merge may have either, and which of them
are together in a batch, and so in one column, depends on the cut. So nothing here goes by the rows (decision 0031).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from crossstream.algebra.change import Changes
from crossstream.algebra.table_table import Given
from crossstream.algebra.values import Values
from crossstream.errors import SerdeError
from crossstream.serdes import Serde, calls
from crossstream.serdes.serde import alike
from crossstream.state.columns import take_or_null
from crossstream.topology.graph import Node, StreamStreamJoin, StreamTableJoin, Topology


@dataclass(frozen=True, slots=True)
class Forms:
    """The serdes of dead letters; None: nobody but the engine has bytes of these.

    ``value``: of the records, or of those of a join's left side; ``right``: of those of its right side.
    """

    key: Serde | None
    value: Serde | None
    right: Serde | None = None

    @classmethod
    def of_input(cls, topology: Topology, node: Node) -> Forms:
        """Of records that an operator takes; a source takes what it yields."""
        taken = topology[node.parents[0]] if node.parents else node
        return cls(taken.key, taken.value)

    @classmethod
    def of_join(cls, topology: Topology, node: Node) -> Forms:
        """Of results of a join, with the values of its sides."""
        return cls(node.key, *_sides(topology, node))


def letters(forms: Forms, changes: Changes, given: Given | None) -> tuple[Any, Any]:
    """Keys and values (`pyarrow.LargeBinaryArray`) of changes that failed. ``given``: to a joiner, for each of them."""
    key = bytes_of(changes.key, forms.key)
    if given is None:
        return key, bytes_of(changes.value, forms.value)
    sides = [bytes_of(given.left, forms.value), bytes_of(given.right, forms.right)]
    rows = np.arange(changes.rows)
    return key, take_or_null(pa.concat_arrays(sides), np.where(given.is_right, changes.rows + rows, rows))


def bytes_of(values: Values, serde: Serde | None) -> pa.LargeBinaryArray:
    """Bytes that others can read: in the serde, or as JSON, or else as text."""
    if serde is None:
        return _each(values, _text)
    if values.serde is not None and alike(values.serde, serde):
        return values.wire()
    try:
        return values.wire(serde)
    except SerdeError:
        return _each(values, lambda value: _serialized(value, serde))


def _sides(topology: Topology, node: Node) -> tuple[Serde | None, Serde | None]:
    if isinstance(node, StreamStreamJoin):
        return node.store.value, node.other_store.value
    left, right = (topology[name].value for name in node.parents[:2])
    return (node.stream_value, right) if isinstance(node, StreamTableJoin) else (left, right)


def _each(values: Values, written: Any) -> pa.LargeBinaryArray:
    return pa.array(
        [None if value is None else written(value) for value in values.objects()], pa.large_binary()
    )


def _serialized(value: Any, serde: Serde) -> bytes | None:
    try:
        return calls.serialize(serde, value)
    except SerdeError:
        return _text(value)


def _text(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except Exception:  # whatever the value's own conversion raises
        return repr(value).encode()
