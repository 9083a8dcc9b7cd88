"""What pages call public is public, and what is public is on the page it belongs to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.config import StreamsConfig
from crossstream.query.store import StoreReader
from tests.docs.pages import PAGES, ROOT, name_of

DSL = (cs.StreamsBuilder, cs.KStream, cs.KTable, cs.BranchedKStream, cs.Topology)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    package = set(re.findall(r"\bcs\.([A-Za-z_]\w*)", text))
    made = set(re.findall(r"\bserdes\.([a-z]\w*)\(", text))
    assert {name for name in package if name not in cs.__all__} == set()
    assert {name for name in made if name not in serdes.__all__} == set()


def test_every_serde_is_on_the_page_for_java() -> None:
    text = (ROOT / "docs" / "java-to-python.md").read_text(encoding="utf-8")
    assert [name for name in serdes.__all__ if name != "Serde" and f"{name}(" not in text] == []


def test_every_method_of_the_dsl_is_on_the_page_for_java() -> None:
    text = (ROOT / "docs" / "java-to-python.md").read_text(encoding="utf-8")
    methods = {name for kind in DSL for name in vars(kind) if not name.startswith("_")}
    not_for_users = {"children", "nodes", "frames"}
    assert {name for name in methods - not_for_users if not re.search(rf"\b{name}\b", text)} == set()


def test_every_method_of_a_store_is_on_the_page_for_queries() -> None:
    text = (ROOT / "docs" / "queries.md").read_text(encoding="utf-8")
    methods = {
        name for name, member in vars(StoreReader).items() if not name.startswith("_") and callable(member)
    }
    assert {name for name in methods if f"`{name}(" not in text} == set()


def test_every_setting_is_in_the_docstring_and_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    settings = set(StreamsConfig.__dataclass_fields__)
    assert {name for name in settings if f"``{name}``" not in (StreamsConfig.__doc__ or "")} == set()
    assert {name for name in settings if name not in pages} == set()


def test_every_field_of_progress_is_on_the_page_for_production() -> None:
    from crossstream.metrics.observation import Progress

    text = (ROOT / "docs" / "in-production.md").read_text(encoding="utf-8")
    assert {name for name in Progress.__dataclass_fields__ if f"`{name}`" not in text} == set()


def test_every_reason_of_a_drop_is_on_the_page_for_bad_records() -> None:
    text = (ROOT / "docs" / "bad-records.md").read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    counted = set(re.findall(r'count_dropped\([^{)]*\{"([a-z-]+)"', source))
    counted |= set(re.findall(r'dropped(?:: [^=]*)? = \{"([a-z-]+)"', source))
    counted |= set(re.findall(r'dropped\["([a-z -]+)"\]', source))
    assert counted >= {"undecodable", "failed", "null-foreign-key", "expired-version", "lost by retention"}
    assert {reason for reason in counted if f"`{reason}`" not in text} == set()
