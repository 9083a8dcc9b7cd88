"""`crossstream run` begins: Spark's JVM loads while this process imports what runs the application."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from crossstream.cli.restarts import is_supervised, supervise
from crossstream.cli.target import on_path, split
from crossstream.jvm import EarlyJvm


def main(arguments: Namespace) -> int:
    """Runs the topology of a file; with ``--restarts`` in other processes."""
    if arguments.restarts and not is_supervised():
        return supervise(arguments.words, arguments.restarts)
    early = None
    file = Path(split(arguments.file)[0]).expanduser().absolute()
    if file.is_file() and arguments.engine != "local":
        on_path(file.parent)  # the workers inherit the environment of the JVM
        early = EarlyJvm.begin(dict(arguments.spark))
    try:
        from crossstream.cli.run import run_file

        return run_file(arguments, early)
    finally:
        if early is not None:
            early.end()
