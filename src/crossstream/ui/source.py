"""Where the page gets what it shows: the application of this process, or a state folder; and rows of its stores."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.layout import Drawing, encoded
from crossstream.metrics.observation import Done, Observation, by_store, skew_of
from crossstream.query.by_time import ByTime
from crossstream.query.files import application_of, inspect_state, open_store
from crossstream.query.glance import Room, digest, found, found_of_key
from crossstream.query.store import StoreReader
from crossstream.query.text import parse_key, whole_number
from crossstream.recompute.reason import Why
from crossstream.serdes.windowed import Windowed
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import shown
from crossstream.storage.root import LocalRoot, StateRoot
from crossstream.ui.history import History, Rates

LAST, GRAPH, HISTORY = "ui/last.json", "ui/graph.json", "ui/history.bin"
"""Files in the state folder: what was seen last, the drawing, the course."""

WHY_SECONDS = 10.0
"""How long the topics may be read for a row."""
KEEP_SECONDS = 10.0
"""How often what is seen is written to the state folder."""
STALE_SECONDS = 30.0
"""What was written longer ago is of an application that runs no more, or without the page."""

LIVE_ROWS, FOLDER_ROWS = 200_000, 5_000_000
"""The largest store that is searched for a range or prefix: in the driver, and in a process for the page alone."""


ROWS = 100
"""The most rows of an answer."""
BATCHES = 50
"""A row is looked up in so many kept batches, the newest ones."""

_DRAWINGS, _OBSERVATIONS = msgspec.json.Decoder(Drawing), msgspec.json.Decoder(Observation)

Explain = Callable[[str, Any, "int | None"], Why]
"""Finds the records that made a row: store, key, and the batch, None for the newest."""


class Source(ABC):
    """What the server asks. ``rows``: the largest store that may be searched."""

    rows = FOLDER_ROWS

    def __init__(self, state: StateRoot, explain: Explain | None = None) -> None:
        self.state = state
        self._explain = explain
        self.log = BatchLog(state)
        self.history = History(state.here / HISTORY)

    @abstractmethod
    def observe(self) -> Observation:
        """The application now, or as it was seen last."""

    @abstractmethod
    def graph(self) -> bytes:
        """The drawing as JSON; ``null`` if it is not known."""

    @abstractmethod
    def open(self, name: str, as_of: int | None) -> StoreReader:
        """A queryable store."""

    def why(self, name: str, key: Any, as_of: int | None) -> Why:
        """The records that made a row. Raises `ConfigError` CS-281 where the application's functions are missing."""
        if self._explain is None:
            raise refuse(
                "CS-281",
                "the functions of the application, which say what made a row, are not in its state",
                f"start the page with `crossstream ui {self.state} --app app.py`, or run "
                f"`crossstream why app.py {self.state} {name} KEY`",
            )
        return self._explain(name, key, as_of)

    def stores(self) -> dict[str, Any]:
        """The queryable stores, and the batches that they can be read as of."""
        application = application_of(self.state)
        named = [
            {
                "name": name,
                "key": one.key.name,
                "value": one.value.name,
                "by_time": ByTime.is_of(one.kind),
            }
            for name, one in sorted(application.readers.items())
        ]
        return {"stores": named, "batches": self.log.commits()}

    def keep(self, seen: Observation, *, last: bool = False) -> None:
        """Takes in what was observed; ``last``: nothing follows."""
        return

    def close(self) -> None:
        """Closes files."""
        self.history.close()


class LiveSource(Source):
    """The application of this process; what is seen is kept in its state folder, within bounds.

    ``is_ours``: whether the application has locked the state, and so may write there.
    """

    rows = LIVE_ROWS

    def __init__(
        self,
        state: StateRoot,
        rights: int,
        observe: Callable[[], Observation],
        drawing: Drawing,
        opened: Callable[[str, int | None], StoreReader],
        is_ours: Callable[[], bool],
        explain: Explain | None = None,
    ) -> None:
        super().__init__(state, explain)
        self.history = History(state.here / HISTORY, rights)
        self._observe = observe
        self._opened = opened
        self._is_ours = is_ours
        self._graph = encoded(drawing)
        self._rates = Rates()
        self._kept = 0.0
        self._has_ended = False
        self._folder = LocalRoot(state.here)

    def observe(self) -> Observation:
        return self._observe()

    def graph(self) -> bytes:
        return self._graph

    def open(self, name: str, as_of: int | None) -> StoreReader:
        return self._opened(name, as_of)

    def keep(self, seen: Observation, *, last: bool = False) -> None:
        if self._has_ended or not self._is_ours():
            return
        for sample in self._rates.samples(seen):
            self.history.add(sample)
        self._has_ended = seen.status in ("failed", "stopped")  # another process may have taken the state
        if last or self._has_ended or seen.time - self._kept >= KEEP_SECONDS:
            if not self._kept:
                self._folder.write(GRAPH, self._graph)
            self._kept = seen.time
            self._folder.write(LAST, msgspec.json.encode(seen))


