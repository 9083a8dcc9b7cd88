"""Warnings that older versions of our dependencies are known for, and that do not fail a test."""

from __future__ import annotations

from importlib import metadata


def _older(package: str, *version: int) -> bool:
    return tuple(int(part) for part in metadata.version(package).split(".")[:2]) < version


FILTERS: list[str] = []
"""Filters of warnings, as for ``python -W``."""

if _older("pyspark", 4, 2):  # leaves sockets to the garbage collector (SPARK-54247)
    FILTERS.append("ignore:unclosed <socket.socket:ResourceWarning")
if _older("confluent-kafka", 2, 9):  # gives schemas to httpx as form data (confluent-kafka-python#1944)
    FILTERS.append("ignore:Use 'content=<...>' to upload raw bytes:DeprecationWarning")
