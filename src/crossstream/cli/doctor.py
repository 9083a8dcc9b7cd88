"""`crossstream doctor`: what is there, what is wrong, and how to fix it."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from crossstream.cli.checks import Check, all_checks
from crossstream.cli.console import aligned, is_terminal, make_console
from crossstream.errors import CrossStreamError, told

STYLES = {"ok": "green", "note": "cyan", "problem": "bold red"}


def main(arguments: Namespace) -> int:
    """Prints a table of all checks; 1 if there is a problem."""
    checks = list(all_checks(arguments))
    if arguments.full:
        checks.append(_join_on_spark(debug=arguments.debug))
    _show(checks)
    problems = [check for check in checks if check.result == "problem"]
    for check in problems:
        print(f"\n{check.subject}: {check.found}\n  fix: {check.fix}")
    if not problems:
        hint = "" if arguments.full else "; crossstream doctor --full runs a join on Spark"
        print(f"\nno problems found{hint}")
    return 1 if problems else 0


def _join_on_spark(*, debug: bool) -> Check:
    """The first step of the demo, in a folder that is deleted afterwards."""
    from crossstream.cli.loading import load
    from crossstream.cli.sparklog import SparkOutput
    from crossstream.demo.folder import DemoFolder
    from crossstream.demo.market import STEPS, Market
    from crossstream.spark import SparkStreams
    from crossstream.spark.topics import connection_of

    with tempfile.TemporaryDirectory(prefix="crossstream-doctor-") as place:
        folder = DemoFolder(Path(place))
        folder.empty()
        folder.write_application()
        loaded = load(str(folder.application))
        assert loaded.config is not None
        connection = connection_of(loaded.config)
        assert connection is not None
        output = SparkOutput(print if debug else _ignore, folder.log, everything=debug)
        try:
            with SparkStreams(loaded.topology, loaded.config) as app:
                market = Market(connection, app)
                with output.inherited():
                    market.open()
                outcome = market.apply(STEPS[0].changes)
        except Exception as error:
            if debug:
                raise
            return Check("a join on Spark", "problem", _what(error), _fix(error, folder.log))
        finally:
            output.close()
    found = f"{outcome.records} records in, {len(outcome.after)} rows out, {outcome.seconds:.1f} s"
    return Check("a join on Spark", "ok" if len(outcome.after) == 4 else "problem", found, "report this")


def _ignore(line: str) -> None:
    """What workers print is of no interest here."""


def _what(error: Exception) -> str:
    if isinstance(error, CrossStreamError):
        return f"[{error.code}] {error.what}"
    return told(error)


def _fix(error: Exception, log: Path) -> str:
    """The error's own advice, and the end of Spark's log."""
    last = log.read_text(encoding="utf-8").splitlines()[-5:] if log.is_file() else []
    advice = getattr(error, "next", None) or "crossstream doctor --full --debug shows all that Spark says"
    return "\n       ".join([advice, *last])


def _show(checks: Iterable[Check]) -> None:
    rows = [(check.subject, check.result, check.found) for check in checks]
    head = ("what", "result", "found")
    if not is_terminal(sys.stdout):
        print(aligned(head, rows, [False] * 3))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in head:
        table.add_column(name, overflow="fold")
    for subject, result, found in rows:
        table.add_row(Text(subject), Text(result, STYLES[result]), Text(found))
    make_console(sys.stdout).print(table, soft_wrap=False)
