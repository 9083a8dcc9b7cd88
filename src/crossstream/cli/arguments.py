"""Every command and option of the command line. Nothing but argparse is needed to read them."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from typing import Any

from crossstream.cli.values import (
    assignment,
    duration,
    not_negative,
    on_error,
    port,
    positive,
    some,
)

SERDES = (
    "string",
    "json",
    "bytes",
    "int16",
    "int32",
    "int64",
    "float32",
    "float64",
    "boolean",
    "uuid",
)
"""Serdes that can be named on the command line: those that need no type or schema."""

RECORD = (
    'A record is a line {"key": …, "value": …, "timestamp": ms, "partition": n, "headers": {name: text}}; '
    "one of key and value may be left out."
)

Commands = Any  # argparse gives no public name to what add_subparsers returns


def make_parser() -> ArgumentParser:
    """The parser; each command sets ``command``, the ``module:function`` that carries it out."""
    parser = ArgumentParser(
        prog="crossstream",
        description="Kafka Streams' model and all its joins, in Python on Apache Spark.",
        epilog="crossstream COMMAND --help tells more. Begin with: crossstream demo",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.set_defaults(debug=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_demo, _run, _describe, _topics, _query, _state, _broker, _doctor, _bench):
        add(commands)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        from crossstream import __version__

        print(f"crossstream {__version__}")
        parser.exit()


def _command(commands: Commands, name: str, runs: str, help: str, **more: Any) -> ArgumentParser:
    description = more.pop("description", help[0].upper() + help[1:] + ".")
    parser: ArgumentParser = commands.add_parser(
        name, help=help, description=description, allow_abbrev=False, **more
    )
    parser.set_defaults(command=f"crossstream.cli.{runs}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks, and everything Spark says")
    return parser


def _demo(commands: Commands) -> None:
    parser = _command(
        commands,
        "demo",
        "demo:main",
        "a foreign-key join of two changing tables, run on Spark before your eyes",
    )
    parser.add_argument(
        "--kafka",
        action="store_true",
        help="topics on a Kafka broker instead of in files; it is started and stopped if none runs",
    )
    parser.add_argument("--port", type=port, default=9092, help="the broker's port (default: %(default)s)")
    parser.add_argument(
        "--dir",
        type=some,
        default="crossstream-demo",
        help="where topics and state are kept; emptied at the start (default: ./%(default)s)",
    )


def _run(commands: Commands) -> None:
    parser = _command(
        commands,
        "run",
        "run:main",
        "run the topology that a Python file builds",
        description="Runs the topology that a Python file builds: a Topology or StreamsBuilder, or a "
        "function that returns one, named topology, builder or build, or as given (app.py:name). Its "
        "settings are the StreamsConfig named config, if there is one, with the options below on top.",
    )
    parser.add_argument("file", metavar="app.py[:name]")
    parser.add_argument(
        "--once", action="store_true", help="process what is in the topics at this moment, and exit"
    )
    parser.add_argument(
        "--format",
        choices=("auto", "live", "json"),
        default="auto",
        help="progress: a live view, or a JSON line for each batch (default: live on a terminal)",
    )
    settings = parser.add_argument_group("settings (see StreamsConfig)")
    settings.add_argument("--application-id", metavar="ID", help="default: the name of the file")
    place = settings.add_mutually_exclusive_group()
    place.add_argument("--bootstrap-servers", type=some, metavar="HOST:PORT", help="Kafka's brokers")
    place.add_argument("--topics-dir", type=some, metavar="DIR", help="the folder of file topics")
    settings.add_argument(
        "--state-dir", type=some, metavar="DIR", help="folder or URI; default: ./crossstream-state/ID"
    )
    settings.add_argument("--partitions", type=positive, metavar="N", help="state partitions")
    settings.add_argument(
        "--idle-after",
        type=duration,
        metavar="DURATION",
        help="without input for so long, stream time goes on with the clock; default: it stands still",
    )
    settings.add_argument(
        "--max-task-idle",
        type=duration,
        metavar="DURATION",
        help="wait so long for topics of a join of streams that have nothing yet; default: 0",
    )
    settings.add_argument(
        "--durable",
        action=argparse.BooleanOptionalAction,
        help="whether what is committed survives a crash of the machine; default: it does",
    )
    settings.add_argument(
        "--state-mode",
        choices=("private", "group", "shared"),
        help="who may read the files of the state; default: private, this user alone",
    )
    settings.add_argument(
        "--trigger",
        type=duration,
        metavar="DURATION",
        help='time from one batch to the next: "2 seconds", or a number of milliseconds',
    )
    settings.add_argument(
        "--max-records-per-batch", type=positive, metavar="N", help="default: all there are"
    )
    settings.add_argument(
        "--single-task-rows",
        type=not_negative,
        metavar="N",
        help="batches up to so many rows are done by one task; 0: none",
    )
    settings.add_argument(
        "--deserialization-errors",
        type=on_error,
        metavar="fail|skip|dead-letter:TOPIC",
        help="what to do with a record that cannot be decoded",
    )
    settings.add_argument(
        "--processing-errors",
        type=on_error,
        metavar="fail|skip|dead-letter:TOPIC",
        help="what to do with a record on which a function raises",
    )
    settings.add_argument(
        "--on-lost-records",
        choices=("fail", "skip"),
        help="what to do when unread records were deleted, by retention or with their topic",
    )
    settings.add_argument(
        "--on-lost-state",
        choices=("fail", "restart"),
        help="what to do with an empty state folder when the consumer group has offsets",
    )
    settings.add_argument(
        "--broker-patience", type=duration, metavar="DURATION", help="how long to wait for an absent broker"
    )
    settings.add_argument(
        "--retain-batches",
        type=positive,
        metavar="N",
        help="past batches that stay readable (query --as-of)",
    )
    _kafka(settings)
    _assignments(settings, "--spark", "a setting of Spark's session; may be repeated")


def _describe(commands: Commands) -> None:
    parser = _command(commands, "describe", "describe:main", "show the topology that a Python file builds")
    parser.add_argument("file", metavar="app.py[:name]")
    form = parser.add_mutually_exclusive_group()
    for name, help in (
        ("mermaid", "as a Mermaid flowchart"),
        ("dot", "as a Graphviz digraph"),
        ("plan", "the rounds, stores and shuffles that Spark will run"),
    ):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=help)
    parser.add_argument("--partitions", type=positive, metavar="N", help="state partitions, for --plan")


def _topics(commands: Commands) -> None:
    topics = commands.add_parser(
        "topics",
        help="write, read, list and create topics",
        description="Topics in files or in Kafka, as JSON lines.",
    )
    actions = topics.add_subparsers(title="actions", metavar="ACTION", required=True)

    write = _command(
        actions,
        "write",
        "topics:write",
        "append JSON lines to a topic",
        description=f"Appends records to a topic. {RECORD}",
    )
    write.add_argument("topic")
    write.add_argument("file", nargs="?", help="default: standard input")
    _place(write)
    _serdes(write)

    read = _command(
        actions,
        "read",
        "topics:read",
        "print a topic as JSON lines",
        description=f"Prints the records of a topic. {RECORD}",
    )
    read.add_argument("topic")
    _place(read)
    _serdes(read)
    read.add_argument(
        "--from",
        dest="start",
        choices=("beginning", "end"),
        default="beginning",
        help="where to begin (default: %(default)s)",
    )
    read.add_argument("--max", type=positive, metavar="N", help="stop after N records")
    read.add_argument("--partition", type=not_negative, metavar="P", help="only this partition")
    read.add_argument("--follow", action="store_true", help="wait for more records, until Ctrl-C")

    listing = _command(
        actions,
        "list",
        "topics:list_topics",
        "list the topics, their partitions and how many offsets they hold",
    )
    _place(listing)
    listing.add_argument("--format", choices=("table", "json"), default="table", help="default: %(default)s")

    create = _command(actions, "create", "topics:create", "create topics")
    create.add_argument("topic", nargs="+")
    _place(create)
    create.add_argument("--partitions", type=positive, default=1, metavar="N", help="default: %(default)s")
    _assignments(
        create, "--config", "a setting of the topic, such as cleanup.policy=compact; may be repeated"
    )


def _query(commands: Commands) -> None:
    parser = _command(
        commands,
        "query",
        "query:main",
        "look into the stores of an application, while it runs or after",
        usage="crossstream query STATE_DIR [STORE [get KEY | range [FROM [TO]] | prefix P | all]] [options]",
        description="Looks into the stores of a state folder: lists them, or prints rows of one. Only "
        "committed batches are seen. A range is inclusive; an empty bound ('') is no bound. Options come last; keys "
        "that begin with a dash come behind --, at the very end.",
    )
    parser.add_argument("state_dir", type=some, metavar="STATE_DIR")
    parser.add_argument("store", metavar="STORE", nargs="?")
    parser.add_argument(
        "operation",
        metavar="get KEY | range [FROM [TO]] | prefix P | all",
        nargs="*",
        default=[],  # else argparse says that it is required
        help="default: all",
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="json: a line for each row (default: %(default)s)",
    )
    parser.add_argument("--max", type=positive, metavar="N", help="print at most N rows")
    parser.add_argument(
        "--as-of",
        type=not_negative,
        metavar="BATCH",
        help="the state after this batch, one of those retained",
    )
    parser.add_argument(
        "--as-of-time",
        metavar="T",
        help="of a versioned store: the value valid then (ms since the epoch, or 2026-01-31T12:00:00)",
    )


def _state(commands: Commands) -> None:
    state = commands.add_parser(
        "state",
        help="inspect, verify and rescale the state of an application",
        description="A state folder: what its stores take, whether every file is sound, and in how many "
        "state partitions it is cut.",
    )
    actions = state.add_subparsers(title="actions", metavar="ACTION", required=True)
    inspect = _command(
        actions,
        "inspect",
        "state:inspect",
        "list the stores: kind, serdes, rows, bytes, runs, stream time",
        description="Lists the stores after the newest batch, or the state partitions of one. Rows are those in "
        "the files: replaced and deleted ones that wait to be merged away are among them.",
    )
    verify = _command(
        actions,
        "verify",
        "state:verify",
        "check every file of every batch that is kept; exit code 1 if there is a problem",
    )
    rescale = _command(
        actions,
        "rescale",
        "state:rescale",
        "cut the state into another number of partitions, while its application is stopped",
        description="Cuts the state into another number of partitions. The application does the same when it is "
        "started with other partitions.",
    )
    for parser in (inspect, verify, rescale):
        parser.add_argument("state_dir", type=some, metavar="STATE_DIR")
    inspect.add_argument("store", metavar="STORE", nargs="?", help="only this one, by state partition")
    for parser in (inspect, verify):
        parser.add_argument(
            "--format", choices=("table", "json"), default="table", help="default: %(default)s"
        )
    rescale.add_argument("--partitions", type=positive, metavar="N", required=True, help="state partitions")


def _broker(commands: Commands) -> None:
    broker = commands.add_parser(
        "broker",
        help="a Kafka broker for development on this machine",
        description="A single-node Kafka on this machine, in the background.",
    )
    actions = broker.add_subparsers(title="actions", metavar="ACTION", required=True)
    start = _command(actions, "start", "broker:start", "start it; returns when it answers")
    stop = _command(actions, "stop", "broker:stop", "stop it; its topics stay")
    status = _command(actions, "status", "broker:status", "tell whether it runs")
    for parser in (start, stop, status):
        parser.add_argument("--port", type=port, default=9092, help="default: %(default)s")
    start.add_argument(
        "--dir",
        type=some,
        help="where topics, settings and log are kept (default: a folder per port in the cache)",
    )


def _doctor(commands: Commands) -> None:
    parser = _command(
        commands,
        "doctor",
        "doctor:main",
        "check Java, PySpark and everything else that is needed, and tell how to fix it",
    )
    parser.add_argument("--full", action="store_true", help="also run a small join on Spark")
    parser.add_argument(
        "--state-dir",
        type=some,
        default="crossstream-state",
        metavar="DIR",
        help="the folder whose disk is checked, or a URI that must answer (default: ./%(default)s)",
    )
    parser.add_argument(
        "--bootstrap-servers", type=some, metavar="HOST:PORT", help="a Kafka that must answer"
    )


def _bench(commands: Commands) -> None:
    parser = _command(
        commands,
        "bench",
        "bench:main",
        "run the benchmarks, each beside its peers; without a name all of them",
    )
    parser.add_argument("name", nargs="?", help="such as fk")
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, help="options of the benchmark; NAME --help lists them"
    )


def _place(parser: ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--topics-dir", type=some, metavar="DIR", help="the folder of file topics")
    where.add_argument("--bootstrap-servers", type=some, metavar="HOST:PORT", help="Kafka's brokers")
    _kafka(parser)
    parser.add_argument(
        "--broker-patience",
        type=duration,
        default="10 seconds",
        metavar="DURATION",
        help="default: %(default)s",
    )


def _serdes(parser: ArgumentParser) -> None:
    for part, default in (("key", "string"), ("value", "json")):
        parser.add_argument(
            f"--{part}-serde",
            choices=SERDES,
            default=default,
            metavar="SERDE",
            help=f"of the {part}s: {', '.join(SERDES)} (default: %(default)s)"
            if part == "key"
            else f"of the {part}s, likewise (default: %(default)s)",
        )


def _kafka(parser: Any) -> None:
    parser.add_argument(
        "--kafka-config",
        type=some,
        metavar="FILE",
        help="settings of Kafka's clients, a line NAME=VALUE each",
    )
    _assignments(
        parser,
        "--kafka",
        "one more; may be repeated. Others see it in the process list: a password is for the file",
    )


def _assignments(parser: Any, name: str, help: str) -> None:
    parser.add_argument(name, action="append", type=assignment, default=[], metavar="NAME=VALUE", help=help)
