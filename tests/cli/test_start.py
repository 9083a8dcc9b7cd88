"""The command line as a whole: what it loads, what it exits with."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.cli.arguments import make_parser
from crossstream.cli.options import SERDES
from tests.cli.cases import ENVIRONMENT, ROOT, app_file, call, start

HEAVY = ("polars", "pyarrow", "numpy", "pandas", "pyspark", "confluent_kafka", "grpc", "rich", "msgspec")
COMMANDS = ("demo", "run", "describe", "plan", "topics", "query", "broker", "doctor", "bench")


def test_help_lists_every_command(capsys):
    outcome = call(capsys, "--help")
    assert outcome.code == 0
    assert all(f"  {command} " in outcome.out for command in COMMANDS)


@pytest.mark.parametrize(
    "command",
    [
        *([name] for name in COMMANDS),
        *(["topics", action] for action in ("write", "read", "list", "create")),
        *(["broker", action] for action in ("start", "stop", "status")),
    ],
    ids=" ".join,
)
def test_every_command_has_help(capsys, command):
    outcome = call(capsys, *command, "--help")
    assert outcome.code == 0
    assert "usage: crossstream" in outcome.out


def test_help_loads_nothing_heavy_and_is_quick():
    program = (
        "import sys, json\n"
        "from crossstream.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert set(json.loads(done.stdout.splitlines()[-1])) & set(HEAVY) == set()
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3


def test_python_dash_m_is_the_same():
    with start("--version") as process:
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, f"crossstream {cs.__version__}\n")


@pytest.mark.parametrize(
    "argv", [[], ["dance"], ["run"], ["topics", "read", "t"], ["broker", "start", "--port", "x"]]
)
def test_wrong_usage_exits_with_2(capsys, argv):
    outcome = call(capsys, *argv)
    assert outcome.code == 2
    assert "usage: crossstream" in outcome.err


@pytest.mark.parametrize(
    "argv",
    [
        ["query", ""],
        ["state", "verify", ""],
        ["demo", "--dir", ""],
        ["broker", "start", "--dir", ""],
        ["doctor", "--state-dir", ""],
        ["doctor", "--bootstrap-servers", ""],
        ["topics", "list", "--bootstrap-servers", ""],
        ["run", "app.py", "--bootstrap-servers", ""],
    ],
    ids=" ".join,
)
def test_a_place_that_is_empty_is_wrong_usage(capsys, monkeypatch, argv):
    monkeypatch.setattr("crossstream.cli._command", lambda name: pytest.fail("it runs"))
    outcome = call(capsys, *argv)
    assert outcome.code == 2
    assert "the text is empty" in outcome.err


@pytest.mark.parametrize("argv", [["demo"], ["broker", "start"], ["broker", "status"], ["broker", "stop"]])
def test_a_port_is_a_port(capsys, monkeypatch, argv):
    monkeypatch.setattr("crossstream.cli._command", lambda name: pytest.fail("it runs"))
    outcome = call(capsys, *argv, "--port", "65536")
    assert outcome.code == 2
    assert "'65536' is not a port: 1 to 65535" in outcome.err


def test_an_error_shows_code_where_and_next_but_no_traceback(capsys, tmp_path):
    outcome = call(capsys, "query", tmp_path / "nothing")
    assert outcome.code == 1
    assert re.fullmatch(r"\[CS-713\] .+\n  where: folder .+\n  next:  .+\n", outcome.err)


def test_debug_raises(tmp_path):
    with pytest.raises(cs.StateError, match="no state here"):
        call(None, "query", tmp_path / "nothing", "--debug")


def test_what_is_not_expected_is_an_error_too(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("crossstream.cli.loading.load", lambda file: 1 / 0)
    outcome = call(capsys, "describe", "app.py")
    assert outcome.code == 1
    assert "[CS-001] ZeroDivisionError: division by zero" in outcome.err
    with pytest.raises(ZeroDivisionError):
        call(capsys, "describe", "app.py", "--debug")


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    file = app_file(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "crossstream", "describe", str(file)],
        env=ENVIRONMENT,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_serde_without_a_type_can_be_named():
    plain = {
        name
        for name in serdes.__all__
        if name != "Serde"
        and not name.startswith(
            ("avro", "confluent", "debezium", "session_windowed", "windowed", "left_or_right")
        )
    }
    assert set(SERDES) == plain


def options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every long option, of every command below."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options_of(below)
        else:
            yield from (option for option in action.option_strings if option.startswith("--"))


def test_every_option_is_on_the_page():
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert {option for option in options_of(make_parser()) if option not in page} <= {"--version"}
