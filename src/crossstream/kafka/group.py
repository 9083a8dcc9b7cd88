"""What a consumer group has committed: offsets and the notes beside them, read and written without being a member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from crossstream.kafka.client import UNANSWERED, Complaints, open_committer
from crossstream.kafka.settings import KafkaSettings

POLL_SECONDS = 0.002
SLICE_SECONDS = 0.5
REFUSED = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
"""What the search for the group's coordinator may end with; then no commit is ever answered."""


class Committed(NamedTuple):
    """The next offset to read, and what its committer noted beside it."""

    offset: int
    note: str


@dataclass(slots=True)
class Group:
    """Commits offsets for the consumer group ``name``, which has no members, and reads what was committed.

    It takes a consumer: the admin client's request for the same ends the process with a failed assertion where a
    connection breaks at the wrong moment (librdkafka issue 4605).
    """

    connection: KafkaSettings
    name: str
    complaints: Complaints
    _consumer: Consumer | None = None
    _answers: list[KafkaError | None] = field(default_factory=list)

    def commit(self, marks: Sequence[KafkaPartition], timeout: float) -> None:
        """Returns when it is done. Raises `KafkaException`: why it was refused, or that no answer came in time."""
        consumer = self._opened()
        self._answers.clear()
        consumer.commit(offsets=list(marks), asynchronous=True)
        deadline = monotonic() + timeout
        while not self._answers:
            is_late = monotonic() > deadline
            refusal = KafkaError(KafkaError._TIMED_OUT) if is_late else self._refusal(POLL_SECONDS)
            if refusal is not None:
                self.close()  # the answer to this commit is not to be taken for that to the next
                raise KafkaException(refusal)
        error = self._answers.pop()
        if error is not None:
            if error.code() in UNANSWERED:
                self.close()
            raise KafkaException(error)

    def committed(self, partitions: Sequence[KafkaPartition], timeout: float) -> list[KafkaPartition]:
        """What was committed last, with its metadata; an offset below 0: nothing. Raises as `commit` does.

        It waits in slices, and looks for a refusal in between: the client does not give up for one.
        """
        consumer = self._opened()
        deadline = monotonic() + timeout
        while True:
            left = max(0.0, deadline - monotonic())
            try:
                found = consumer.committed(list(partitions), min(left, SLICE_SECONDS))
                break
            except KafkaException as failed:
                refusal = self._refusal(0)
                is_late = failed.args[0].code() == KafkaError._TIMED_OUT
                if refusal is None and is_late and left > SLICE_SECONDS:
                    continue
                self.close()
                raise failed if refusal is None else KafkaException(refusal) from failed
        wrong = [mark.error for mark in found if mark.error is not None]
        if wrong:
            raise KafkaException(wrong[0])
        return found

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = open_committer(self.connection, self.name, self.complaints, self._answered)
        return self._consumer

    def _refusal(self, seconds: float) -> KafkaError | None:
        event = self._opened().poll(seconds)
        error = None if event is None else event.error()
        return error if error is not None and error.code() in REFUSED else None

    def _answered(self, error: KafkaError | None, marks: Sequence[KafkaPartition]) -> None:
        refused = [mark.error for mark in marks if mark.error is not None]
        self._answers.append(error or (refused[0] if refused else None))
