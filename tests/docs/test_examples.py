"""Every Python block of the README and the documentation runs, and what it asserts is so."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from tests.docs.conftest import EACH_TIME, SPARK_PAGES, Readers
from tests.docs.pages import PAGES, Block, blocks, name_of
from tests.docs.run_page import run_python
from tests.docs.state_reader import StateFolder

KNOWN = {
    ("python",),
    ("python", "no-run"),
    ("python", "spark"),
    ("sh",),
    ("sql",),
    ("sh", "spark"),
    ("sql",),
    ("text",),
    ("json",),
    ("mermaid",),
}
PYTHON = [(page, found) for page in PAGES if (found := [b for b in blocks(page) if b.language == "python"])]
IN_PROCESS = [(page, [b for b in found if b.tags == ("python",)]) for page, found in PYTHON]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_fences_say_what_their_blocks_are(page: Path) -> None:
    assert {block.tags for block in blocks(page)} <= KNOWN


@pytest.mark.parametrize("found", [found for _, found in PYTHON], ids=[name_of(page) for page, _ in PYTHON])
def test_blocks_compile(found: list[Block]) -> None:
    for block in found:
        block.compiled()


@pytest.mark.parametrize(
    "found", [found for _, found in IN_PROCESS if found], ids=[name_of(p) for p, found in IN_PROCESS if found]
)
def test_blocks_run(found: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.chdir(tmp_path)
    for block in found:
        run_python(block, module)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in EACH_TIME else pytest.mark.nightly) for name in SPARK_PAGES],
)
def test_pages_run_on_spark(name: str, on_spark: Readers) -> None:
    error = on_spark.error_of(name)
    assert error is None, error


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_state_format_suffices_for_what_a_page_left(on_spark: Readers) -> None:
    """`test_state_format` reads what tests write; this is the state that Spark wrote for docs/queries.md."""
    folder = StateFolder(on_spark.folder_of("docs/queries.md") / "crossstream-state" / "shop")
    offers = folder.table("offers", folder.batches()[-1])
    assert {key.decode(): json.loads(value) for key, value in offers.items()} == {
        "scarf": {"name": "Scarf", "price": 19.5, "shop": "Best Knits"},
        "socks": {"name": "Socks", "price": 5.5, "shop": "Best Knits"},
    }
