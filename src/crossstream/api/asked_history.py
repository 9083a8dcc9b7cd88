"""A history as it was asked for, before its table is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from crossstream.graph.lake import LakeFormat


@dataclass(frozen=True, slots=True)
class Offsets:
    """The columns that carry Kafka's own partition and offset of each row; `offsets` makes one."""

    partition: str
    offset: str


@dataclass(frozen=True, slots=True)
class LakeHistory:
    """A table of a lake before a topic, as `history` was asked for it."""

    form: LakeFormat
    table: object
    until: Offsets | datetime
    options: Mapping[str, str] = field(repr=False)
    key: tuple[str, ...] | None = None
    value: str | None = None
    timestamp: str | None = None
    deleted: str | None = None
    version: int | None = None
