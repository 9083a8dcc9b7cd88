"""`crossstream ui`: the page of an application that runs elsewhere, or has stopped."""

from __future__ import annotations

import signal
import threading
from argparse import Namespace

from crossstream.cli.console import say
from crossstream.cli.query import state_root
from crossstream.query.files import application_of
from crossstream.ui.server import Page
from crossstream.ui.source import FolderSource

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE_SECONDS = 0.2
"""The wait before it looks again whether a signal came."""


def main(arguments: Namespace) -> int:
    """Serves the page of a state folder until Ctrl-C."""
    folder = state_root(arguments.state_dir)
    application = application_of(folder)
    asked = threading.Event()
    page = Page(arguments.host, arguments.port, lambda: FolderSource(folder), "--port")
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in SIGNALS}
    try:
        say(f"the page of {application.application_id}, until Ctrl-C:")
        print(page.address, flush=True)
        while not asked.wait(PATIENCE_SECONDS):
            pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        page.close()
    return 0
