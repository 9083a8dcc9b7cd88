"""Serdes: wire bytes of keys and values, to and from Python objects and Polars columns.

>>> from crossstream import serdes
>>> serdes.int64().serialize(7).hex()
'0000000000000007'
>>> serdes.json().deserialize(b'{"id": 7}')
{'id': 7}
"""

from __future__ import annotations

from crossstream.serdes.json_typed import json
from crossstream.serdes.left_or_right import LeftOrRightSerde
from crossstream.serdes.numeric import Number
from crossstream.serdes.scalar import Boolean, Bytes, String, Uuid
from crossstream.serdes.serde import Serde

__all__ = [
    "Serde",
    "boolean",
    "bytes",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "json",
    "left_or_right",
    "string",
    "uuid",
]


def string() -> Serde:
    """Text as UTF-8. Columns: String."""
    return String()


def bytes() -> Serde:
    """Bytes as they are. Columns: Binary."""
    return Bytes()


def int16() -> Serde:
    """Integers of 2 bytes, big-endian (Kafka's ShortSerializer). Columns: Int16."""
    return Number("int16")


def int32() -> Serde:
    """Integers of 4 bytes, big-endian (Kafka's IntegerSerializer). Columns: Int32."""
    return Number("int32")


def int64() -> Serde:
    """Integers of 8 bytes, big-endian (Kafka's LongSerializer). Columns: Int64."""
    return Number("int64")


def float32() -> Serde:
    """IEEE floats of 4 bytes, big-endian (Kafka's FloatSerializer); rounds. Columns: Float32."""
    return Number("float32")


def float64() -> Serde:
    """IEEE floats of 8 bytes, big-endian (Kafka's DoubleSerializer). Columns: Float64."""
    return Number("float64")


def boolean() -> Serde:
    """One byte, 0 or 1 (Kafka's BooleanSerializer). Columns: Boolean."""
    return Boolean()


def uuid() -> Serde:
    """A `uuid.UUID` as 36 characters of text (Kafka's UUIDSerializer). Columns: String."""
    return Uuid()


def left_or_right(left: Serde, right: Serde) -> Serde:
    """`LeftOrRight` keys: a byte, 0 or 1, that tells the table, then the key in that table's serde.

    Columns: a struct of left and right. Source: decision 0018.
    """
    return LeftOrRightSerde(left, right)
