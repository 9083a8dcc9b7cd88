"""Reads the recorded Debezium topics beside this file."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Recorded:
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def recorded(scenario: str, format: str) -> Iterator[Recorded]:
    """The records of a scenario, each topic partition in order."""
    with gzip.open(HERE / scenario / f"{format}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            headers = [(name, _bytes(value)) for name, value in record.pop("headers")]
            key, value = _bytes(record.pop("key")), _bytes(record.pop("value"))
            yield Recorded(**record, key=key, value=value, headers=headers)


def formats(scenario: str) -> list[str]:
    return sorted(file.name.removesuffix(".jsonl.gz") for file in (HERE / scenario).glob("*.jsonl.gz"))


def tables(scenario: str) -> dict[str, Any]:
    """What SQL shows at the end; see README.md."""
    found: dict[str, Any] = json.loads(gzip.decompress((HERE / scenario / "tables.json.gz").read_bytes()))
    return found


def schemas(scenario: str) -> dict[int, dict[str, Any]]:
    """The registry's schemas by id."""
    text = gzip.decompress((HERE / scenario / "schemas.json.gz").read_bytes())
    return {int(id): schema for id, schema in json.loads(text).items()}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
