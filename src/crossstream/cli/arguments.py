"""Every command of the command line and its options. Nothing but argparse is needed to read them (decision 0034)."""

from __future__ import annotations

import re
from argparse import REMAINDER, ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crossstream._version import __version__
from crossstream.errors import ConfigError

SERDES = ["string", "json", "bytes", "int16", "int32", "int64", "float32", "float64", "boolean", "uuid"]
"""Serdes that can be named on the command line: those that need no type or schema."""
WINDOWED = re.compile(
    r"(?:session_windowed\[(?P<session>\w+)|windowed\[(?P<time>\w+), *(?P<size>[^] ][^]]*))\]"
)
"""Serdes of the keys of windowed results: of sessions, and of windows of one size."""
UI_PORT = 8642
"""The port of the page, where none is given."""
DEAD_LETTER = "dead-letter:"
"""Precedes the topic for records that cannot be processed."""


def serde(text: str) -> str:
    """A name of `SERDES`, or one of a windowed key such as ``windowed[string, 1 minute]``."""
    if text in SERDES or ((made := WINDOWED.fullmatch(text)) and (made["time"] or made["session"]) in SERDES):
        return text
    raise ArgumentTypeError(
        f"{text!r} is not one of: {', '.join(SERDES)}, windowed[SERDE, SIZE], session_windowed[SERDE]"
    )


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def share(text: str) -> float:
    try:
        found = float(text.removesuffix("%")) / 100
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise ArgumentTypeError(f"{text!r} is not a share from above 0% to 100%")
    return found


def some(text: str) -> str:
    if not text:
        raise ArgumentTypeError("the text is empty")
    return text


def port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise ArgumentTypeError(f"{text!r} is not a port: 1 to 65535")
    return int(text)


def duration(text: str) -> str | int:
    """A bare number is milliseconds; the setting checks whether a text is a duration."""
    return int(text) if text.isdecimal() else text


def on_error(text: str) -> str:
    if text not in ("fail", "skip") and not text.startswith(DEAD_LETTER):
        raise ArgumentTypeError(f"{text!r} is not one of: fail, skip, {DEAD_LETTER}TOPIC")
    return text


TOPICS = (
    ("--topics-dir", "DIR", some, "the folder of file topics"),
    ("--bootstrap-servers", "HOST:PORT", some, "Kafka's brokers"),
)


def add_options(parser: Any, *rows: tuple[str, str, Any, str]) -> None:
    """Adds options without a default: name, metavar, type, help. Without a type, the metavar lists the choices."""
    for name, metavar, type, help in rows:
        if type is None:
            parser.add_argument(name, choices=metavar.split("|"), help=help)
        else:
            parser.add_argument(name, type=type, metavar=metavar, help=help)


def add_format(parser: ArgumentParser, *choices: str) -> None:
    help = "json: a line for each row (default: %(default)s)"
    parser.add_argument("--format", choices=choices, default=choices[0], help=help)


def add_connection(parser: ArgumentParser) -> None:
    add_options(parser.add_mutually_exclusive_group(required=True), *TOPICS)
    add_kafka(parser)
    help, patience = "default: %(default)s", "10 seconds"
    parser.add_argument("--broker-patience", type=duration, default=patience, metavar="DURATION", help=help)


def add_serdes(parser: ArgumentParser) -> None:
    for part, default in (("key", "string"), ("value", "json")):
        help = (
            f"of the {part}s: {', '.join(SERDES)}; of windows 'windowed[string, 1 minute]', of sessions "
            "'session_windowed[string]' (default: %(default)s)"
        )
        parser.add_argument(f"--{part}-serde", type=serde, default=default, metavar="SERDE", help=help)


def add_kafka(parser: Any) -> None:
    file = "settings of Kafka's clients, one NAME=VALUE in each line"
    add_options(parser, ("--kafka-config", "FILE", some, file))
    more = "one more setting; may be repeated. The process list shows it: put passwords into the file"
    add_assignments(parser, "--kafka", more)


def add_assignments(parser: Any, name: str, help: str) -> None:
    parser.add_argument(name, action="append", type=assignment, default=[], metavar="NAME=VALUE", help=help)


