"""The page of Nexmark shows the code that runs."""

from __future__ import annotations

from benchmarks.nexmark.page import PAGE, page
from benchmarks.nexmark.queries import OURS
from benchmarks.nexmark.reference import QUERIES


def test_the_page_is_written_from_the_queries() -> None:
    assert PAGE.read_text() == page(), "run python -m benchmarks.nexmark.page"


def test_each_query_is_on_it_with_its_sql() -> None:
    text = page()
    for query in OURS:
        assert f"\ndef {query}(nexmark: Nexmark)" in text
        assert QUERIES[query].sql.strip().splitlines()[-1].strip() in text
