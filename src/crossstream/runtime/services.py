"""What a task needs from the engine it runs in: records to read, stores, and topics to write to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from crossstream.config import DeadLetter, OnError, StreamsConfig
from crossstream.runtime.bad_records import Policy
from crossstream.storage.log_entries import SourceRange


class Output(Protocol):
    """Where sinks write."""

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        """Appends records (key, value, timestamp, headers) in order."""

    def must_exist(self, topic: str) -> None:
        """Raises `SinkError` where writing would make the topic, or its name is none: a record named it."""

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has."""

    def record_limit(self, topic: str) -> int | None:
        """The most bytes that a record of the topic may have, before compression; None: any number."""

    def finish(self) -> None:
        """Returns when everything written is stored."""


class Input(Protocol):
    """Where sources read."""

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        """The records of several ranges, batches of `records.RECORDS` as they come, each range in offset order."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the configuration says about every task."""

    decoding: Policy = field(default_factory=Policy)
    processing: Policy = field(default_factory=Policy)
    read_rows: int = 65_536
    chunk_rows: int = 65_536


def policy_of(setting: OnError) -> Policy:
    """The policy that ``"fail"``, ``"skip"`` or a `DeadLetter` stands for."""
    if isinstance(setting, DeadLetter):
        return Policy("dead-letter", setting.topic, None if setting.spill is None else str(setting.spill))
    return Policy(setting)


def settings_of(config: StreamsConfig) -> Settings:
    return Settings(policy_of(config.deserialization_errors), policy_of(config.processing_errors))