WRONG_USAGE = "CS-281"
"""An error with this code exits with 2, as argparse does."""


def wrong_usage(what: str, next: str) -> ConfigError:
    return ConfigError(what, code=WRONG_USAGE, next=next)


def refuse_without(needed: str, next: str, arguments: Namespace, *names: str) -> None:
    """Raises `ConfigError` CS-281 for an option that means something with ``needed`` only."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise wrong_usage(f"--{name.replace('_', '-')} works with {needed} only", next)


def kafka_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of the file of ``--kafka-config``; those of ``--kafka`` override them.

    Raises `ConfigError`: CS-270 for a file that cannot be read, CS-281 for a line that is not a setting.
    """
    return (_settings_of(arguments.kafka_config) if arguments.kafka_config else {}) | dict(arguments.kafka)


def _settings_of(file: str) -> dict[str, str]:
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the settings cannot be read: {getattr(error, 'strerror', None) or 'the file is not text'}",
            code="CS-270",
            where={"file": file},
            next="check the path after --kafka-config and the rights on the file",
        ) from error
    settings = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        name, equals, value = line.partition("=")
        if not line or line.startswith("#"):
            continue
        if not equals or not name.strip():  # not shown: it may be a secret
            next = "write name=value, or start the line with #"
            raise wrong_usage(f"line {number} of {file} is not a setting", next)
        settings[name.strip()] = value.strip()
    return settings


def of_option(error: ConfigError) -> ConfigError:
    """The error of a setting that was typed as an option: without a line of code, and in words of the shell."""
    error.where.pop("line", None)
    if error.code == "CS-210":
        error.next = 'give milliseconds, or a text such as "10 seconds" or "1 hour 30 minutes"'
    return error


RECORD = (
    'A record is a line {"key": …, "value": …, "timestamp": ms, "partition": n, "headers": {name: text}}; '
    "the key or the value may be left out."
)
FILE = "app.py[:name]"
STATE = "STATE_DIR"

Commands = Any  # argparse gives no public name to what add_subparsers returns


def make_parser() -> ArgumentParser:
    """The parser; each command sets ``command``, the ``module:function`` that carries it out."""
    parser = ArgumentParser(
        prog="crossstream",
        description="Kafka Streams' model and all its joins, in Python on Apache Spark.",
        epilog="crossstream COMMAND --help lists the options of a command. Begin with: crossstream demo",
        allow_abbrev=False,
    )
    version = f"crossstream {__version__}"
    parser.add_argument("--version", action="version", version=version, help="print the version and exit")
    parser.set_defaults(debug=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        _demo,
        _run,
        _describe,
        _plan,
        _topics,
        _query,
        _why,
        _verify,
        _shadow,
        _state,
        _ui,
        _types,
        _broker,
        _doctor,
        _bench,
    ):
        add(commands)
    return parser


def _command(
    commands: Commands, name: str, help: str, details: str = "", *, runs: str = "", **more: Any
) -> ArgumentParser:
    """Adds a command that ``runs`` a function, by default the ``main`` of the module of its name."""
    description = details or f"{help[0].upper()}{help[1:]}."
    parser: ArgumentParser = commands.add_parser(
        name, help=help, description=description, allow_abbrev=False, **more
    )
    parser.set_defaults(command=f"crossstream.cli.{runs or f'{name}:main'}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks and everything Spark prints")
    return parser


def _group(
    commands: Commands, name: str, help: str, description: str, module: str
) -> Callable[..., ArgumentParser]:
    """Adds a command with actions; the result adds an action that runs the function of its name."""
    parser = commands.add_parser(name, help=help, description=description)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def add(action: str, help: str, details: str = "") -> ArgumentParser:
        return _command(actions, action, help, details, runs=f"{module}:{action}")

    return add


