"""The schemas that Kafka Connect writes around records in JSON (``schemas.enable``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET

from crossstream.serdes.debezium.convert import NO_SCHEMA, Logical, bad


def described_by(schemas: list[Any]) -> Logical | None:
    """What the schemas around some records say, which are to be one."""
    texts = {b"" if one is UNSET else bytes(one) for one in schemas}
    if len(texts) > 1:
        raise bad("records with several schemas")
    text = next(iter(texts), b"")
    return None if text in (b"", b"null") else _parsed(text)


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> Logical:
    return _logical(msgspec.json.decode(text))


def _logical(schema: Any) -> Logical:
    """What a schema of Kafka Connect says."""
    scale = (schema.get("parameters") or {}).get("scale")
    items = schema.get("items")
    return Logical(
        schema.get("name"),
        None if scale is None else int(scale),
        {one["field"]: _logical(one) for one in schema.get("fields") or () if "field" in one},
        _logical(items) if isinstance(items, dict) else None,
    )


def schema_in(inner: Mapping[str, Logical], name: str, described: Logical | None) -> Logical | None:
    return None if described is None else inner.get(name, NO_SCHEMA)
