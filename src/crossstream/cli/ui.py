"""`crossstream ui`: the page of an application that runs elsewhere, or has stopped."""

from __future__ import annotations

from argparse import Namespace

from crossstream.cli.console import say
from crossstream.cli.query import state_root
from crossstream.query.files import application_of
from crossstream.ui.server import Page
from crossstream.ui.source import FolderSource


def main(arguments: Namespace) -> int:
    """Serves the page of a state folder until Ctrl-C."""
    folder = state_root(arguments.state_dir)
    application = application_of(folder)
    page = Page(arguments.host, arguments.port, lambda: FolderSource(folder), "--port")
    try:
        say(f"{application.application_id}: {page.address}\nCtrl-C ends it")
        page.wait()
    except KeyboardInterrupt:
        pass
    finally:
        page.close()
    return 0