def _demo(commands: Commands) -> None:
    parser = _command(commands, "demo", "show a foreign-key join of two changing tables on Spark")
    parser.add_argument(
        "--kafka",
        action="store_true",
        help="use topics on a Kafka broker instead of files; starts one and stops it if none runs",
    )
    parser.add_argument(
        "--postgres",
        dest="command",
        action="store_const",
        const="crossstream.cli.demo_postgres:main",
        help="show changes of tables in a Postgres instead, read by Debezium; starts and stops all servers",
    )
    parser.add_argument("--port", type=port, default=9092, help="the broker's port (default: %(default)s)")
    parser.add_argument(
        "--dir",
        type=some,
        default="crossstream-demo",
        help="the folder of topics and state; the demo empties it first (default: ./%(default)s)",
    )


def _run(commands: Commands) -> None:
    parser = _command(
        commands,
        "run",
        "run the topology that a Python file builds",
        "Runs the topology that a Python file builds. It is a Topology, a StreamsBuilder, or a function that "
        "returns one. Its name is topology, builder or build, or the one given (app.py:name). The settings are "
        "the StreamsConfig named config, if there is one; the options below override it.",
        runs="begin:main",
    )
    parser.add_argument("file", metavar=FILE)
    parser.add_argument("--once", action="store_true", help="process the records of this moment, then exit")
    parser.add_argument(
        "--restarts",
        type=not_negative,
        default=0,
        metavar="N",
        help="start again up to N times in a row, after failures that a start can cure (default: %(default)s)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=("auto", "live", "lines", "json"),
        default="auto",
        help="progress: a live view, a line for each batch, or JSON lines (default: live on a terminal, else lines)",
    )
    form.add_argument("--json", dest="format", action="store_const", const="json", help="as --format json")
    settings = parser.add_argument_group("settings (see StreamsConfig)")
    add_options(settings.add_mutually_exclusive_group(), *TOPICS)
    on_bad_record = "fail|skip|dead-letter:TOPIC"
    add_options(
        settings,
        ("--application-id", "ID", str, "default: the name of the file"),
        ("--state-dir", "DIR", some, "folder or URI; default: ./crossstream-state/ID"),
        ("--partitions", "N", positive, "state partitions"),
        ("--idle-after", "DURATION", duration, "without input for so long, the clock moves stream time"),
        ("--max-task-idle", "DURATION", duration, "how long a stream join waits for a topic without records"),
        ("--state-mode", "private|group|shared", None, "who may read the state files; default: the owner"),
        ("--trigger", "DURATION", duration, 'from one batch to the next: "2 seconds"'),
        ("--max-records-per-batch", "N", positive, "the largest batch; default: all waiting records"),
        ("--single-task-rows", "N", not_negative, "one task processes batches of up to N rows; 0: never"),
        (
            "--deserialization-errors",
            on_bad_record,
            on_error,
            "when a record cannot be decoded; default: fail",
        ),
        ("--processing-errors", on_bad_record, on_error, "when a function raises on a record; default: fail"),
        ("--on-lost-records", "fail|skip", None, "when records were deleted before they were read"),
        ("--on-lost-state", "fail|restart", None, "when Kafka has offsets, but the state folder is empty"),
        ("--broker-patience", "DURATION", duration, "how long to wait for a broker that does not answer"),
        ("--health-port", "PORT", port, "answer GET /health and /ready here"),
        ("--health-host", "ADDRESS", some, "where it listens; default: 127.0.0.1, this machine only"),
        (
            "--health-patience",
            "DURATION",
            duration,
            "a batch that takes longer counts as stuck; default: 10 minutes",
        ),
        ("--retain-batches", "N", positive, "past batches that stay readable (query --as-of)"),
        ("--metrics-port", "PORT", port, "serve numbers for Prometheus at this port"),
        ("--metrics-host", "ADDRESS", some, "where that listens; default: 0.0.0.0, every address"),
        ("--ui-host", "ADDRESS", some, "where the page listens; default: 127.0.0.1, this machine only"),
    )
    settings.add_argument(
        "--ui",
        dest="ui_port",
        nargs="?",
        type=port,
        const=UI_PORT,
        metavar="PORT",
        help="serve a page that shows the running application (default port: %(const)s)",
    )
    settings.add_argument(
        "--durable", action=BooleanOptionalAction, help="commits survive a crash of the machine; default: yes"
    )
    add_kafka(settings)
    add_assignments(settings, "--spark", "a setting of the Spark session; may be repeated")


