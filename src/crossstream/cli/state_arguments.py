"""The commands that show, check, compute again or copy what an application keeps and writes, and their options."""

from __future__ import annotations

from crossstream.cli.options import (
    FILE,
    STATE,
    UI_PORT,
    Commands,
    add_assignments,
    add_command,
    add_differences,
    add_flag,
    add_format,
    add_group,
    add_inputs,
    add_option,
    add_options,
    batch_or_lsn,
    not_negative,
    port,
    positive,
    share,
    some,
)

REGISTRY = "the schema registry to ask for schemas of rows; the one that the state names is not asked"


def plan(commands: Commands) -> None:
    parser = add_command(
        commands,
        "plan",
        "say what a topology keeps, loses and needs of a state",
        "Compares the topology of a file with a state folder: stores that stay, change, are new or gone; topics that "
        "continue or begin; whether the application would start. Writes nothing. Exit code 1 if it would not start.",
    )
    parser.add_argument("file", metavar=FILE)
    add_option(parser, "--against", STATE, some, "the state, a folder or URI", required=True)
    add_flag(parser, "--json", "print one JSON object")
    add_options(parser, ("--application-id", "ID", str, "default: as crossstream run takes it"))
    parser.set_defaults(kafka_config=None, kafka=[], spark=[], topics_dir=".")


def query(commands: Commands) -> None:
    parser = add_command(
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
        ("--as-of", "BATCH", batch_or_lsn, "the state after this batch, which must be retained"),
        ("--as-of-time", "T", str, time),
        ("--registry", "URL", some, REGISTRY),
    )


def why(commands: Commands) -> None:
    parser = add_command(
        commands,
        "why",
        "show which input records made a row, or where a missing row ended",
        "Shows the input records that made a row of a result, step by step; for a row that is missing, the step where "
        "it ended. The functions of the application are needed, so name its file first; without it, the command "
        "shows what the row was after each retained batch.",
        usage="crossstream why [app.py[:name]] STATE_DIR STORE KEY [options]",
        runs="cli.recompute:why",
    )
    parser.add_argument("named", metavar="app.py STATE_DIR STORE KEY", nargs="+")
    add_option(parser, "--format", "text|json", None, "default: %(default)s, a tree", default="text")
    start = "of a store of windows or sessions: the one that begins then (ms); default: all of the key"
    add_options(
        parser,
        ("--as-of", "BATCH", batch_or_lsn, "the row after this batch, which must be retained"),
        ("--start", "MS", not_negative, start),
        ("--registry", "URL", some, REGISTRY),
    )
    add_inputs(parser)


def verify(commands: Commands) -> None:
    parser = add_command(
        commands,
        "verify",
        "compute the results again from the topics, and compare; exit code 1 if rows differ",
        "Computes the stores of an application again, from the topics up to the committed offsets, in one batch. "
        "Shows the rows of the state that differ. Exit code 1 if there are any.",
        runs="cli.recompute:verify",
    )
    parser.add_argument("file", metavar=FILE)
    parser.add_argument("state_dir", type=some, metavar=STATE)
    add_options(
        parser,
        ("--sample", "PERCENT", share, "compare the rows of so many keys only, such as 1%%"),
        ("--as-of", "BATCH", batch_or_lsn, "the state after this batch, which must be retained"),
    )
    add_differences(parser)
    add_inputs(parser)


def shadow(commands: Commands) -> None:
    parser = add_command(
        commands,
        "shadow",
        "compare what an application writes with the topic of another one; exit code 1 if rows differ",
        "Computes what an application gives from all records that its topics hold, and compares that with the output "
        "topic of another application with the same inputs. It starts nothing, and writes nothing.",
        runs="cli.recompute:shadow",
    )
    parser.add_argument("file", metavar=FILE)
    add_option(parser, "--against", "TOPIC", str, "the other application's topic", required=True)
    ours = "this application's topic; default: the one of the same name, or the only one"
    kind = "compare the last record of each key, or all; default: what the topic is"
    add_options(parser, ("--topic", "TOPIC", some, ours), ("--as", "table|stream", None, kind))
    add_differences(parser)
    add_inputs(parser)


def evolve(commands: Commands) -> None:
    parser = add_command(
        commands,
        "evolve",
        "let a changed application take over its state, and send only the rows that differ",
        "Compares the topology of a file with the one that a state belongs to. Says what it found and will do, then "
        "does it in one commit: stores that mean the same stay, others are computed from stored tables and topics, and "
        "results get the rows that differ. Exit code 3 if --dry-run finds something to do.",
    )
    parser.add_argument("file", metavar=FILE)
    parser.add_argument("state_dir", type=some, metavar=STATE)
    add_flag(parser, "--dry-run", "say what would be done, and do nothing; exit code 3 if it is anything")
    changed = "compute this again, for its function changes: a store, an operator or a topic; may be repeated"
    parser.add_argument("--changed", action="append", type=some, default=[], metavar="STORE", help=changed)
    add_flag(parser, "--all", "compute again all that functions make")
    again = "send results of streams again, from the beginning of their topics or from a time on (ms, or ISO)"
    add_options(
        parser,
        ("--replay-from", "earliest|TIME", some, again),
        ("--application-id", "ID", str, "default: as crossstream run takes it"),
        ("--engine", "spark|local", None, "what computes it; local: this process; default: spark"),
    )
    add_format(parser, "text", "json")
    add_inputs(parser)
    add_assignments(parser, "--spark", "a setting of the Spark session; may be repeated")


