"""`KafkaSettings`: where a Kafka cluster is and how to talk to it, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crossstream.error_codes import refuse

RESERVED = {
    "bootstrap.servers": "pass bootstrap_servers instead",
    "metadata.broker.list": "pass bootstrap_servers instead",
    "group.id": "nothing is read through a consumer group; offsets are committed to the application id",
    "group.instance.id": "nothing is read through a consumer group",
    "group.protocol": "nothing is read through a consumer group",
    "enable.auto.commit": "offsets are committed when a batch is",
    "enable.auto.offset.store": "offsets are committed when a batch is",
    "isolation.level": "only committed records are read",
    "auto.offset.reset": "every range is read from its exact start",
    "enable.partition.eof": "the ends of ranges are found with it",
    "enable.idempotence": "writes are always idempotent",
    "enable.gapless.guarantee": "writes are always idempotent",
    "acks": "writes are always acknowledged by all in-sync replicas",
    "request.required.acks": "writes are always acknowledged by all in-sync replicas",
    "transactional.id": "set processing_guarantee instead",
    "partitioner": "keys go to the partitions that Kafka's default (murmur2) gives them",
    "message.timeout.ms": "set patience_seconds instead",
    "delivery.timeout.ms": "set patience_seconds instead",
    "delivery.report.only.error": "only failures are reported",
    "error_cb": "errors are raised where they matter",
    "on_delivery": "errors are raised where they matter",
    "logger": "client logs go to the Python logger crossstream.kafka",
}
"""Client settings that the engine sets itself, and why."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """A picklable description of a Kafka cluster.

    ``bootstrap_servers`` is ``host:port[,host:port…]``. ``settings`` (TLS, SASL, tuning) go to every
    client that is opened, under librdkafka's names; those in `RESERVED` are refused. A broker that is
    away is waited for, ``patience_seconds`` at a time, before an error is raised.

    Raises `ConfigError` CS-201: a reserved setting, no servers, no patience.
    """

    bootstrap_servers: str
    settings: Mapping[str, object] = field(default_factory=dict, hash=False, repr=False)
    patience_seconds: float = 60.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))
        if not self.bootstrap_servers.strip():
            raise refuse("CS-201", "no bootstrap servers were given", "pass host:port of one or more brokers")
        if not self.patience_seconds > 0:
            step = "pass how many seconds to wait for a broker that is away; more than 0"
            raise refuse("CS-201", f"patience_seconds is {self.patience_seconds}", step)
        for name in self.settings:
            if name in RESERVED:
                what = f"the Kafka setting {name!r} cannot be set: {RESERVED[name]}"
                raise refuse("CS-201", what, "remove it from the Kafka settings", setting=name)