def _describe(commands: Commands) -> None:
    help = "show the topology that a Python file builds"
    parser = _command(commands, "describe", help, runs="plan:describe")
    parser.add_argument("file", metavar=FILE)
    form = parser.add_mutually_exclusive_group()
    for name, help in (
        ("mermaid", "as a Mermaid flowchart"),
        ("dot", "as a Graphviz digraph"),
        ("plan", "the rounds, stores and shuffles that Spark will run"),
    ):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=help)
    add_options(parser, ("--partitions", "N", positive, "state partitions, for --plan"))


def _plan(commands: Commands) -> None:
    parser = _command(
        commands,
        "plan",
        "say what a topology keeps, loses and needs of a state",
        "Compares the topology of a file with a state folder: stores that stay, change, are new or gone; topics that "
        "continue or begin; whether the application would start. Writes nothing. Exit code 1 if it would not start.",
    )
    parser.add_argument("file", metavar=FILE)
    parser.add_argument(
        "--against", type=some, metavar=STATE, required=True, help="the state, a folder or URI"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_options(parser, ("--application-id", "ID", str, "default: as crossstream run takes it"))
    parser.set_defaults(kafka_config=None, kafka=[], spark=[], topics_dir=".")


def _topics(commands: Commands) -> None:
    help = "write, read, list, create and delete topics"
    add = _group(commands, "topics", help, "Topics in files or in Kafka, as JSON lines.", "topics")
    write = add("write", "append JSON lines to a topic", f"Appends records to a topic. {RECORD}")
    read = add("read", "print a topic as JSON lines", f"Prints the records of a topic. {RECORD}")
    listing = add("list", "list topics, their partitions and how many offsets they hold")
    listing.set_defaults(command="crossstream.cli.topics:list_topics")
    create = add("create", "create topics")
    delete = add("delete", "delete topics with all their records")
    for parser in (write, read):
        parser.add_argument("topic")
    write.add_argument("file", nargs="?", help="default: standard input")
    for parser in (create, delete):
        parser.add_argument("topic", nargs="+")
    for parser in (write, read, listing, create, delete):
        add_connection(parser)
    for parser in (write, read):
        add_serdes(parser)
    read.add_argument(
        "--from",
        dest="start",
        choices=("beginning", "end"),
        default="beginning",
        help="where to start (default: %(default)s); end with --max N: the last N records",
    )
    add_options(
        read,
        ("--max", "N", positive, "stop after N records"),
        ("--partition", "P", not_negative, "read this partition only"),
    )
    read.add_argument("--follow", action="store_true", help="wait for more records, until Ctrl-C")
    add_format(listing, "table", "json")
    create.add_argument("--partitions", type=positive, default=1, metavar="N", help="default: %(default)s")
    add_assignments(create, "--config", "a topic setting, such as cleanup.policy=compact; may be repeated")


def _query(commands: Commands) -> None:
    parser = _command(
        commands,
        "query",
        "read the stores of an application, while it runs or after",
        "Lists the stores of a state folder, or prints rows of one. Only committed batches are visible. A range "
        "includes both ends; an empty text ('') means no limit. Options come last. Write keys that begin with "
        "a dash after --, at the very end.",
        usage="crossstream query STATE_DIR [STORE [get KEY | range [FROM [TO]] | prefix P | all]] [options]",
    )
    parser.add_argument("state_dir", type=some, metavar=STATE)
    parser.add_argument("store", metavar="STORE", nargs="?")
    parser.add_argument(
        "operation",
        metavar="get KEY | range [FROM [TO]] | prefix P | all",
        nargs="*",
        default=[],  # else argparse says that it is required
        help="default: all",
    )
    add_format(parser, "table", "json", "csv")
    time = "of a versioned store: the value valid then (ms since the epoch, or 2026-01-31T12:00:00)"
    add_options(
        parser,
        ("--max", "N", positive, "print at most N rows"),
        ("--as-of", "BATCH", not_negative, "the state after this batch, which must be retained"),
        ("--as-of-time", "T", str, time),
    )


def _why(commands: Commands) -> None:
    parser = _command(
        commands,
        "why",
        "show which input records made a row, or where a missing row ended",
        "Shows the input records that made a row of a result, step by step; for a row that is missing, the step where "
        "it ended. The functions of the application are needed, so name its file first; without it, the command "
        "shows what the row was after each retained batch.",
        usage="crossstream why [app.py[:name]] STATE_DIR STORE KEY [options]",
        runs="recompute:why",
    )
    parser.add_argument("named", metavar="app.py STATE_DIR STORE KEY", nargs="+")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="default: %(default)s, a tree"
    )
    start = "of a store of windows or sessions: the one that begins then (ms); default: all of the key"
    add_options(
        parser,
        ("--as-of", "BATCH", not_negative, "the row after this batch, which must be retained"),
        ("--start", "MS", not_negative, start),
    )
    _add_inputs(parser)


