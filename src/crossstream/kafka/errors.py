"""Every error of reading, writing and managing topics on Kafka; docs/errors.md has the codes."""

from __future__ import annotations

from confluent_kafka import KafkaError

from crossstream.errors import SinkError, SourceError
from crossstream.topics import OffsetRange, TopicPartition

SERVERS_HINT = "check that the brokers run and that bootstrap_servers reaches them from every worker"
PROTOCOL_HINT = (
    f"{SERVERS_HINT}; if they hang up: that security.protocol in the Kafka settings is what their port uses"
)
HUNG_UP = ("brokers are down", "closed by peer", "reset by peer", "Broken pipe", "security.protocol")
"""All that a client says where brokers hang up: before it reads, while it reads, or while it sends."""
DENIED_HINT = "check the TLS and SASL settings of the Kafka connection and the rights (ACLs) of its user"
TOO_LARGE_HINT = (
    "raise max.message.bytes of the topic, and message.max.bytes where it is among the Kafka settings; "
    "if the record is smaller than that, its batch is not: put a smaller batch.size into the Kafka settings"
)
MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
GARBLED = frozenset(
    {
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.INVALID_MSG,
    }
)
UNLED = frozenset({KafkaError._NOENT})
"""No leader is known: there is no such topic, or all brokers are away."""
TIMED_OUT = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT})
DENIED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Errors that waiting does not cure. (Groups are left out: readers need no right to any.)"""


def is_denial(error: KafkaError) -> bool:
    """Whether the broker refused us, or we it: no use in trying again."""
    untrusted = error.code() == KafkaError._SSL and "certificate" in error.str()
    return untrusted or error.code() in DENIED


def deleted(span: OffsetRange, wanted: int, begin: int) -> SourceError:
    """CS-601: the log begins at ``begin`` now, past the ``wanted`` offset."""
    return SourceError(
        f"records of the range {span.start}..{span.end} were deleted before they were read: "
        f"the partition begins at offset {begin} now",
        code="CS-601",
        where={"topic": span.topic, "partition": span.partition, "offset": wanted},
        next="keep records longer (retention.ms, retention.bytes), or set on_lost_records='skip': it counts the gap",
    )


def missing(topic: str, partition: int | None = None) -> SourceError:
    return SourceError(
        "the topic does not exist" if partition is None else "the topic has no such partition",
        code="CS-602",
        where={"topic": topic, "partition": partition},
        next="check the topic's name and the cluster (bootstrap_servers), or create the topic",
    )


def truncated(span: OffsetRange, end: int) -> SourceError:
    """CS-603: the log ends at ``end``, before the range does."""
    return SourceError(
        f"the range {span.start}..{span.end} was to be read, but the partition ends at offset {end}",
        code="CS-603",
        where={"topic": span.topic, "partition": span.partition, "offset": end},
        next="if the topic was deleted and created again, start with new state; "
        "if a broker lost records, look for unclean leader elections",
    )


def away(patience_seconds: float, reason: str | None, topic: str | None = None) -> SourceError:
    """CS-604: no broker answered for ``patience_seconds``."""
    because = f": {reason}" if reason else ""
    return SourceError(
        f"no broker answered for {patience_seconds:g} s{because}",
        code="CS-604",
        where={"topic": topic},
        next=_servers_hint(reason),
    )


def _servers_hint(reason: str | None) -> str:
    """The client reports why it cannot connect, but not that a broker hangs up on clients with another protocol."""
    hung_up = reason is not None and any(sign in reason for sign in HUNG_UP)
    return PROTOCOL_HINT if hung_up else SERVERS_HINT


def leaderless(patience_seconds: float, topic: str, partition: int) -> SourceError:
    """CS-604: the partition had no leader for ``patience_seconds``."""
    return SourceError(
        f"the partition has had no leader for {patience_seconds:g} s",
        code="CS-604",
        where={"topic": topic, "partition": partition},
        next="bring back the brokers that hold its replicas",
    )


def refused(reason: str, topic: str | None = None) -> SourceError:
    return SourceError(
        f"the Kafka broker refused access: {reason}",
        code="CS-605",
        where={"topic": topic},
        next=DENIED_HINT,
    )


def unreadable(tp: TopicPartition, offset: int, reason: str) -> SourceError:
    return SourceError(
        f"what the broker sent cannot be read: {reason}",
        code="CS-606",
        where={"topic": tp.topic, "partition": tp.partition, "offset": offset},
        next="read the offset with another client; if it fails too, the log is damaged or its codec unknown",
    )


def stuck(span: OffsetRange, position: int, seconds: float) -> SourceError:
    """CS-604: brokers answer, and yet no record and no end of the range in ``seconds``."""
    return SourceError(
        f"the range {span.start}..{span.end} has not advanced for {seconds:.0f} s although brokers answer",
        code="CS-604",
        where={"topic": span.topic, "partition": span.partition, "offset": position},
        next="look into the broker's log for this partition",
    )


def uncommitted(group: str, reason: str) -> SourceError:
    return SourceError(
        f"offsets cannot be committed to the consumer group {group!r}: {reason}",
        code="CS-608",
        where={"group": group},
        next="if other consumers use a group of this name, choose another application_id; "
        "otherwise check the rights (ACLs) to the group",
    )


def unanswerable(reason: str) -> SourceError:
    """CS-604: a refusal that waiting does not cure."""
    return SourceError(
        f"the broker does not give the offsets of the topics: {reason}",
        code="CS-604",
        next="look into the broker's log",
    )


def undelivered(
    error: KafkaError,
    topic: str | None,
    partition: int | None,
    key: object,
    lost: int = 1,
    complaint: str | None = None,
) -> SinkError:
    """CS-651 to CS-654: a record that was not stored, one of ``lost``; the last complaint of the client."""
    others = f" (the first of {lost:,} such records)" if lost > 1 else ""
    where = {"topic": topic, "partition": partition if partition != -1 else None, "key": key}
    return not_written(f"a record was not stored: {error.str()}{others}", error, complaint, **where)


def not_written(what: str, error: KafkaError, complaint: str | None = None, **where: object) -> SinkError:
    """CS-651 to CS-654, by the client's error."""
    code, next_step = _delivery(error, complaint)
    return SinkError(what, code=code, where=where, next=next_step)


