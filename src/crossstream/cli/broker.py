"""`crossstream broker`: the broker for development."""

from __future__ import annotations

from argparse import Namespace

from crossstream.cli.console import say
from crossstream.kafka import broker
from crossstream.kafka.jars import find_kafka_jars


def start(arguments: Namespace) -> int:
    """Starts it; prints what clients connect to."""
    running = broker.status(arguments.port)
    if running is None and find_kafka_jars() is None:
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
