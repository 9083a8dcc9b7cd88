"""What a dry run prints for each kind of change, pinned in golden/. `make golden` or PINNED=1 writes them anew."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest

from tests.evolution.kinds import KINDS
from tests.evolution.shop import Before, left_by

GOLDEN = Path(__file__).parent / "golden"


@cache
def before(kind: str) -> Before:
    return left_by(KINDS[kind][0]())


def text_of(kind: str) -> str:
    """The text, without the sizes of files, which are those of one version of Arrow."""
    return re.sub(r"\d+(\.\d)? (kB|bytes)", "N kB", before(kind).text(KINDS[kind][1]()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_each_kind_of_change_is_pinned(kind: str) -> None:
    text, file = text_of(kind), GOLDEN / f"{kind}.txt"
    if os.environ.get("PINNED"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_it_fits_a_terminal(kind: str) -> None:
    assert max(map(len, text_of(kind).splitlines())) <= 80


def test_every_golden_text_is_of_a_kind() -> None:
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(KINDS)
