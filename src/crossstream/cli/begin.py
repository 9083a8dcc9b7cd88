"""`crossstream run` begins: Spark's JVM loads while this process imports what runs the application.

Nothing heavy is imported here.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from crossstream.cli.restarts import is_supervised, supervise
from crossstream.jvm import EarlyJvm


def main(arguments: Namespace) -> int:
    """Runs the topology of a file; with ``--restarts`` in other processes."""
    if arguments.restarts and not is_supervised():
        return supervise(arguments.words, arguments.restarts)
    early = None
    file = Path(split(arguments.file)[0]).expanduser().absolute()
    if file.is_file():
        on_path(file.parent)  # the workers inherit the environment of the JVM
        early = EarlyJvm.begin(dict(arguments.spark))
    try:
        from crossstream.cli.run import run_file

        return run_file(arguments, early)
    finally:
        if early is not None:
            early.end()


def split(target: str) -> tuple[str, str]:
    """The path and the name in ``file.py:name``."""
    path, colon, name = target.rpartition(":")
    return (path, name) if colon and not Path(target).exists() else (target, "")


def on_path(folder: Path) -> None:
    """Lets the file import its neighbours, in this process and in the workers on this machine."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(folder)])
