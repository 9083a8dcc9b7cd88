"""Results into Kafka exactly once: each batch is one transaction, and leaves a mark with its number (decision 0036).

1. Tasks keep what they write in files of the state (`runtime/staged_records.py`).
2. When the batch has run, the driver writes the files to Kafka in one transaction (`TransactionPublisher`). An offset
   of the group ``<application_id>.published``, in the same transaction, has the number of the batch in its metadata.
3. While brokers store that, the driver notes in the batch log what it publishes, with the commit of the batch.
4. When both are done it commits the transaction, and then the batch.

A start that finds no note runs the batch again: its transaction was not committed, and is ended. A start that finds a
note without its commit looks at the mark: if it has the number of the batch, the transaction was committed, else the
files are published again. So the batch never runs again after step 3, and readers that read committed records see all
of a batch or nothing of it.

A transaction whose end was not answered may be committed or not. librdkafka cannot find out, and could end the next one
instead. So after any doubt another producer takes over: its ``init_transactions`` ends what is open, and fences
producers of earlier runs; then the mark is read again. Source: KIP-98, KIP-447; KIP-890 for the doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.kafka import errors
from crossstream.kafka.client import Complaints, logger, open_committer
from crossstream.kafka.ports import WritingClient
from crossstream.kafka.producer import Chosen, KafkaWriter
from crossstream.kafka.settings import KafkaSettings
from crossstream.once import BatchMark, mark_as_text, mark_of_text
from crossstream.runtime.staged_records import PARTITION
from crossstream.storage.log_entries import StagedFrame

LONGEST_TRANSACTION_MS = 900_000
"""The longest that brokers allow by default (``transaction.max.timeout.ms``)."""
SHORTEST_TRANSACTION_MS = 60_000
RETRY_SECONDS = 0.5
ANSWER_SECONDS = 5.0
"""The least time that a producer waits for an answer, before another one takes over."""
GONE = frozenset(
    {
        KafkaError._FENCED,
        KafkaError._FATAL,
        KafkaError._PURGE_QUEUE,  # what was in the queue of such a producer
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)
"""Errors of a producer that cannot continue: another one has its name, perhaps of an earlier run that continues."""
LATE_SECONDS = 1.0
"""How late a call may return after its timeout."""


class _Writer(KafkaWriter):
    """Writes in the transactions of one producer."""

    def __init__(self, connection: KafkaSettings, name: str, owns: Callable[[], None] = lambda: None) -> None:
        super().__init__(connection)
        self._name = name
        self._owns = owns

    def open(self) -> WritingClient:
        """Opens the producer: ends what an earlier one with this name left open, and lets that write no more.

        A successor takes the state before it opens its own producer. So if the state is still ours afterwards, that
        one was not shut out, and it shuts out this one when it comes.
        """
        if self._producer is None:
            self._owns()
            patience_ms = round(self._connection.patience_seconds * 1000)
            longest = min(max(SHORTEST_TRANSACTION_MS, patience_ms), LONGEST_TRANSACTION_MS)
            producer = self._opened({"transactional.id": self._name, "transaction.timeout.ms": longest})
            answered(producer.init_transactions, seconds=answer_seconds(self._connection))
            self._owns()
            self._producer = producer
        return self._producer

    def fit(self, topics: Iterable[str]) -> None:
        """Before a transaction: opens another producer where a topic takes smaller batches or larger records."""
        for topic in topics:
            self._fit(topic)

    def write(self, topic: str, records: pa.RecordBatch, partitions: Chosen | None = None) -> None:
        self._pass_on(self.open(), topic, records, partitions)

    def store(self) -> None:
        """Returns when all records are stored; raises `KafkaException` if for some time none is."""
        producer = self.open()
        left = len(producer)
        while left and (rest := producer.flush(answer_seconds(self._connection))):
            self._check(producer)
            if rest >= left:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            left = rest

    def doubt(self, failed: Exception) -> KafkaError | None:
        """Why another producer has to take over; None: it would fail as well.

        A client that is fenced raises while it calls back, which Python reports as a `SystemError`.
        """
        if self._complaints.denied is not None:
            return None
        cause = failed.__cause__
        error = cause.args[0] if isinstance(cause, KafkaException) else None
        if error is None and self._failure is not None:
            error = self._failure.error
        return error if error is not None and error.code() in GONE else None

    def check(self) -> None:
        """Raises what the producer's threads reported."""
        if self._producer is not None:
            self._check(self._producer)


