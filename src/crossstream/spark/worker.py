"""What runs inside Spark's Python workers.

A worker lives from batch to batch. `_states` is where it keeps things: the plan of each application run, open stores,
open consumers and producers.
"""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from crossstream.graph.nodes import FrameSource
from crossstream.runtime.round import Outgoing
from crossstream.runtime.worker import Job, WorkerState, task_of
from crossstream.spark.changes import BEFORE_ALL, Netting
from crossstream.spark.frames import FrameInput, frame_spans
from crossstream.spark.shuffle_spill import BLOCKS
from crossstream.storage.resident import give_back
from crossstream.task.batch import Batch

BATCH_PROPERTY = "crossstream.batch"

_batches = msgspec.json.Decoder(Batch)
_states: dict[str, WorkerState] = {}
_FRAME_SENDERS = 1_000_000
"""Senders of blocks that read DataFrames are numbered from here."""
_LIMIT = 4
"""Application runs a worker remembers; older ones are closed."""


def state_for(run_id: str, load: Callable[[], bytes]) -> WorkerState:
    """What this worker keeps for a run; made when the first task of it comes."""
    if run_id not in _states:
        while len(_states) >= _LIMIT:
            _states.pop(next(iter(_states))).close()
        job: Job = pickle.load(io.BytesIO(load()))
        _states[run_id] = opened(job)
        _states[run_id].connect()
        gc.freeze()  # Spark collects garbage after every task: it need not look at what stays
    return _states[run_id]


def opened(job: Job) -> WorkerState:
    state = WorkerState.of(job)
    state.pause = partial(give_back, (str(state.stores.root.here), BLOCKS))
    return state


def frame_round(state: WorkerState, batch: Batch, rows: Iterable[pa.RecordBatch]) -> Iterator[Outgoing]:
    """Round 0 of the DataFrame sources in one task."""
    context = TaskContext.get()
    assert context is not None
    share = context.partitionId()
    topology = state.job.plan.topology
    spans = frame_spans(topology, batch.frames, share)
    changing: dict[str, Netting] = {}
    source = FrameInput(rows, spans, batch.clock, changing)
    task = task_of(state, state.job.plan, batch, 0, _FRAME_SENDERS + share, source)
    for node in topology.each(FrameSource):
        if node.changes:
            newest = batch.frame_versions.get(node.name, BEFORE_ALL)
            changing[node.name] = Netting(node, task.report, newest)
    yield from task.read(list(spans.values()))


def send_nothing(index: int, _: Iterable[object]) -> Iterator[tuple[int, bytes]]:
    """A task that starts its worker and sends an empty block."""
    yield index, b""


def current_batch() -> Batch:
    """The batch of the running task, from the job's local property."""
    context = TaskContext.get()
    assert context is not None
    text = context.getLocalProperty(BATCH_PROPERTY)
    assert text is not None
    return _batches.decode(text)