def _delivery(error: KafkaError, complaint: str | None) -> tuple[str, str]:
    if is_denial(error):
        return "CS-653", DENIED_HINT
    if error.code() in MISSING:
        return "CS-652", "create the topic, with as many partitions as are written to"
    if error.code() in TIMED_OUT:
        return "CS-651", _servers_hint(complaint or error.str())
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return "CS-654", TOO_LARGE_HINT
    if error.code() == KafkaError.INVALID_TIMESTAMP:
        return (
            "CS-654",
            "timestamps are milliseconds; a broker accepts at most message.timestamp.after.max.ms ahead",
        )
    return "CS-654", "look into the broker's log"


def exists(topic: str) -> SinkError:
    return SinkError(
        "the topic exists already",
        code="CS-656",
        where={"topic": topic},
        next="use the existing topic, or delete it first",
    )


def not_created(topic: str, reason: str) -> SinkError:
    return SinkError(
        f"the topic was not created: {reason}",
        code="CS-656",
        where={"topic": topic},
        next="check the number of partitions, the topic's settings and the right (ACL) to create topics",
    )


def not_deleted(topic: str, reason: str) -> SinkError:
    return SinkError(
        f"the topic was not deleted: {reason}",
        code="CS-656",
        where={"topic": topic},
        next="check the right (ACL) to delete topics, and the broker's delete.topic.enable",
    )


def not_allowed(reason: str) -> SinkError:
    """CS-653, before any record was tried."""
    return SinkError(f"the Kafka broker refused access: {reason}", code="CS-653", next=DENIED_HINT)