def replay(commands: Commands) -> None:
    parser = add_command(
        commands,
        "replay",
        "run a batch of the past again, here, and compare what it gives",
        "Runs a retained batch again in this process, without Spark: the same records, from the state before it. The "
        "state is only read, and nothing is sent. Shows what it read, wrote and sent, and compares that with what was "
        "committed. Exit code 1 if something differs: a function was changed, or gives other results each time.",
        runs="cli.again:main",
    )
    parser.add_argument("file", metavar=FILE)
    parser.add_argument("state_dir", type=some, metavar="STATE_DIR|BUNDLE")
    add_option(parser, "--batch", "N", not_negative, "the batch", required=True)
    add_options(
        parser,
        ("--key", "KEY", str, "show what it read, kept and sent about this key"),
        ("--output", "FILE", some, "write the results to this file, as JSON lines"),
    )
    add_flag(parser, "--pdb", "stop in the debugger: at the first call of a function, and where one fails")
    at = "with --pdb: stop in this operator, or in functions of this name, only"
    add_options(parser, ("--at", "NAME", some, at))
    add_differences(parser)
    add_inputs(parser)


def state(commands: Commands) -> None:
    add = add_group(
        commands,
        "state",
        "inspect, verify, rescale, back up, fork, revert and bundle the state of an application",
        "Shows what a state folder holds, checks its files, copies it, changes its number of state partitions, packs a "
        "batch, or takes back a change of the application.",
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
    revert = add(
        "revert",
        "take back the newest change of an application (crossstream evolve)",
        "Goes back to the state before a change, while that is retained, and sends back the rows that the change had "
        "sent. Batches that came after it cannot be taken back.",
    )
    revert.set_defaults(command="crossstream.cli.evolve:revert")
    bundle = add(
        "bundle",
        "pack a batch into one file, to run it again elsewhere",
        "Packs a batch with its records, the state before it, and what it gave, as far as that is kept, into one file. "
        "crossstream replay runs it again from there. The state may be in use.",
    )
    bundle.set_defaults(command="crossstream.cli.again:bundle")
    restore.add_argument("backup", type=some, metavar="BACKUP")
    for parser in (inspect, verify, rescale, backup, restore, fork, revert, bundle):
        parser.add_argument("state_dir", type=some, metavar=STATE)
    backup.add_argument("target", type=some, metavar="TARGET")
    fork.add_argument("new_state_dir", type=some, metavar="NEW_STATE_DIR")
    add_option(fork, "--application-id", "ID", str, "the name of the second application", required=True)
    add_option(bundle, "--batch", "N", not_negative, "the batch", required=True)
    file = "the file to write (default: ID-N.bundle in this folder)"
    app = "the application, whose settings say where its topics are"
    add_options(bundle, ("--output", "FILE", some, file), ("--app", FILE, some, app))
    add_inputs(bundle)
    inspect.add_argument("store", metavar="STORE", nargs="?", help="show the state partitions of this store")
    for parser in (inspect, verify):
        add_format(parser, "table", "json")
    app = "the code of the change; needed for partitioners, functions and tables of a lake or database"
    add_option(revert, "--app", FILE, some, app)
    kept = "go back though batches came after the change: results stay until their inputs change"
    add_flag(revert, "--keep-results", kept)
    add_options(
        revert,
        ("--application-id", "ID", str, "default: as crossstream run takes it"),
        ("--engine", "spark|local", None, "what sends rows; local: this process; default: spark"),
    )
    add_inputs(revert)
    add_assignments(revert, "--spark", "a setting of the Spark session; may be repeated")
    add_option(rescale, "--partitions", "N", positive, "state partitions", required=True)


def ui(commands: Commands) -> None:
    parser = add_command(
        commands,
        "ui",
        "show an application in the browser, while it runs elsewhere or after",
        "Serves a page that shows the application of a state folder, until Ctrl-C. It only reads. It shows more of an "
        "application that runs with --ui itself: lag, phases, dropped records and the drawing are not in its state.",
    )
    parser.add_argument("state_dir", type=some, metavar=STATE)
    add_option(parser, "--port", "PORT", port, "default: %(default)s", default=UI_PORT)
    host = "where it listens; the address that is printed has a token, which is needed (default: %(default)s)"
    add_option(parser, "--host", "ADDRESS", some, host, default="127.0.0.1")
    add_flag(parser, "--open", "no token is needed: everybody who reaches the port reads the state")
    app = "the application, app.py[:name]: the page draws it, and shows which records made a row"
    add_option(parser, "--app", FILE, some, app)
    add_option(parser, "--registry", "URL", some, REGISTRY)
    add_inputs(parser)
