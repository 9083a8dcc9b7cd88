"""Serdes: wire bytes of keys and values, to and from Python objects and Polars columns.

>>> from crossstream import serdes
>>> serdes.int64().serialize(7).hex()
'0000000000000007'
>>> serdes.json().deserialize(b'{"id": 7}')
{'id': 7}
"""

from __future__ import annotations

from typing import Literal

from crossstream.durations import Duration, to_milliseconds
from crossstream.serdes import errors
from crossstream.serdes.avro.serde import avro
from crossstream.serdes.contract import EngineSerde, Serde
from crossstream.serdes.json.typed import json
from crossstream.serdes.keys import LeftOrRightSerde
from crossstream.serdes.own import known
from crossstream.serdes.primitives import Boolean, Bytes, Number, String, Uuid
from crossstream.serdes.protobuf.serde import confluent_protobuf
from crossstream.serdes.registry.avro import confluent_avro
from crossstream.serdes.registry.json import confluent_json
from crossstream.serdes.windowed import NO_END, WindowedSerde

__all__ = [
    "Serde",
    "avro",
    "boolean",
    "bytes",
    "confluent_avro",
    "confluent_json",
    "confluent_protobuf",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "json",
    "left_or_right",
    "session_windowed",
    "string",
    "uuid",
    "windowed",
]


def string() -> Serde:
    """Text as UTF-8. Columns: String.

    >>> string().serialize("é")
    b'\\xc3\\xa9'
    """
    return String()


def bytes() -> Serde:
    """Bytes, unchanged. Columns: Binary.

    >>> bytes().deserialize(b"raw")
    b'raw'
    """
    return Bytes()


def int16() -> Serde:
    """Integers of 2 bytes, big-endian (Kafka's ShortSerializer). Columns: Int16.

    >>> int16().serialize(7).hex()
    '0007'
    """
    return Number("int16")


def int32() -> Serde:
    """Integers of 4 bytes, big-endian (Kafka's IntegerSerializer). Columns: Int32.

    >>> int32().serialize(7).hex()
    '00000007'
    """
    return Number("int32")


def int64() -> Serde:
    """Integers of 8 bytes, big-endian (Kafka's LongSerializer). Columns: Int64.

    >>> int64().serialize(-1).hex()
    'ffffffffffffffff'
    """
    return Number("int64")


def float32() -> Serde:
    """IEEE floats of 4 bytes, big-endian (Kafka's FloatSerializer); rounds. Columns: Float32.

    >>> float32().deserialize(float32().serialize(0.1))
    0.10000000149011612
    """
    return Number("float32")


def float64() -> Serde:
    """IEEE floats of 8 bytes, big-endian (Kafka's DoubleSerializer). Columns: Float64.

    >>> float64().serialize(0.5).hex()
    '3fe0000000000000'
    """
    return Number("float64")


def boolean() -> Serde:
    """One byte, 0 or 1 (Kafka's BooleanSerializer). Columns: Boolean.

    >>> boolean().serialize(True).hex()
    '01'
    """
    return Boolean()


def uuid() -> Serde:
    """A `uuid.UUID` as 36 characters of text (Kafka's UUIDSerializer). Columns: String.

    >>> uuid().deserialize(b"00000000-0000-0000-0000-000000000007")
    UUID('00000000-0000-0000-0000-000000000007')
    """
    return Uuid()


def left_or_right(left: Serde, right: Serde) -> Serde:
    """`LeftOrRight` keys: a byte for the table, 0 or 1, then the key in that table's serde.

    Columns: a struct of left and right. Source: decision 0018.

    >>> left_or_right(string(), int16()).deserialize(b"\\x01\\x00\\x07")
    LeftOrRight(left=None, right=7)
    """
    return LeftOrRightSerde(_inner("left_or_right", left), _inner("left_or_right", right))


def windowed(inner: Serde, size: Duration | Literal["unlimited"]) -> Serde:
    """`Windowed` keys of windows of one size: the key, then the start in 8 bytes (Kafka's TimeWindowedSerializer).

    ``size``: a duration; of hopping windows their size, of sliding windows their time difference; of unlimited windows
    ``"unlimited"`` or Kafka's Long.MAX_VALUE. Columns: a struct of key, start and end.

    >>> windowed(string(), "1 minute").deserialize(b"ada" + (60_000).to_bytes(8, "big"))
    Windowed(key='ada', start=60000, end=120000)
    """
    known_inner = _inner("windowed", inner)
    return WindowedSerde(
        known_inner, NO_END if size in ("unlimited", NO_END) else to_milliseconds(size, "size")
    )


def session_windowed(inner: Serde) -> Serde:
    """`Windowed` keys of sessions: the key, then the end and the start in 8 bytes each (SessionWindowedSerializer).

    Columns: a struct of key, start and end.

    >>> session_windowed(string()).serialize(("ada", 1, 2)).hex()
    '61646100000000000000020000000000000001'
    """
    return WindowedSerde(_inner("session_windowed", inner))


def _inner(name: str, given: Serde) -> EngineSerde:
    """The serde that another one is made of. Raises `SerdeError` (CS-404) for anything else."""
    if isinstance(given, type) or not callable(getattr(given, "serialize", None)):
        raise errors.no_serde(f"serdes.{name}", given)
    return known(given)
