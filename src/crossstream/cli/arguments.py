"""Every command of the command line and its options. Nothing but argparse is needed to read them (decision 0034)."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, BooleanOptionalAction

from crossstream._version import __version__
from crossstream.cli import state_arguments
from crossstream.cli.options import (
    FILE,
    TOPICS,
    UI_PORT,
    Commands,
    Parser,
    add_assignments,
    add_command,
    add_connection,
    add_flag,
    add_format,
    add_group,
    add_kafka,
    add_option,
    add_options,
    add_serdes,
    duration,
    not_negative,
    on_error,
    port,
    positive,
    some,
)

RECORD = (
    'A record is a line {"key": …, "value": …, "timestamp": ms, "partition": n, "headers": {name: text}}; '
    "the key or the value may be left out."
)


def make_parser() -> ArgumentParser:
    """The parser; each command sets ``command``, the ``module:function`` that carries it out."""
    parser = Parser(
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
        state_arguments.plan,
        state_arguments.evolve,
        _topics,
        state_arguments.query,
        state_arguments.why,
        state_arguments.verify,
        state_arguments.shadow,
        state_arguments.replay,
        state_arguments.state,
        state_arguments.ui,
        _broker,
        _doctor,
        _bench,
    ):
        add(commands)
    return parser


def _demo(commands: Commands) -> None:
    parser = add_command(
        commands, "demo", "show a foreign-key join of two changing tables on Spark", runs="dev.demo:main"
    )
    kafka = "use topics on a Kafka broker instead of files; starts one and stops it if none runs"
    add_flag(parser, "--kafka", kafka)
    parser.add_argument(
        "--postgres",
        dest="command",
        action="store_const",
        const="crossstream.dev.demo_postgres:main",
        help="show changes of tables in a Postgres instead, read by Debezium; starts and stops all servers",
    )
    parser.add_argument(
        "--spark",
        dest="command",
        action="store_const",
        const="crossstream.dev.demo_spark:main",
        help="show tables of a lake instead, and their join as a table of Spark; needs crossstream[delta]",
    )
    add_option(parser, "--port", "PORT", port, "the broker's port (default: %(default)s)", default=9092)
    folder = "the folder of topics and state; the demo empties it first (default: ./%(default)s)"
    add_option(parser, "--dir", "DIR", some, folder, default="crossstream-demo")


def _run(commands: Commands) -> None:
    parser = add_command(
        commands,
        "run",
        "run the topology that a Python file builds",
        "Runs the topology that a Python file builds. It is a Topology, a StreamsBuilder, or a function that "
        "returns one. Its name is topology, builder or build, or the one given (app.py:name). The settings are "
        "the StreamsConfig named config, if there is one; the options below override it.",
        runs="cli.begin:main",
    )
    parser.add_argument("file", metavar=FILE)
    add_flag(parser, "--once", "process the records of this moment, then exit")
    again = "start again up to N times in a row, after failures that a start can cure (default: %(default)s)"
    add_option(parser, "--restarts", "N", not_negative, again, default=0)
    form = parser.add_mutually_exclusive_group()
    views = "a live view, a line for each batch, or JSON lines (default: live on a terminal, else lines)"
    add_option(form, "--format", "auto|live|lines|json", None, f"progress: {views}", default="auto")
    form.add_argument("--json", dest="format", action="store_const", const="json", help="as --format json")
    settings = parser.add_argument_group("settings (see StreamsConfig)")
    add_options(settings.add_mutually_exclusive_group(), *TOPICS)
    bad, stuck = (
        "fail|skip|dead-letter:TOPIC",
        "a batch that takes longer counts as stuck; default: 10 minutes",
    )
    add_options(
        settings,
        ("--application-id", "ID", str, "default: the name of the file"),
        ("--state-dir", "DIR", some, "folder or URI; default: ./crossstream-state/ID"),
        ("--engine", "spark|local", None, "what runs the batches; local: this process; default: spark"),
        ("--partitions", "N", positive, "state partitions"),
        ("--idle-after", "DURATION", duration, "without input for so long, the clock moves stream time"),
        ("--max-task-idle", "DURATION", duration, "how long a stream join waits for a topic without records"),
        ("--state-mode", "private|group|shared", None, "who may read the state files; default: the owner"),
        ("--trigger", "DURATION", duration, 'from one batch to the next: "2 seconds"'),
        ("--max-records-per-batch", "N", positive, "the largest batch; default: all waiting records"),
        (
            "--max-transaction-records",
            "N",
            positive,
            "split larger transactions of a database; default: 5,000,000",
        ),
        ("--single-task-rows", "N", not_negative, "one task processes batches of up to N rows; 0: never"),
        ("--deserialization-errors", bad, on_error, "when a record cannot be decoded; default: fail"),
        ("--processing-errors", bad, on_error, "when a function raises on a record; default: fail"),
        ("--on-lost-records", "fail|skip", None, "when records were deleted before they were read"),
        ("--on-lost-state", "fail|restart", None, "when Kafka has offsets, but the state folder is empty"),
        ("--on-change", "refuse|evolve", None, "when the state is of another topology; default: refuse"),
        ("--broker-patience", "DURATION", duration, "how long to wait for a broker that does not answer"),
        ("--health-port", "PORT", port, "answer GET /health and /ready here"),
        ("--health-host", "ADDRESS", some, "where it listens; default: 127.0.0.1, this machine only"),
        ("--health-patience", "DURATION", duration, stuck),
        ("--retain-batches", "N", positive, "past batches that stay readable (query --as-of)"),
        ("--metrics-port", "PORT", port, "serve numbers for Prometheus at this port"),
        ("--metrics-host", "ADDRESS", some, "where that listens; default: 127.0.0.1, this machine only"),
        ("--ui-host", "ADDRESS", some, "where the page listens; default: 127.0.0.1, this machine only"),
    )
    page = "serve a page that shows the running application (default port: %(const)s)"
    add_option(settings, "--ui", "PORT", port, page, dest="ui_port", nargs="?", const=UI_PORT)
    is_open = "the page needs no token; default: the address that is shown has one"
    settings.add_argument("--ui-open", action=BooleanOptionalAction, help=is_open)
    durable = "commits survive a crash of the machine; default: yes"
    settings.add_argument("--durable", action=BooleanOptionalAction, help=durable)
    add_kafka(settings)
    add_assignments(settings, "--spark", "a setting of the Spark session; may be repeated")


def _describe(commands: Commands) -> None:
    help = "show the topology that a Python file builds"
    parser = add_command(commands, "describe", help, runs="cli.loading:describe")
    parser.add_argument("file", metavar=FILE)
    form = parser.add_mutually_exclusive_group()
    for name, help in (
        ("mermaid", "as a Mermaid flowchart"),
        ("dot", "as a Graphviz digraph"),
        ("plan", "the rounds, stores and shuffles that Spark will run"),
    ):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=help)
    add_options(parser, ("--partitions", "N", positive, "state partitions, for --plan"))


def _topics(commands: Commands) -> None:
    help = "write, read, list, create and delete topics"
    add = add_group(commands, "topics", help, "Topics in files or in Kafka, as JSON lines.", "topics")
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
    start = "where to start (default: %(default)s); end with --max N: the last N records"
    add_option(read, "--from", "beginning|end", None, start, dest="start", default="beginning")
    add_options(
        read,
        ("--max", "N", positive, "stop after N records"),
        ("--partition", "P", not_negative, "read this partition only"),
    )
    add_flag(read, "--follow", "wait for more records, until Ctrl-C")
    add_format(listing, "table", "json")
    add_option(create, "--partitions", "N", positive, "default: %(default)s", default=1)
    add_assignments(create, "--config", "a topic setting, such as cleanup.policy=compact; may be repeated")


def _broker(commands: Commands) -> None:
    help = "run a Kafka broker for development on this machine"
    add = add_group(
        commands, "broker", help, "A single-node Kafka on this machine, in the background.", "commands", "dev"
    )
    start = add("start", "start it; returns when it answers")
    stop = add("stop", "stop it, and the registry and Connect beside it; its topics stay")
    status = add("status", "report which ones run")
    for parser in (start, stop):
        add_option(parser, "--port", "PORT", port, "default: %(default)s", default=9092)
    add_option(status, "--port", "PORT", port, "of one broker (default: all that were started here)")
    add_options(start, ("--dir", "DIR", some, "folder of topics and log (default: in the cache, by port)"))
    for name, default, what in (
        ("registry", 8081, "Apicurio Registry, a schema registry with Confluent's interface"),
        ("connect", 8083, "Kafka Connect with Debezium's connector for Postgres"),
    ):
        help = f"also start {what} (default port: {default})"
        add_option(start, f"--{name}", "PORT", port, help, nargs="?", const=default)


def _doctor(commands: Commands) -> None:
    parser = add_command(
        commands,
        "doctor",
        "check Java, PySpark and the rest; show how to fix what is wrong",
        runs="dev.doctor:main",
    )
    add_flag(parser, "--full", "also run a small join on Spark")
    disk = "check the disk of this folder, or whether this URI answers (default: ./%(default)s)"
    add_option(parser, "--state-dir", "DIR", some, disk, default="crossstream-state")
    add_options(parser, ("--bootstrap-servers", "HOST:PORT", some, "check whether this Kafka answers"))


def _bench(commands: Commands) -> None:
    help = "run one benchmark or all, each beside its peers"
    parser = add_command(commands, "bench", help, runs="dev.commands:bench")
    parser.add_argument("name", nargs="?", help="such as fk")
    parser.add_argument("rest", nargs=REMAINDER, help="options of the benchmark; NAME --help lists them")
