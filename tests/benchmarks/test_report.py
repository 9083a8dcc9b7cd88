"""Sections of the results and pictures that benchmarks write."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.report import bars, section, table

RESULTS = "# Results\n\nIntroduction.\n\n## One\n\nold\n\n### Below one\n\nmore\n\n## Two\n\nkept\n"


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("One", "# Results\n\nIntroduction.\n\n## One\n\nnew\n\n## Two\n\nkept\n"),
        ("Two", "# Results\n\nIntroduction.\n\n## One\n\nold\n\n### Below one\n\nmore\n\n## Two\n\nnew\n"),
        ("Three", f"{RESULTS}\n## Three\n\nnew\n"),
    ],
)
def test_a_section_replaces_the_one_of_its_name_alone(tmp_path: Path, heading: str, expected: str) -> None:
    results = tmp_path / "RESULTS.md"
    results.write_text(RESULTS)
    section(heading, "\nnew\n", results)
    assert results.read_text() == expected
    section(heading, "new", results)
    assert results.read_text() == expected


def test_a_table_has_a_line_for_each_row() -> None:
    assert table(["side", "rows"], [["ours", 1]]) == "| side | rows |\n| --- | --- |\n| ours | 1 |"


def test_a_picture_shows_each_side_of_each_question_and_is_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    groups = {"q3": {"crossstream": 300_000.0, "flink": 70_000.0}, "q4": {"crossstream": 0.5}}
    first = bars("nexmark", "Nexmark", groups, "events a second", tmp_path).read_bytes()
    again = bars("nexmark", "Nexmark", groups, "events a second", tmp_path).read_bytes()
    assert first == again
    assert first.count(b"<svg") == 1
