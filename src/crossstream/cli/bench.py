"""`crossstream bench`: the benchmarks of a checkout. They are not part of the installed package."""

from __future__ import annotations

import importlib
import signal
import sys
from argparse import Namespace
from pathlib import Path

from crossstream.cli.options import wrong_usage

BENCHMARKS = ("fk", "joins", "join_many", "aggregate", "state", "driver")
"""Modules of ``benchmarks/`` with a ``main(argv)``, in the order of a run."""


def main(arguments: Namespace) -> int:
    """Runs one benchmark with the rest of the command line, or all of them with their defaults."""
    if arguments.name is not None and arguments.name not in BENCHMARKS:
        next = f"choose one of: {', '.join(BENCHMARKS)}; crossstream bench NAME --help lists its options"
        raise wrong_usage(f"there is no benchmark {arguments.name!r}", next)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds: broker and peers stop
    root = find_root()
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if arguments.name is not None:
        return _run(arguments.name, arguments.rest)
    return max(_run(name, []) for name in BENCHMARKS)


def find_root() -> Path:
    """The checkout with the benchmarks: this package's own, or the current folder. `ConfigError` CS-281."""
    for root in (Path(__file__).parents[3], Path.cwd()):
        if (root / "benchmarks").is_dir():
            return root
    what = f"the benchmarks are not here: the package does not contain them, nor does {Path.cwd()}"
    raise wrong_usage(what, "run it in a checkout of crossstream")


def _run(name: str, argv: list[str]) -> int:
    try:
        module = importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as missing:
        what = f"the benchmark {name!r} cannot be loaded: there is no module {missing.name}"
        next = 'update the checkout, or install what it needs: pip install -e ".[test]"'
        raise wrong_usage(what, next) from missing
    return module.main(argv) or 0
