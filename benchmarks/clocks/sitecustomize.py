"""Clocks for `crossstream bench where`: core time of the phases of a batch, in the processes of an application.

Python imports a module of this name when it starts. With this folder in PYTHONPATH and `CROSSSTREAM_CLOCKS` naming
another one, functions of the package are wrapped as their modules are imported: each phase has the core time of the
thread that is in it and in no other phase within it. The package itself has no clocks, so it pays for none.

A process keeps its times in a file of doubles, one for each of `PHASES`, that can be read at any time.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from typing import Any

PHASES = (
    "read", "decode", "functions", "look up", "operators", "shuffle", "write state", "encode", "produce"
)  # fmt: skip
FOLDER = os.environ.get("CROSSSTREAM_CLOCKS")

STEPS = {
    "crossstream.kafka.consumer": [("KafkaReader.read_many", "read")],
    "crossstream.serdes.calls": [
        *((name, "decode") for name in ("decode_objects", "decode_series", "decode_checked", "nulls")),
        *((name, "encode") for name in ("encode_objects", "encode_series")),
    ],
    "crossstream.columns.functions": [("select", "functions")],
    "crossstream.columns.evaluate": [("call_rows", "functions")],
    "crossstream.storage.snapshot": [("Snapshot.lookup", "look up"), ("Snapshot.scan", "look up")],
    "crossstream.task.shuffle_codec": [
        (name, "shuffle") for name in ("route", "pack", "unpack", "in_slices", "all_at_once", "in_order")
    ],
    "crossstream.spark.shuffle_spill": [("spilled", "shuffle"), ("loaded", "shuffle")],
    "crossstream.task.stores": [("grow", "write state"), ("FolderStores.open", "write state")],
    "crossstream.kafka.producer": [("KafkaWriter.write", "produce"), ("KafkaWriter.flush", "produce")],
    "crossstream.runtime.round": [("RoundTask.read", "operators"), ("RoundTask.run", "operators")],
}
"""By module: what is wrapped, and the phase it belongs to."""


class Clocks:
    """The times of this process."""

    def __init__(self) -> None:
        self.process = 0
        self.local = threading.local()

    def add(self, phase: int, seconds: float) -> None:
        if self.process != os.getpid():  # a worker was forked
            self.process = os.getpid()
            with (Path(str(FOLDER)) / f"{self.process}.clocks").open("w+b") as file:
                file.truncate(8 * len(PHASES))
                self.times = mmap.mmap(file.fileno(), 8 * len(PHASES))
        (before,) = struct.unpack_from("d", self.times, 8 * phase)
        struct.pack_into("d", self.times, 8 * phase, before + seconds)

    def enter(self, phase: int) -> None:
        self._charge()
        self.local.stack.append(phase)

    def leave(self) -> None:
        self._charge()
        self.local.stack.pop()

    def _charge(self) -> None:
        """What passed since the last look belongs to the phase that this thread is in."""
        now, local = time.thread_time(), self.local
        if not hasattr(local, "stack"):
            local.stack = []
        elif local.stack:
            self.add(local.stack[-1], now - local.since)
        local.since = now


CLOCKS = Clocks()


def clocked(function: Any, phase: int) -> Any:
    """The function with a clock; also where it is a generator, which works between two of its items."""

    @wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        CLOCKS.enter(phase)
        try:
            found = function(*arguments, **named)
        finally:
            CLOCKS.leave()
        return steps(found, phase) if hasattr(found, "gi_frame") else found

    return called


def steps(items: Iterator[Any], phase: int) -> Iterator[Any]:
    while True:
        CLOCKS.enter(phase)
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            CLOCKS.leave()
        yield item


class Wrapping(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules of `STEPS` as ever, and wraps before anything gets hold of their functions."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in STEPS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader_state, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> None:
        """As ever."""

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader_state.exec_module(module)
        for name, phase in STEPS[module.__name__]:
            owner, _, attribute = f".{name}".rpartition(".")
            place = getattr(module, owner[1:]) if owner[1:] else module
            setattr(place, attribute, clocked(getattr(place, attribute), PHASES.index(phase)))


if FOLDER:
    sys.meta_path.insert(0, Wrapping())