def _verify(commands: Commands) -> None:
    parser = _command(
        commands,
        "verify",
        "compute the results again from the topics, and compare; exit code 1 if rows differ",
        "Computes the stores of an application again, from the topics up to the committed offsets, in one batch. "
        "Shows the rows of the state that differ. Exit code 1 if there are any.",
        runs="recompute:verify",
    )
    parser.add_argument("file", metavar=FILE)
    parser.add_argument("state_dir", type=some, metavar=STATE)
    add_options(
        parser,
        ("--sample", "PERCENT", share, "compare the rows of so many keys only, such as 1%%"),
        ("--as-of", "BATCH", not_negative, "the state after this batch, which must be retained"),
    )
    _add_differences(parser)
    _add_inputs(parser)


def _shadow(commands: Commands) -> None:
    parser = _command(
        commands,
        "shadow",
        "compare what an application writes with the topic of another one; exit code 1 if rows differ",
        "Computes what an application gives from all records that its topics hold, and compares that with the output "
        "topic of another application with the same inputs. It starts nothing, and writes nothing.",
        runs="recompute:shadow",
    )
    parser.add_argument("file", metavar=FILE)
    parser.add_argument("--against", metavar="TOPIC", required=True, help="the other application's topic")
    add_options(
        parser,
        (
            "--topic",
            "TOPIC",
            some,
            "this application's topic; default: the one of the same name, or the only one",
        ),
        (
            "--as",
            "table|stream",
            None,
            "compare the last record of each key, or all; default: what the topic is",
        ),
    )
    _add_differences(parser)
    _add_inputs(parser)


def _add_differences(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--max", type=positive, default=10, metavar="N", help="show N rows (default: %(default)s)"
    )
    add_format(parser, "table", "json")


def _add_inputs(parser: ArgumentParser) -> None:
    add_options(parser.add_mutually_exclusive_group(), *TOPICS)
    add_kafka(parser)


def _state(commands: Commands) -> None:
    add = _group(
        commands,
        "state",
        "inspect, verify, rescale, back up and fork the state of an application",
        "Shows what a state folder holds, checks its files, copies it, or changes its number of state partitions.",
        "state",
    )
    inspect = add(
        "inspect",
        "list the stores: kind, serdes, rows, bytes, runs, stream time",
        "Lists the stores after the newest batch, or the state partitions of one. Rows are counted in the files: "
        "replaced and deleted ones count until compaction removes them.",
    )
    verify = add("verify", "check every file of every retained batch; exit code 1 on a problem")
    rescale = add(
        "rescale",
        "change the number of state partitions of a stopped application",
        "Changes the number of state partitions. The application does the same when it starts with another one.",
    )
    backup = add(
        "backup",
        "copy the newest commit, also while the application runs",
        "Copies the state after the newest commit to an empty folder or URI. The application may run. On one file "
        "system the files are hard links; else they are copied and checked.",
    )
    restore = add("restore", "copy a backup to an empty state folder")
    fork = add(
        "fork",
        "give a second application the state of this one, without copying it",
        "Makes a second application that continues from the newest commit of the first, which may run. On one file "
        "system the files are hard links; else they are copied.",
    )
    restore.add_argument("backup", type=some, metavar="BACKUP")
    for parser in (inspect, verify, rescale, backup, restore, fork):
        parser.add_argument("state_dir", type=some, metavar=STATE)
    backup.add_argument("target", type=some, metavar="TARGET")
    fork.add_argument("new_state_dir", type=some, metavar="NEW_STATE_DIR")
    fork.add_argument(
        "--application-id", metavar="ID", required=True, help="the name of the second application"
    )
    inspect.add_argument("store", metavar="STORE", nargs="?", help="show the state partitions of this store")
    for parser in (inspect, verify):
        add_format(parser, "table", "json")
    rescale.add_argument("--partitions", type=positive, metavar="N", required=True, help="state partitions")


