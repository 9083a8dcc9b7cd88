"""What native consumers and producers have in common: opening, errors, what their threads report, topics."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import POINTER, addressof, byref, c_char_p, create_string_buffer
from logging import Logger
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata  # type: ignore[attr-defined]

from crossstream.kafka.native.library import Library, Metadata, Notice, Topic

REASON_BYTES = 512
LEVELS = (50, 50, 50, 40, 30, 20, 20, 10)
"""Python's levels of logging for those of syslog."""
FATAL = -2
"""The level of a notice about an error after which a client cannot continue."""


def takes(settings: Mapping[str, object]) -> bool:
    """Whether these settings are texts and numbers only, which need no Python function to be called back.

    Python's client brings such functions for logins by OAUTHBEARER itself.
    """
    scalars = all(isinstance(value, str | int | float | None) for value in settings.values())
    mechanisms = (settings.get(name) for name in ("sasl.mechanism", "sasl.mechanisms"))
    return scalars and "OAUTHBEARER" not in mechanisms


class NativeClient:
    """A client of librdkafka. One thread at a time uses it.

    It ends when it is closed or forgotten. In a process that was forked it belongs to the parent, which has its
    threads, and nothing is done to it.
    """

    kind: int

    def __init__(self, library: Library, settings: Mapping[str, Any], *, logger: Logger) -> None:
        texts = {name: value for name, value in settings.items() if name != "error_cb"}
        self._library, self._logger = library, logger
        self._on_error: Callable[[KafkaError], None] = settings["error_cb"]
        self._client = _open(library, self.kind, texts)
        self._close = weakref.finalize(self, _end, library, self._client, os.getpid())
        self._close.atexit = False  # a thread that was left behind may still wait for an answer
        self._handle = library.cs_handle(self._client)
        self._report()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        answer = POINTER(Metadata)()
        handle, library = self._alive(), self._library
        wanted = None if topic is None else library.kafka_topic_new(handle, topic.encode(), None)
        try:
            code = library.kafka_metadata(handle, topic is None, wanted, byref(answer), milliseconds(timeout))
        finally:
            if wanted is not None:
                library.kafka_topic_destroy(wanted)
        self._report()
        self._check_code(code, "Failed to get metadata")
        try:
            return self._cluster(answer.contents)
        finally:
            library.kafka_metadata_destroy(answer)

    def _cluster(self, answer: Metadata) -> ClusterMetadata:
        cluster = ClusterMetadata()
        cluster.topics = {
            found.topic.decode(): self._topic(found) for found in answer.topics[: answer.topic_cnt]
        }
        return cluster

    def _topic(self, found: Topic) -> TopicMetadata:
        topic = TopicMetadata()
        topic.topic = found.topic.decode()
        topic.error = KafkaError(found.err) if found.err else None
        topic.partitions = {}
        for partition in found.partitions[: found.partition_cnt]:
            known = PartitionMetadata()
            known.id, known.leader = partition.id, partition.leader
            known.error = KafkaError(partition.err) if partition.err else None
            topic.partitions[known.id] = known
        return topic

    def _alive(self) -> int:
        """librdkafka's handle."""
        if not self._close.alive:
            raise RuntimeError("the Kafka client is closed")
        handle: int = self._handle
        return handle

    def _report(self) -> None:
        """Passes on what the client's threads have reported; raises `KafkaException` if it cannot continue."""
        notice = Notice()
        fatal: KafkaError | None = None
        while self._library.cs_next_notice(self._client, byref(notice)):
            text = notice.text.decode(errors="replace")
            if notice.level >= 0:
                self._logger.log(LEVELS[min(notice.level, 7)], "%s", text)
            elif notice.level == FATAL:
                fatal = KafkaError(notice.code, text, fatal=True)
            else:
                self._on_error(KafkaError(notice.code, text))
        if fatal is not None:
            raise KafkaException(fatal)

    def _check_code(self, code: int, what: str) -> None:
        if code:
            reason = self._library.kafka_err2str(code).decode()
            raise KafkaException(KafkaError(code, f"{what}: {reason}"))

    def _check(self, error: int | None) -> None:
        """Raises what librdkafka returned, and frees it."""
        if error is None:
            return
        library = self._library
        raised = KafkaError(
            library.kafka_error_code(error),
            library.kafka_error_string(error).decode(errors="replace"),
            fatal=bool(library.kafka_error_is_fatal(error)),
            retriable=bool(library.kafka_error_is_retriable(error)),
            txn_requires_abort=bool(library.kafka_error_txn_requires_abort(error)),
        )
        library.kafka_error_destroy(error)
        raise KafkaException(raised)

    @contextmanager
    def _places(self, partitions: Iterable[KafkaPartition]) -> Iterator[int]:
        """librdkafka's list of partitions, with their offsets and notes."""
        library = self._library
        wanted = list(partitions)
        places: int = library.kafka_topic_partition_list_new(len(wanted))
        notes = []  # the list does not own them
        try:
            for partition in wanted:
                place = library.kafka_topic_partition_list_add(
                    places, partition.topic.encode(), partition.partition
                ).contents
                place.offset = partition.offset
                if partition.metadata is not None:
                    note = create_string_buffer(partition.metadata.encode())
                    notes.append((place, note))
                    place.metadata, place.metadata_size = addressof(note), len(note) - 1
            yield places
        finally:
            for place, _ in notes:
                place.metadata, place.metadata_size = None, 0
            library.kafka_topic_partition_list_destroy(places)


def _open(library: Library, kind: int, settings: Mapping[str, Any]) -> int:
    names, values = ((c_char_p * len(settings))() for _ in range(2))
    for row, (name, value) in enumerate(settings.items()):
        names[row] = name.encode()
        values[row] = None if value is None else str(value).encode()
    reason = create_string_buffer(REASON_BYTES)
    client: int | None = library.cs_open(kind, names, values, len(settings), reason, REASON_BYTES)
    if client is None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, reason.value.decode(errors="replace")))
    return client


def _end(library: Library, client: int, process: int) -> None:
    if os.getpid() == process:
        library.cs_close(client)


def milliseconds(seconds: float) -> int:
    return -1 if seconds < 0 else round(seconds * 1000)