class FolderSource(Source):
    """A state folder: what an application with the page wrote there last, or what its commits say.

    ``explain``, ``drawing``: of the application, where its file is known. ``registry``: see `open_store`.
    """

    def __init__(
        self,
        state: StateRoot,
        explain: Explain | None = None,
        drawing: Drawing | None = None,
        registry: str | None = None,
    ) -> None:
        super().__init__(state, explain)
        self._drawing = drawing
        self._registry = registry
        self._known: tuple[int, Observation] | None = None
        application_of(state)

    def observe(self) -> Observation:
        now = time.time()
        batch = self.log.newest().id
        last = self._last()
        if last is not None and (
            last.last is None or last.last.batch >= batch or now - last.time < STALE_SECONDS
        ):
            if now - last.time < STALE_SECONDS or last.status in ("stopped", "failed"):
                return replace(last, from_folder=True)
            return replace(last, status="unseen", running=None, from_folder=True)
        if self._known is None or self._known[0] != batch:
            self._known = batch, self._from_commits()
        return replace(self._known[1], time=now)

    def graph(self) -> bytes:
        if self._drawing is not None:
            return encoded(self._drawing)
        try:
            content = self.state.read(GRAPH)
            return msgspec.json.encode(_DRAWINGS.decode(content))
        except (OSError, msgspec.MsgspecError, CrossStreamError):
            return b"null"

    def open(self, name: str, as_of: int | None) -> StoreReader:
        return open_store(self.state, name, as_of, registry=self._registry)

    def _last(self) -> Observation | None:
        try:
            return _OBSERVATIONS.decode(self.state.read(LAST))
        except (OSError, msgspec.MsgspecError, CrossStreamError):
            return None

    def _from_commits(self) -> Observation:
        found = inspect_state(self.state)
        state = {
            f"{store}/{partition}": (manifest.rows, manifest.size)
            for store, manifests in found.stores.items()
            for partition, manifest in manifests.items()
        }
        rows, sizes = by_store(state)
        recent = tuple(done for batch in found.batches if (done := self._done(batch)) is not None)
        times = {
            store: max(manifest.stream_time for manifest in manifests.values())
            for store, manifests in found.stores.items()
            if manifests
        }
        return Observation(
            application=found.application.application_id,
            time=time.time(),
            status="unseen",
            batches=found.commit.id + 1,
            read=sum(
                offset
                for topics in found.commit.positions.values()
                for partitions in topics.values()
                for offset in partitions.values()
            ),
            newest_read={store: moment for store, moment in times.items() if moment >= 0},
            state_rows=rows,
            state_bytes=sizes,
            skew=skew_of(state, found.commit.partitions),
            last=recent[-1] if recent else None,
            recent=recent,
            stands=shown(found.commit.stands),
            from_folder=True,
        )

    def _done(self, batch: int) -> Done | None:
        try:
            commit, entry = self.log.commit(batch), self.log.batch(batch)
        except (CrossStreamError, OSError):
            return None  # of a change of partitions, or removed meanwhile
        seconds = max(0.0, commit.time - entry.time)
        records = sum(span.end - span.start for span in entry.ranges)
        return Done(batch, commit.time, records, seconds, {"batch": seconds * 1000})


# -- rows of a store ----------------------------------------------------------------------------------------


def found_rows(store: StoreReader, operation: str, first: str, last: str, most: int) -> dict[str, Any]:
    """Rows as plain data, and whether there are more. ``most``: the largest store whose rows are all looked at.

    Raises `ConfigError` CS-281 for a key that is not valid, or a store that is too large to be searched.
    """
    if operation == "get":
        rows = found_of_key(store, parse_key(store.key, first), most)
    else:
        if (count := store.approximate_count()) > most:
            what = f"{store.name} has up to {count:,} rows, too many to be searched here"
            step = "ask for a key, or use `crossstream query` or `crossstream ui` on the state folder"
            raise refuse("CS-281", what, step)
        rows = found(store, operation, (first, last))
    shown, more = Room().shown(store, rows, ROWS)
    return {"rows": shown, "more": more}


def changes_of(source: Source, name: str, text: str) -> dict[str, Any]:
    """What a key had after each kept batch, without those that changed nothing; oldest first."""
    kept = source.log.commits()[-BATCHES:]
    room, steps = Room(), []
    before: list[bytes] | None = None
    for batch in kept:
        store = source.open(name, batch)
        rows = list(islice(found_of_key(store, parse_key(store.key, text), source.rows), ROWS))
        present = digest(rows)
        if present != before:
            shown, _ = room.shown(store, rows, ROWS)
            steps.append({"batch": batch, "time": source.log.commit(batch).time, "rows": shown})
        before = present
    return {"batches": [kept[0], kept[-1]] if kept else [], "changes": steps}


def reason(source: Source, name: str, text: str, place: str, as_of: int | None) -> dict[str, Any]:
    """The records that made the row of a key, step by step. ``place``: start and end of a window or session."""
    store = source.open(name, as_of)
    key = parse_key(store.key, text)
    bounds = [one for one in map(whole_number, place.split(",")) if one is not None]
    if store.kind in ("window", "session") and len(bounds) == 2:
        key = Windowed(key, *bounds)
    answer = source.why(store.name, key, as_of)
    made = {name: value for name, value in answer.to_dict().items() if name != "records"}
    return {**made, "step": _cut(made["step"]), "records": len(answer.records)}


def _cut(step: dict[str, Any]) -> dict[str, Any]:
    """A step with its first records only, and how many there are."""
    records, inputs = step["records"], [_cut(one) for one in step["inputs"]]
    return {**step, "records": records[:ROWS], "count": len(records), "inputs": inputs}
