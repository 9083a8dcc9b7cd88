"""Every error of reading, writing and managing topics on Kafka; docs/errors.md has the codes."""

from __future__ import annotations

from confluent_kafka import KafkaError

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.topics import OffsetRange, TopicPartition

SERVERS_HINT = "check that the brokers run and that bootstrap_servers reaches them from every worker"
PROTOCOL_HINT = (
    f"{SERVERS_HINT}; if they hang up: that security.protocol in the Kafka settings is what their port uses"
)
HUNG_UP = ("brokers are down", "closed by peer", "reset by peer", "Broken pipe", "security.protocol")
"""All that a client says where brokers hang up: before it reads, while it reads, or while it sends."""
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


def deleted(span: OffsetRange, wanted: int, begin: int) -> CrossStreamError:
    """CS-601: the log begins at ``begin`` now, past the ``wanted`` offset."""
    what = (
        f"records of the range {span.start}..{span.end} were deleted before they were read: "
        f"the partition begins at offset {begin} now"
    )
    return refuse("CS-601", what, topic=span.topic, partition=span.partition, offset=wanted)


def missing(topic: str, partition: int | None = None) -> CrossStreamError:
    what = "the topic does not exist" if partition is None else "the topic has no such partition"
    step = "check the topic's name and the cluster (bootstrap_servers), or create the topic"
    return refuse("CS-602", what, step, topic=topic, partition=partition)


def truncated(span: OffsetRange, end: int) -> CrossStreamError:
    """CS-603: the log ends at ``end``, before the range does."""
    what = f"the range {span.start}..{span.end} was to be read, but the partition ends at offset {end}"
    step = (
        "if the topic was deleted and created again, start with new state; "
        "if a broker lost records, look for unclean leader elections"
    )
    return refuse("CS-603", what, step, topic=span.topic, partition=span.partition, offset=end)


def away(patience_seconds: float, reason: str | None, topic: str | None = None) -> CrossStreamError:
    """CS-604: no broker answered for ``patience_seconds``."""
    because = f": {reason}" if reason else ""
    what = f"no broker answered for {patience_seconds:g} s{because}"
    return refuse("CS-604", what, _servers_hint(reason), topic=topic)


def _servers_hint(reason: str | None) -> str:
    """The client reports why it cannot connect, but not that a broker hangs up on clients with another protocol."""
    hung_up = reason is not None and any(sign in reason for sign in HUNG_UP)
    return PROTOCOL_HINT if hung_up else SERVERS_HINT


def leaderless(patience_seconds: float, topic: str, partition: int) -> CrossStreamError:
    """CS-604: the partition had no leader for ``patience_seconds``."""
    what = f"the partition has had no leader for {patience_seconds:g} s"
    step = "bring back the brokers that hold its replicas"
    return refuse("CS-604", what, step, topic=topic, partition=partition)


def refused(reason: str, topic: str | None = None) -> CrossStreamError:
    return refuse("CS-605", f"the Kafka broker refused access: {reason}", topic=topic)


def unreadable(tp: TopicPartition, offset: int, reason: str) -> CrossStreamError:
    what = f"what the broker sent cannot be read: {reason}"
    step = "read the offset with another client; if it fails too, the log is damaged or its codec unknown"
    return refuse("CS-606", what, step, topic=tp.topic, partition=tp.partition, offset=offset)


def stuck(span: OffsetRange, position: int, seconds: float) -> CrossStreamError:
    """CS-604: brokers answer, and yet no record and no end of the range in ``seconds``."""
    what = f"the range {span.start}..{span.end} has not advanced for {seconds:.0f} s although brokers answer"
    step = "look into the broker's log for this partition"
    return refuse("CS-604", what, step, topic=span.topic, partition=span.partition, offset=position)


def uncommitted(group: str, reason: str) -> CrossStreamError:
    what = f"offsets cannot be committed to the consumer group {group!r}: {reason}"
    return refuse("CS-608", what, group=group)


def unanswerable(reason: str) -> CrossStreamError:
    """CS-604: a refusal that waiting does not cure."""
    what = f"the broker does not give the offsets of the topics: {reason}"
    return refuse("CS-604", what, "look into the broker's log")


def undelivered(
    error: KafkaError,
    topic: str | None,
    partition: int | None,
    key: object,
    lost: int = 1,
    complaint: str | None = None,
) -> CrossStreamError:
    """CS-651 to CS-654: a record that was not stored, one of ``lost``; the last complaint of the client."""
    others = f" (the first of {lost:,} such records)" if lost > 1 else ""
    where = {"topic": topic, "partition": partition if partition != -1 else None, "key": key}
    return not_written(f"a record was not stored: {error.str()}{others}", error, complaint, **where)


def not_written(
    what: str, error: KafkaError, complaint: str | None = None, **where: object
) -> CrossStreamError:
    """CS-651 to CS-654, by the client's error."""
    code, next_step = _delivery(error, complaint)
    return refuse(code, what, next_step, **where)


def _delivery(error: KafkaError, complaint: str | None) -> tuple[str, str | None]:
    if is_denial(error):
        return "CS-653", None
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


def exists(topic: str) -> CrossStreamError:
    what = "the topic exists already"
    return refuse("CS-656", what, "use the existing topic, or delete it first", topic=topic)


def not_created(topic: str, reason: str) -> CrossStreamError:
    step = "check the number of partitions, the topic's settings and the right (ACL) to create topics"
    return refuse("CS-656", f"the topic was not created: {reason}", step, topic=topic)


def not_deleted(topic: str, reason: str) -> CrossStreamError:
    step = "check the right (ACL) to delete topics, and the broker's delete.topic.enable"
    return refuse("CS-656", f"the topic was not deleted: {reason}", step, topic=topic)


def not_allowed(reason: str) -> CrossStreamError:
    """CS-653, before any record was tried."""
    return refuse("CS-653", f"the Kafka broker refused access: {reason}")