def _ui(commands: Commands) -> None:
    parser = _command(
        commands,
        "ui",
        "show an application in the browser, while it runs elsewhere or after",
        "Serves a page that shows the application of a state folder, until Ctrl-C. It only reads. It shows more of an "
        "application that runs with --ui itself: lag, phases, dropped records and the drawing are not in its state.",
    )
    parser.add_argument("state_dir", type=some, metavar=STATE)
    parser.add_argument("--port", type=port, default=UI_PORT, metavar="PORT", help="default: %(default)s")
    help = (
        "where it listens; any other than the default needs a token, which is printed (default: %(default)s)"
    )
    parser.add_argument("--host", type=some, default="127.0.0.1", metavar="ADDRESS", help=help)
    help = "the application, app.py[:name]: the page draws it, and shows which records made a row"
    parser.add_argument("--app", type=some, metavar=FILE, help=help)
    _add_inputs(parser)


def _types(commands: Commands) -> None:
    parser = _command(
        commands,
        "types",
        "print the dataclasses of a schema in a schema registry",
        "Prints a Python module with the dataclasses of an Avro or JSON schema, for serdes.confluent_avro and "
        "serdes.confluent_json.",
    )
    parser.add_argument("registry", type=some, metavar="REGISTRY", help="such as http://localhost:8081")
    parser.add_argument("subject", type=some, metavar="SUBJECT", help="such as orders-value")
    add_options(parser, ("--version", "N", positive, "of the subject (default: the newest)"))


def _broker(commands: Commands) -> None:
    help = "run a Kafka broker for development on this machine"
    add = _group(
        commands, "broker", help, "A single-node Kafka on this machine, in the background.", "development"
    )
    start = add("start", "start it; returns when it answers")
    stop = add("stop", "stop it, and the registry and Connect beside it; its topics stay")
    status = add("status", "report which ones run")
    for parser in (start, stop):
        parser.add_argument("--port", type=port, default=9092, help="default: %(default)s")
    status.add_argument("--port", type=port, help="of one broker (default: all that were started here)")
    add_options(start, ("--dir", "DIR", some, "folder of topics and log (default: in the cache, by port)"))
    for name, default, what in (
        ("registry", 8081, "Apicurio Registry, a schema registry with Confluent's interface"),
        ("connect", 8083, "Kafka Connect with Debezium's connector for Postgres"),
    ):
        help = f"also start {what} (default port: {default})"
        start.add_argument(f"--{name}", nargs="?", type=port, const=default, metavar="PORT", help=help)


def _doctor(commands: Commands) -> None:
    parser = _command(commands, "doctor", "check Java, PySpark and the rest; show how to fix what is wrong")
    parser.add_argument("--full", action="store_true", help="also run a small join on Spark")
    parser.add_argument(
        "--state-dir",
        type=some,
        default="crossstream-state",
        metavar="DIR",
        help="check the disk of this folder, or whether this URI answers (default: ./%(default)s)",
    )
    add_options(parser, ("--bootstrap-servers", "HOST:PORT", some, "check whether this Kafka answers"))


def _bench(commands: Commands) -> None:
    help = "run one benchmark or all, each beside its peers"
    parser = _command(commands, "bench", help, runs="development:bench")
    parser.add_argument("name", nargs="?", help="such as fk")
    parser.add_argument("rest", nargs=REMAINDER, help="options of the benchmark; NAME --help lists them")
