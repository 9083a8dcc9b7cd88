"""What is in topics of a batch that did not come to its commit: on Kafka some of it, in file topics nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.publishing import Publishing
from crossstream.filetopics import FileTopics
from crossstream.kafka import KafkaConnection
from crossstream.kafka.log import KafkaLog
from crossstream.storage.commit_log import BatchLog
from crossstream.topics import TopicConnection, TopicPartition
from tests.faults.one_process import application
from tests.kafka.fixtures import new_topic, records

pytestmark = pytest.mark.kafka

TEXT = serdes.string()


@pytest.mark.parametrize("on_kafka", [True, False], ids=["kafka", "files"])
def test_a_batch_that_fails_before_its_commit(
    log: KafkaLog, broker: KafkaConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_kafka: bool
) -> None:
    names = [new_topic(log) for _ in range(2)]
    there: TopicConnection = broker if on_kafka else FileTopics(tmp_path / "topics")
    if not on_kafka:
        for name in names:
            there.log().create_topic(name, 1)
    place: dict[str, Any] = {"topics_dir": tmp_path / "topics"}
    config = cs.StreamsConfig(
        application_id=names[0],
        state_dir=tmp_path / "state",
        **({"bootstrap_servers": broker.bootstrap_servers} if on_kafka else place),
    )
    writer = there.writer()
    writer.write(names[0], records((b"k", b"v")), [0])
    writer.flush()
    writer.close()
    builder = cs.StreamsBuilder()
    rows = builder.table(names[0], cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    rows.to_stream().to(names[1], cs.Produced(key=TEXT, value=TEXT))

    def written() -> int:
        at = TopicPartition(names[1], 0)
        return there.log().end_offsets([at])[at]

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, application(builder.build(), config) as running:
        patch.setattr(Publishing, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            running.run_until(running.inputs.end_offsets())
    assert written() == (1 if on_kafka else 0)
    assert BatchLog(tmp_path / "state").last_commit() is None
    assert dict(cs.open_store(tmp_path / "state", "rows").all()) == {}
    with application(builder.build(), config) as running:
        running.run_until(running.inputs.end_offsets())
    assert written() == (2 if on_kafka else 1)
    assert dict(cs.open_store(tmp_path / "state", "rows").all()) == {"k": "v"}