def answer_seconds(connection: KafkaSettings) -> float:
    """How long a client waits for one answer: if it has lost the cluster, another one finds it (decision 0028)."""
    return max(ANSWER_SECONDS, connection.patience_seconds / 4)


def answered(call: Callable[..., Any], *arguments: Any, seconds: float) -> None:
    """Calls a producer; raises `KafkaException` if it does not return in time.

    After a broker was killed and started again, ``send_offsets_to_transaction`` was seen to wait for minutes, whatever
    its timeout says. So it waits in a thread that may be left behind; the next producer fences this one.
    """
    ends: SimpleQueue[Exception | None] = SimpleQueue()

    def run() -> None:
        try:
            call(*arguments, seconds)
        except Exception as error:
            ends.put(error)
        else:
            ends.put(None)

    Thread(target=run, name="crossstream transaction", daemon=True).start()
    try:
        error = ends.get(timeout=seconds + LATE_SECONDS)
    except Empty:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
    if error is not None:
        raise error


@dataclass(slots=True)
class TransactionPublisher:
    """Publishes batches, one transaction each. ``topic``: the one whose first partition has the mark.

    ``owns`` raises if another process has taken the state.
    """

    connection: KafkaSettings
    application: str
    owns: Callable[[], None] = lambda: None
    _writer: _Writer | None = None
    _group: Consumer | None = None
    _known: BatchMark | None = None
    _topic: str = ""
    _open: WritingClient | None = None

    def begin(self, topic: str, state: str, newest: int, *, restarts: bool = False) -> None:
        """Before the first batch of a run: marks the state, so that a mark that is missing later has been lost.

        ``newest``: the last batch of the state. A mark of other state, or of a batch before it, gives way; one of a
        later batch only if the application ``restarts`` from older state. Raises `SinkError` (CS-651 to CS-654) if the
        brokers do not answer or refuse, `StateError` CS-742 if the state is older than the results in Kafka.
        """
        self._topic = topic

        def once() -> None:
            mark = self._ready(state)
            if mark is not None and mark.state == state and mark.batch > newest and not restarts:
                raise _older(self.application, newest, mark.batch)
            if mark is None or mark.state != state or mark.batch != newest:
                self._transaction(self._mark(state, newest), ())

        self._attempt(once)

    def publish(
        self,
        topic: str,
        state: str,
        batch: int,
        staged: Sequence[StagedFrame],
        read: Callable[[str], pa.Buffer],
        note: Callable[[], None] = lambda: None,
    ) -> None:
        """Writes what a batch has staged, unless its transaction was committed before. ``read``: a staged file.

        ``note`` is called once, in another thread, and has returned before the transaction is committed. If it raises,
        the transaction is aborted. Raises `SinkError` CS-651 to CS-654, `StateError` CS-743 if the mark
        is lost, and what ``note`` raises.
        """
        self._topic = topic
        with ThreadPoolExecutor(1, "crossstream note") as beside:
            noted = beside.submit(note)

            def once() -> None:
                mark = self._ready(state)
                if mark is None or mark.state != state:
                    raise _lost(self.application, topic, batch)
                if mark.batch < batch:
                    self._transaction(self._mark(state, batch), staged, read, noted.result)
                noted.result()

            self._attempt(once)

    def close(self) -> None:
        """Closes the producer; no transaction of it is open."""
        if self._writer is not None:
            self._writer.close()
        if self._group is not None:
            self._group.close()
        self._writer = self._group = self._known = None

    def _attempt(self, act: Callable[[], Any]) -> Any:
        """What ``act`` returns; with another producer after each doubt, while the patience lasts."""
        deadline = monotonic() + self.connection.patience_seconds
        while True:
            try:
                return act()
            except (KafkaException, CrossStreamError, SystemError) as failed:
                error = failed.args[0] if isinstance(failed, KafkaException) else None
                if error is None and self._writer is not None:
                    error = self._writer.doubt(failed)
                if error is None:
                    self._abort()
                self._abandon()
                if error is None:
                    raise
                if errors.is_denial(error) or monotonic() >= deadline:
                    what = f"the results of a batch were not published: {error.str()}"
                    raise errors.not_written(what, error) from failed
                logger.warning("a transaction is in doubt, and another producer takes over: %s", error.str())
                sleep(RETRY_SECONDS)

    def _ready(self, state: str) -> BatchMark | None:
        """The mark, read again by each producer; None: there is none."""
        if self._writer is None:
            self._writer = _Writer(self.connection, f"{self.application}-0", self.owns)
        self._writer.open()
        if self._known is None or self._known.state != state:
            self._known = self._read()
        return self._known

    def _read(self) -> BatchMark | None:
        wanted = [KafkaPartition(self._topic, 0)]
        [found] = self._committer().committed(wanted, timeout=answer_seconds(self.connection))
        if found.error is not None:
            raise KafkaException(found.error)
        if found.offset == OFFSET_INVALID:
            return None
        return mark_of_text(found.metadata or "", self.application, "")

    def _mark(self, state: str, batch: int) -> BatchMark:
        """The mark of a batch: one for all sinks of the application."""
        return BatchMark(self.application, "", state, batch)

    def _committer(self) -> Consumer:
        if self._group is None:
            name = f"{self.application}.published"
            self._group = open_committer(self.connection, name, Complaints(), lambda *_: None)
        return self._group

    def _transaction(
        self,
        mark: BatchMark,
        staged: Sequence[StagedFrame],
        read: Callable[[str], pa.Buffer] | None = None,
        ready: Callable[[], object] = lambda: None,
    ) -> None:
        """``ready`` is called before the commit."""
        assert self._writer is not None
        self._writer.fit({frame[1] for frame in staged})
        producer, seconds = self._writer.open(), answer_seconds(self.connection)
        producer.begin_transaction()
        self._open = producer
        for name, topic, *_ in staged:
            assert read is not None
            for records in pa.ipc.open_stream(read(name)):
                self._writer.write(topic, records, records.column(PARTITION).to_numpy())
        offsets = [KafkaPartition(self._topic, 0, 0, mark_as_text(mark))]
        try:
            self._writer.store()
            group = self._committer().consumer_group_metadata()
            answered(producer.send_offsets_to_transaction, offsets, group, seconds=seconds)
            ready()
            answered(producer.commit_transaction, seconds=seconds)
        except KafkaException:
            self._writer.check()  # says which record was refused
            raise
        self._known, self._open = mark, None

    def _abort(self) -> None:
        """Ends the transaction that is open, if brokers answer: until then, readers see nothing that comes after it."""
        if self._open is not None:
            with suppress(KafkaException):
                answered(self._open.abort_transaction, seconds=ANSWER_SECONDS)

    def _abandon(self) -> None:
        self._known = self._open = None
        writer, self._writer = self._writer, None
        group, self._group = self._group, None
        for client in (writer, group):
            if client is not None:
                with suppress(KafkaException):
                    client.close()


def _lost(application: str, topic: str, batch: int) -> CrossStreamError:
    return refuse(
        "CS-743",
        f"it cannot be known whether the results of batch {batch} are in Kafka: the mark of the application is gone",
        application=application,
        group=f"{application}.published",
        topic=topic,
    )


def _older(application: str, newest: int, published: int) -> CrossStreamError:
    what = f"the state ends with batch {newest}, and the results of batch {published} are in Kafka already"
    return refuse("CS-742", what, application=application, group=f"{application}.published")
