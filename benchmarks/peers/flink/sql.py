"""Statements that the benchmarks' jobs on Flink share: tables over topics with JSON in them.

>>> print(upsert_table("localhost:9092", "orders", "run1-orders", "k STRING, amount DOUBLE", key="k"))
CREATE TABLE `orders` (k STRING, amount DOUBLE, PRIMARY KEY (`k`) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka',
  …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PRODUCER = {
    "properties.linger.ms": "100",
    "properties.batch.size": "131072",
    "properties.compression.type": "lz4",
}
"""As the Kafka Streams application of the benchmarks produces, too."""


def upsert_table(
    servers: str,
    name: str,
    topic: str,
    columns: str,
    key: Sequence[str] | str,
    options: Mapping[str, str] | None = None,
) -> str:
    """A topic that is a table: the last row of each key, none after a tombstone; to read and to write.

    ``columns``: as in CREATE TABLE, with those of the ``key``: one name for a key that is text, a tuple of them for
    one in JSON. The key's columns are not in the values.
    """
    keys = [key] if isinstance(key, str) else list(key)
    primary = ", ".join(f"`{column}`" for column in keys)
    given = {
        "connector": "upsert-kafka",
        "key.format": "raw" if isinstance(key, str) else "json",
        "value.format": "json",
        "value.fields-include": "EXCEPT_KEY",
        **(options or {}),
    }
    return _table(servers, name, topic, f"{columns}, PRIMARY KEY ({primary}) NOT ENFORCED", given)


def stream_table(
    servers: str, name: str, topic: str, columns: str, options: Mapping[str, str] | None = None
) -> str:
    """A topic that is a stream: each record is a row of its own; to read from its beginning, and to write.

    ``columns``: as in CREATE TABLE, with computed ones and the watermark.
    """
    given = {
        "connector": "kafka",
        "scan.startup.mode": "earliest-offset",
        "format": "json",
        **(options or {}),
    }
    return _table(servers, name, topic, columns, given)


def _table(servers: str, name: str, topic: str, columns: str, given: Mapping[str, str]) -> str:
    options = {
        "topic": topic,
        "properties.bootstrap.servers": servers,
        "properties.isolation.level": "read_committed",
        **PRODUCER,
        **given,
    }
    listed = ",\n".join(f"  '{option}' = '{value}'" for option, value in options.items())
    return f"CREATE TABLE `{name}` ({columns}) WITH (\n{listed}\n)"
