"""An application in a notebook: its status, its last batch, the one that runs, and its stores."""

from __future__ import annotations

import importlib
import threading
import time
from typing import Any, Protocol

from crossstream.config import StreamsConfig
from crossstream.metrics.observation import Progress, Running, stand_texts
from crossstream.notebook import html_note, html_table, html_title

REFRESH_SECONDS = 0.5
ENDED = ("stopped", "failed")


class Application(Protocol):
    """As much of `SparkStreams` as is shown."""

    config: StreamsConfig

    @property
    def status(self) -> str: ...

    @property
    def progress(self) -> Progress: ...

    @property
    def running(self) -> Running | None: ...


def html_of(app: Application) -> str:
    last, running = app.progress, app.running
    facts = [app.status]
    if last.batch >= 0:
        facts += [f"{_records(last.total_rows)} so far", f"{last.lag:,} waiting"]
    parts = [html_title(app.config.application_id, facts)]
    if running is not None:
        seconds = max(0.0, time.time() - running.since)
        parts.append(
            html_note(f"batch {running.batch} running: {_records(running.records)}, {seconds:.0f} s")
        )
    if last.batch >= 0:
        phases = ", ".join(f"{name} {value:,.0f} ms" for name, value in last.phases.items())
        parts.append(
            html_note(f"batch {last.batch}: {_records(last.rows)} in {last.seconds:.3g} s ({phases})")
        )
        names = dict.fromkeys([*last.rows_in, *last.rows_out])
        rows = [(name, last.rows_in.get(name), last.rows_out.get(name)) for name in names]
        parts.append(html_table(("operator, last batch", "rows in", "rows out"), rows))
        stores = [(name, entries, last.state_bytes.get(name)) for name, entries in last.state_rows.items()]
        parts += [html_table(("store", "entries on disk", "bytes"), stores)] if stores else []
        dropped = list(last.total_dropped.items())
        parts += [html_table(("dropped", "rows"), dropped)] if dropped else []
        waiting = list(last.waiting.items())
        parts += [html_table(("waiting for source partitions", "rows"), waiting)] if waiting else []
        parts += [html_note(f"batch {last.batch} {text}") for text in stand_texts(last.stands)]
        parts += [html_note(f"warning: {warning}") for warning in last.warnings]
    parts += [html_note(text) for text in last.waits]
    return "".join(parts)


def _records(number: int) -> str:
    return f"{number:,} record{'' if number == 1 else 's'}"


def show_live(app: Application) -> None:
    """Shows the application in the cell and follows it. `NotImplementedError` where no notebook runs."""
    try:
        shell: Any = importlib.import_module("IPython").get_ipython()
        display: Any = importlib.import_module("IPython.display")
    except ImportError as missing:
        raise NotImplementedError from missing
    if shell is None or not hasattr(shell, "kernel"):
        raise NotImplementedError  # a terminal: IPython prints repr() then
    handle = display.display(display.HTML(html_of(app)), display_id=True)

    def follow() -> None:
        while app.status not in ENDED:
            time.sleep(REFRESH_SECONDS)
            handle.update(display.HTML(html_of(app)))
        handle.update(display.HTML(html_of(app)))

    threading.Thread(target=follow, name="notebook", daemon=True).start()
