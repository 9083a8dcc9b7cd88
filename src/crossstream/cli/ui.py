"""`crossstream ui`: the page of an application that runs elsewhere, or has stopped."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from typing import Any

from crossstream.catalog.planners import plan_topology
from crossstream.cli.console import say
from crossstream.cli.loading import load
from crossstream.cli.query import state_root
from crossstream.cli.recompute import inputs_of
from crossstream.cli.restarts import on_signals
from crossstream.graph.layout import drawing_of
from crossstream.query.files import application_of
from crossstream.recompute.reason import Why
from crossstream.recompute.why import why
from crossstream.storage.root import StateRoot
from crossstream.ui.server import Page
from crossstream.ui.source import WHY_SECONDS, FolderSource

PATIENCE_SECONDS = 0.2
"""The wait before it looks again whether a signal came."""


def main(arguments: Namespace) -> int:
    """Serves the page of a state folder until Ctrl-C."""
    folder = state_root(arguments.state_dir)
    application = application_of(folder)
    asked = threading.Event()
    made = _of_file(folder, arguments)
    page = Page(arguments.host, arguments.port, made, "--port", is_open=arguments.open)
    with closing(page), on_signals(lambda *_: asked.set()):
        say(f"the page of {application.application_id}, until Ctrl-C:")
        print(page.address, flush=True)
        while not asked.wait(PATIENCE_SECONDS):
            pass
    return 0


def _of_file(folder: StateRoot, arguments: Namespace) -> Callable[[], FolderSource]:
    """What the page shows: with the application's file also its drawing, and why a row is what it is."""
    if arguments.app is None:
        return lambda: FolderSource(folder, registry=arguments.registry)
    loaded = load(arguments.app)
    plan = plan_topology(loaded.topology)
    connection, settings = inputs_of(loaded, arguments, folder)

    def explain(store: str, key: Any, as_of: int | None) -> Why:
        return why(folder, plan, connection, store, key, settings, as_of=as_of, seconds=WHY_SECONDS)

    return lambda: FolderSource(folder, explain, drawing_of(loaded.topology), arguments.registry)
