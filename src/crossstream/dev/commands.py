"""`crossstream broker`: a broker for development; `crossstream bench`: the benchmarks of a checkout."""

from __future__ import annotations

import importlib
import signal
import sys
from argparse import Namespace
from pathlib import Path

from crossstream.cli.console import say
from crossstream.cli.options import wrong_usage
from crossstream.dev import broker, servers
from crossstream.dev.background import Jars


def start(arguments: Namespace) -> int:
    """Starts it; prints what clients connect to."""
    running = broker.status(arguments.port)
    _say_fetching(broker.JARS, "45 MB")
    info = broker.start(arguments.port, arguments.dir)
    done = "was running already" if running else "started"
    say(f"Kafka {info.version} {done}: process {info.pid}, {info.directory}")
    registry = connect = None
    if arguments.registry:
        _say_fetching(servers.REGISTRY_JARS, "140 MB")
        registry = servers.start_registry(info, arguments.registry)
    if arguments.connect:
        _say_fetching(servers.CONNECT_JARS, "45 MB")
        connect = servers.start_connect(info, arguments.connect, registry)
    companions = [server for server in (registry, connect) if server is not None]
    print(info.bootstrap_servers if not companions else f"broker    {info.bootstrap_servers}")
    for server in companions:
        print(f"{server.NAME:<9} {server.url}")
    return 0


def stop(arguments: Namespace) -> int:
    """Stops it and what was started beside it; nothing happens if none runs."""
    for server in servers.stop_companions(arguments.port):
        say(f"stopped {server.TITLE} at port {server.port}")
    say("stopped" if broker.stop(arguments.port) else f"no broker runs at port {arguments.port}")
    return 0


def status(arguments: Namespace) -> int:
    """Prints the brokers that were started here, or the one at a port; 1 if none runs, or one does not answer."""
    if arguments.port is not None:
        return 0 if _show_status(arguments.port) else 1
    found = broker.ports()
    if not found:
        other = broker.answers(DEFAULT_PORT)
        say(f"port {DEFAULT_PORT}: {OTHER}" if other else "no broker that was started here runs")
        return 1
    answered = []
    for number, port in enumerate(found):
        if number:
            print()
        answered.append(_show_status(port))
    return 0 if all(answered) else 1


DEFAULT_PORT = 9092
OTHER = "a broker answers that was not started here"


def _show_status(port: int) -> bool:
    """Prints what runs at a port; whether a broker that was started here does, and all there answers."""
    info = broker.status(port)
    companions = [(server, server.answers) for server in servers.running_companions(port)]
    answers = False
    if info is None:
        say(f"port {port}: {OTHER if broker.answers(port) else 'no broker runs'}")
    else:
        answers = broker.answers(port)
        print(f"{info.bootstrap_servers}: {_answers(answers)}")
        print(f"Kafka {info.version}, process {info.pid}")
        print(f"directory {info.directory}")
        print(f"log {info.log_file}")
    for server, answered in companions:
        print(f"{server.NAME} {server.url}: {_answers(answered)}, process {server.pid}")
        print(f"log {server.log_file}")
    return answers and all(answered for _, answered in companions)


def _answers(answers: bool) -> str:
    return "answers" if answers else "does not answer"


def _say_fetching(jars: Jars, size: str) -> None:
    if jars.find() is None:
        say(f"Fetching the jars of {jars.title} (about {size}, once)…")


BENCHMARKS = (
    "fk",
    "edges",
    "formats",
    "joins",
    "join_many",
    "aggregate",
    "nexmark",
    "lakes",
    "history",
    "workarounds",
    "state",
    "scale",
    "size",
    "evolve",
    "hot",
    "driver",
    "tpch",
    "store_table",
    "postgres",
    "where",
)
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
