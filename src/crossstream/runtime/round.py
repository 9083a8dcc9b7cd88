"""One task: a round of a plan over one state partition, or over a share of the source partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from crossstream.catalog.runners import RUNNERS
from crossstream.columns.changes import Changes
from crossstream.columns.order import without_tags
from crossstream.errors import CrossStreamError, SerdeError
from crossstream.operators.source.runner import Decoder, Reader
from crossstream.planning.plan import Exchange, Plan, StoreDef
from crossstream.planning.steps import ReadStep
from crossstream.runtime.announced import Announced
from crossstream.runtime.spreading import before_batch, crowded, spread
from crossstream.runtime.times import Times
from crossstream.serdes.errors import UNDECODABLE
from crossstream.storage.compaction import Segment
from crossstream.storage.files import BufferList, Written
from crossstream.storage.log_entries import SourceRange
from crossstream.storage.store import StoreUpdate, Version
from crossstream.tables.global_tables import History
from crossstream.task.batch import Batch, Input, Output, Report, Settings, pack_report
from crossstream.task.failures import Failures
from crossstream.task.runner import OpenStore, Runner, Task
from crossstream.task.shuffle_codec import (
    FRAME,
    REPORT,
    Arrived,
    Block,
    Hashes,
    all_at_once,
    in_order,
    in_slices,
    route,
)
from crossstream.task.stores import FolderStores, GlobalTables, MemoryStores, grow, unreadable_row

Outgoing = tuple[int, list[Block]]
"""A state partition and the blocks for it."""
Sent = dict[str, list[bytes]]
"""Records for the driver, by the node that collects them."""


@dataclass(slots=True)
class _Opened:
    """A store partition of a task: as it was before, and what of this batch is in files already.

    ``base``: what the batch adds its rows to: ``before``, with the rows of hot keys where they belong now.
    """

    store: OpenStore
    before: Version
    base: Version
    early: list[Segment] = field(default_factory=list)


@dataclass(slots=True)
class RoundTask:
    """Runs one round. ``sender``: the task's own number (its state partition after round 0).

    ``global_tables``: the global tables that the steps may look up. ``pause`` is called between pieces of the work.
    ``near``: all rounds run in this process, and share one ``report``.
    """

    plan: Plan
    batch: Batch
    number: int
    sender: int
    stores: MemoryStores | FolderStores
    output: Output
    settings: Settings
    input: Input | None = None
    global_tables: GlobalTables | None = None
    pause: Callable[[], None] = lambda: None
    near: bool = False
    report: Report = field(default_factory=Report)
    _opened: dict[str, _Opened] = field(default_factory=dict)
    _outbox: dict[int, list[Block]] = field(default_factory=dict)
    _sequence: int = 0
    _runners: list[Runner] = field(default_factory=list)
    _readers: dict[str, list[Runner]] = field(default_factory=dict)
    _leaving: Mapping[str, Sequence[tuple[int, Exchange]]] = field(default_factory=dict)
    _failures: Failures = field(init=False)
    _times: Times = field(init=False)
    _announced: Announced = field(init=False)
    _hashes: Hashes = None

    def read(self, spans: Sequence[SourceRange]) -> Iterator[Outgoing]:
        """Round 0: reads the ranges and sends what goes to later rounds."""
        assert self.input is not None
        started = time.perf_counter()
        self._set_up()
        steps = {step.node: step for step in self.plan.parts[0].steps if isinstance(step, ReadStep)}
        nodes = self.plan.topology.nodes
        readers = {
            span: Reader(nodes[span.node], steps[span.node], span, self._failures, self._announced.note)
            for span in spans
        }
        for span, records in self.input.read(spans, self.settings.read_rows):
            changes = readers[span].changes(records)
            if changes is not None:
                self._push(steps[span.node].output or "", changes)
                yield from self._sent()
        yield from self._finish()
        yield from self._close(started)

    def run(self, blocks: Iterable[Block]) -> Iterator[Outgoing]:
        """A later round: takes the blocks of one state partition."""
        started = time.perf_counter()
        self._set_up()
        blobs = in_order(self._addressed(blocks))
        self._announced.take(blobs)
        self._times.take(blobs)
        for number, (hashes, arrived) in enumerate(self._arrived(blobs)):
            self._hashes = hashes
            if number:
                self._put_away()
            for exchange, changes in arrived.items():
                self._push(self.plan.exchanges[exchange].arrives, self._decoded(exchange, changes))
            yield from self._sent()
            yield from self._finish()
        yield from self._close(started)

    def _arrived(self, blobs: dict[int, list[bytes]]) -> Iterator[tuple[Hashes, Arrived]]:
        """What arrived, in slices of the keys if all steps of the round can be taken so."""
        if all(runner.by_key() for runner in self._runners):
            return in_slices(blobs, self.plan.exchanges, self.batch.bits)
        return all_at_once(blobs, self.plan.exchanges)

    def _decoded(self, exchange: int, changes: Changes) -> Changes:
        """With values decoded that the reading task left; where bad records do not stop all, it left none."""
        step = self.plan.exchanges[exchange].undecoded
        if step is None or self.settings.decoding.action != "fail":
            return changes
        return Decoder(self.plan.topology[step.node], step, self._failures).decoded(changes, ("value",))

    def _put_away(self) -> None:
        """Between two slices: what the stores got goes into files, because no step looks it up again."""
        for opened in self._opened.values():
            fresh = opened.store.view.memtable
            if fresh is not None and fresh.rows:
                save = self.stores.saver(opened.store.definition, self.sender, self.batch.id)
                opened.early.append(save(fresh))
                opened.store.view.memtable = None

    def _addressed(self, blocks: Iterable[Block]) -> list[Block]:
        """The blocks for this round; the others are forwarded unchanged."""
        mine = []
        for block in blocks:
            if block[0] == self.number and block[1] >= 0:
                mine.append(block)
            else:
                self._outbox.setdefault(self.sender % self.batch.partitions, []).append(block)
        return mine

    def _set_up(self) -> None:
        self._times = Times(self.plan, self.batch, self.near)
        self._announced = Announced(self.plan, self.batch, self.near)
        self._failures = Failures(
            self.plan.topology,
            self.batch,
            self.report,
            self.settings.decoding,
            self.settings.processing,
            self.output.write,
            self.output.record_limit,
        )
        self.global_tables = self.global_tables or GlobalTables(self.plan, self.batch, self.stores)
        task = Task(
            self.plan,
            self.batch,
            self.report,
            self._failures,
            self.settings,
            self.output,
            self._store,
            self._to_driver,
            self._to_file,
            self.global_tables,
            self._record,
            self._push,
            self.sender,
            self._announced.of,
            lambda: self._hashes,
        )
        part = self.plan.parts[self.number]
        for step in part.steps:
            if isinstance(step, ReadStep):
                continue
            runner = RUNNERS[type(step)](task, step)
            self._runners.append(runner)
            for flow in dict.fromkeys(step.inputs):
                self._readers.setdefault(flow, []).append(runner)
        self._leaving = part.leaving

    def _store(self, name: str) -> OpenStore:
        if name not in self._opened:
            definition = self.plan.stores[name]
            manifest = self.batch.versions.get(name, {}).get(self.sender)
            before = self.stores.open(definition, self.sender, manifest)
            version = self._spread(definition, before)
            store = OpenStore(
                definition,
                version.snapshot(),
                version.stream_time,
                version.horizon,
                version.clock,
                self._times.timeline(name, version),
                version.marks,
            )
            self._opened[name] = _Opened(store, before, version)
        return self._opened[name].store

    def _spread(self, definition: StoreDef, version: Version) -> Version:
        """The version with the rows of hot keys that belong here; those that do not, without."""
        if not self.batch.hot or not (definition.spread or definition.copies):
            return version
        assert self.global_tables is not None
        # Nothing is written through the stores of global tables: other state partitions are as they were before.
        other = partial(before_batch, self.plan, self.batch, self.global_tables.stores)
        save = self.stores.saver(definition, self.sender, self.batch.id)
        return spread(definition, version, self.batch, self.sender, other, save)

    def _record(self, store: str, history: History) -> None:
        """Keeps the changes of a global table until the batch is done."""
        definition = self.plan.stores[store]
        ref = self.stores.record(definition, self.sender, self.batch.id, history.run)
        self.report.histories.setdefault(store, {})[self.sender] = ref
        self.report.retired.setdefault(f"{store}/{self.sender}", []).append(ref.file)

    def _push(self, flow: str, changes: Changes) -> None:
        """Gives a piece of a flow to every step of this round that reads it, and to the shuffle."""
        others = without_tags(changes)
        for runner in self._readers.get(flow, ()):
            try:
                runner.accept(flow, changes if runner.takes_tags() else others)
            except CrossStreamError as error:
                self._locate(error, runner)
                raise
        for number, exchange in self._leaving.get(flow, ()):
            self._send(number, exchange, self._writable(others, exchange))

    def _send(self, number: int, exchange: Exchange, changes: Changes) -> None:
        self._times.note(exchange.arrives, changes)
        for pid, blob in self._routed(changes, exchange):
            block = (exchange.to_round, number, self.sender, self._sequence, blob)
            self._outbox.setdefault(pid, []).append(block)
            self._sequence += 1

    def _locate(self, error: CrossStreamError, runner: Runner) -> None:
        """Names the operator in an error, unless a step below it has; raises another one where that says more."""
        found = self._of_state(error)
        if found.where.get("operator") in (None, runner.step.node):
            found.at(**self.plan.topology[runner.step.node].where)
        if found is not error:
            raise found from found.__cause__

    def _of_state(self, error: CrossStreamError) -> CrossStreamError:
        """The error; of bytes that were no record of this batch but a row that was kept, one that says so."""
        if error.code != UNDECODABLE:
            return error
        kept = [(one.store.definition, one.store.before()) for one in self._opened.values()]
        global_tables = () if self.global_tables is None else self.global_tables.opened()
        where = {name: error.where.get(name) for name in ("operator", "line")}
        return unreadable_row(chain(kept, global_tables), error.where.get("serde"), **where) or error

    def _writable(self, changes: Changes, exchange: Exchange) -> Changes:
        """Without rows that cannot be written, if they do not stop all."""
        if self.settings.processing.action == "fail":
            return changes
        node = self.plan.topology[exchange.node]
        changes = self._failures.writable(node, changes, "key", exchange.key)
        return self._failures.writable(node, changes, "value", exchange.value)

    def _routed(
        self, changes: Changes, exchange: Exchange
    ) -> Iterator[tuple[int, bytes | BufferList | Changes]]:
        place = partial(self._failures.place, self.plan.topology[exchange.node])
        batch = self.batch
        try:
            hot = batch.hot_in(exchange.spread)
            yield from route(
                changes, exchange, batch.partitions, batch.bits, self.sender, place, self.near, hot
            )
        except SerdeError as error:
            refusal = self._unserializable(changes, exchange, error)
            raise self._of_state(refusal) from refusal.__cause__
        except CrossStreamError as error:
            raise error.at(**self.plan.topology[exchange.node].where) from error.__cause__

    def _unserializable(self, changes: Changes, exchange: Exchange, error: SerdeError) -> CrossStreamError:
        try:
            changes.key.wire(exchange.key)
            part, serde = "value", exchange.value
        except SerdeError:
            part, serde = "key", exchange.key
        return self._failures.unserializable(self.plan.topology[exchange.node], changes, part, serde, error)

    def _to_driver(self, node: str, blob: bytes) -> None:
        """Records that the driver wants, named by the node that collects them."""
        name = node.encode()
        packed = len(name).to_bytes(4, "big") + name + blob
        block = (self.plan.rounds, FRAME, self.sender, self._sequence, packed)
        self._outbox.setdefault(self.sender % self.batch.partitions, []).append(block)
        self._sequence += 1

    def _to_file(self, node: str, data: Written) -> None:
        """Records that executors read, named by the node whose DataFrame they are in."""
        name = self.stores.stage(f"frame-{self.batch.id}", data)
        if name is not None:
            self.report.frame_files.append((name, node))

    def _finish(self) -> Iterator[Outgoing]:
        """The results that the steps have when all they take has come, or all of a slice."""
        for runner in self._runners:
            try:
                for out, changes in runner.finish():
                    self._push(out, changes)
                    yield from self._sent()
            except CrossStreamError as error:
                self._locate(error, runner)
                raise
        yield from self._sent()

    def _close(self, started: float) -> Iterator[Outgoing]:
        """Saves the stores, finishes the output, reports."""
        for pid, block in self._times.blocks(self.sender, self._sequence):
            self._outbox.setdefault(pid, []).append(block)
        for pid, block in self._announced.blocks(self.sender, self._sequence):
            self._outbox.setdefault(pid, []).append(block)
        yield from self._sent()
        self._save()
        self.output.finish()
        self.report.seconds[f"round {self.number}"] = time.perf_counter() - started
        if not self.near:
            block = (self.number + 1, REPORT, self.sender, self._sequence, pack_report(self.report))
            yield self.sender % self.batch.partitions, [block]

    def _sent(self) -> Iterator[Outgoing]:
        sent, self._outbox = self._outbox, {}
        yield from sent.items()
        self.pause()

    def _save(self) -> None:
        for name, opened in self._opened.items():
            store = opened.store
            update = StoreUpdate(
                store.view.memtable,
                store.stream_time,
                self.batch.id,
                opened.early,
                store.horizon,
                store.clock,
                None if store.timeline is None else store.sources,
                store.marks,
            )
            after = grow(self.stores, store.definition, self.sender, opened.base, update)
            if after is not opened.before:
                self._saved(name, opened, after)
                if store.definition.spread:
                    self._note_crowds(name, after)
            self.report.state[f"{name}/{self.sender}"] = (after.rows, after.size)
            if name in self.plan.timers:
                self.report.due[f"{name}/{self.sender}"] = after.clock

    def _saved(self, name: str, opened: _Opened, after: Version) -> None:
        version = opened.before
        if after.name is not None:
            self.report.manifests.setdefault(name, {})[self.sender] = after.name
            written = sorted(after.files() - version.files())
            self.report.written[f"{name}/{self.sender}"] = [*written, after.name]
            early = {piece.ref.file for piece in opened.early if piece.ref is not None}
            retired = sorted((version.files() | opened.base.files() | early) - after.files())
            if version.name is not None:
                retired.append(version.name)
            self.report.retired.setdefault(f"{name}/{self.sender}", []).extend(retired)

    def _note_crowds(self, name: str, after: Version) -> None:
        """Reports the keys that have many rows here, and are not hot yet."""
        found = crowded(after, self.settings.hot_rows, self.batch.hot_in(name))
        if found:
            self.report.crowded[name] = {**self.report.crowded.get(name, {}), **found}
