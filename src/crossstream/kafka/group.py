"""Committing offsets for a consumer group that has no members, and looking at what was committed.

It takes a consumer: the admin client's request for the same ends the process with a failed assertion where a connection
breaks at the wrong moment (librdkafka issue 4605).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from crossstream.kafka.client import Complaints, open_committer
from crossstream.kafka.cut_off import UNANSWERED

if TYPE_CHECKING:
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
    """The group ``name``, as lag tools know it."""

    connection: KafkaSettings
    name: str
    complaints: Complaints
    _consumer: Consumer | None = None
    _answers: list[KafkaError | None] = field(default_factory=list)

    def commit(self, marks: Sequence[TopicPartition], timeout: float) -> None:
        """Returns when it is done. Raises `KafkaException`: why it was refused, or that no answer came in time."""
        if self._consumer is None:
            self._consumer = open_committer(self.connection, self.name, self.complaints, self._answered)
        self._answers.clear()
        self._consumer.commit(offsets=list(marks), asynchronous=True)
        try:
            error = self._answer(self._consumer, monotonic() + timeout)
        except KafkaException:
            self.close()  # the answer to this commit is not to be taken for that to the next
            raise
        if error is not None:
            if error.code() in UNANSWERED:
                self.close()
            raise KafkaException(error)

    def committed(self, places: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        """What was committed last, with its metadata; an offset below 0: nothing. Raises as `commit` does.

        It waits in slices, and looks for a refusal in between: the client does not give up for one.
        """
        if self._consumer is None:
            self._consumer = open_committer(self.connection, self.name, self.complaints, self._answered)
        deadline = monotonic() + timeout
        while True:
            left = max(0.0, deadline - monotonic())
            try:
                found = self._consumer.committed(list(places), min(left, SLICE_SECONDS))
                break
            except KafkaException as failed:
                refusal = self._refusal(self._consumer, 0)
                if (
                    refusal is None
                    and failed.args[0].code() == KafkaError._TIMED_OUT
                    and left > SLICE_SECONDS
                ):
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

    def _answer(self, consumer: Consumer, deadline: float) -> KafkaError | None:
        while not self._answers:
            if monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            refusal = self._refusal(consumer, POLL_SECONDS)
            if refusal is not None:
                raise KafkaException(refusal)
        return self._answers.pop()

    def _refusal(self, consumer: Consumer, seconds: float) -> KafkaError | None:
        told = consumer.poll(seconds)
        error = None if told is None else told.error()
        return error if error is not None and error.code() in REFUSED else None

    def _answered(self, error: KafkaError | None, marks: Sequence[TopicPartition]) -> None:
        refused = [mark.error for mark in marks if mark.error is not None]
        self._answers.append(error or (refused[0] if refused else None))
