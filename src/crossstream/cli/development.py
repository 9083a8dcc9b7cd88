"""`crossstream broker`: a broker for development; `crossstream bench`: the benchmarks of a checkout."""

from __future__ import annotations

import importlib
import signal
import sys
from argparse import Namespace
from pathlib import Path

from crossstream.cli.arguments import wrong_usage
from crossstream.cli.console import say
from crossstream.kafka import broker


def start(arguments: Namespace) -> int:
    """Starts it; prints what clients connect to."""
    running = broker.status(arguments.port)
    if running is None and broker.find_kafka_jars() is None:
        say("Fetching Kafka's jars (about 45 MB, once)…")
    info = broker.start(arguments.port, arguments.dir)
    done = "was running already" if running else "started"
    say(f"Kafka {info.version} {done}: process {info.pid}, {info.directory}")
    print(info.bootstrap_servers)
    return 0


def stop(arguments: Namespace) -> int:
    """Stops it; nothing happens if none runs."""
    say("stopped" if broker.stop(arguments.port) else f"no broker runs at port {arguments.port}")
    return 0


def status(arguments: Namespace) -> int:
    """Prints which broker runs at the port; 1 if none that was started here does, or it does not answer."""
    info = broker.status(arguments.port)
    if info is None:
        other = "a broker answers that was not started here"
        say(f"port {arguments.port}: {other if broker.answers(arguments.port) else 'no broker runs'}")
        return 1
    answers = broker.answers(arguments.port)
    print(f"{info.bootstrap_servers}: {'answers' if answers else 'does not answer'}")
    print(f"Kafka {info.version}, process {info.pid}")
    print(f"directory {info.directory}")
    print(f"log {info.log_file}")
    return 0 if answers else 1


BENCHMARKS = ("fk", "joins", "join_many", "aggregate", "workarounds", "state", "driver")
"""Modules of ``benchmarks/`` with a ``main(argv)``, in the order of a run."""


def bench(arguments: Namespace) -> int:
    """Runs one benchmark with the rest of the command line, or all of them. The installed package has none."""
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
