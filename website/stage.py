"""Writes the pages of the site into ``build/pages``: the pages of the repository, ready for the site's generator.

- A link out of ``docs/`` (``../README.md``, ``../examples/a.py``) leads to a page of the site with that file.
- Blocks such as ```` ```python no-run ```` keep only their language. Diagrams get a box that scrolls.
- The reference has a page for each group of public names. A public name in no group stops the build.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from tests.docs.pages import links

import crossstream

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
_DIAGRAM = re.compile(r"^```mermaid\n.*?\n```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".sh": "sh", ".toml": "toml", ".yml": "yaml"}

REFERENCE = {
    "Streams and tables": (
        "StreamsBuilder KStream BranchedKStream KTable GlobalKTable Topology keyed",
        "Begin with `StreamsBuilder`. Its methods give streams and tables, and theirs give more of them.",
    ),
    "Options": (
        "Consumed Produced Materialized Named Joined StreamJoined TableJoined Repartitioned Grouped Suppressed"
        " history offsets",
        "How a topic is read or written, and how an operator is named and keeps its state.",
    ),
    "Windows": (
        "JoinWindows TimeWindows SlidingWindows SessionWindows UnlimitedWindows Windowed",
        "How close in time two records of a join have to be, and the windows of aggregations.",
    ),
    "Aggregations": (
        "GroupedKStream GroupedKTable WindowedKStream CogroupedKStream agg",
        "What `group_by` gives, and the built-in aggregates.",
    ),
    "Processors": (
        "Record ProcessorContext KeyValueStore WindowStore VersionedStore",
        "What a processor of your own gets, and the stores it may use.",
    ),
    "Serdes": (
        "serdes debezium LeftOrRight prefixed",
        "From the bytes of keys and values to Python objects, and back.",
    ),
    "Running": ("run SparkStreams StreamsConfig DeadLetter", "An application on Spark, and its settings."),
    "Databases": (
        "once_in BatchMark",
        "Each batch of `for_each_batch` once, in a transaction of your database.",
    ),
    "Stores": (
        "open_store register query.store.StoreReader recompute.reason.Why recompute.reason.Step"
        " recompute.reason.InputRecord",
        "Results, read from any process and as tables of Spark, and which records made them.",
    ),
    "Testing": (
        "TopologyTestDriver TestInputTopic TestOutputTopic TestRecord",
        "A topology in the process of its test, without JVM and broker.",
    ),
    "Errors": (
        "CrossStreamError TopologyError CopartitionError ConfigError SerdeError ProcessingError SourceError"
        " SinkError StateError IncompatibleStateError",
        "[The page on errors](../errors.md) has every code, and what to do.",
    ),
}
"""Title of a page → the names on it, and its first sentence."""

MADE_BY_USERS = {"StreamsBuilder", "SparkStreams", "TopologyTestDriver"}
"""Classes that users call, beside the settings. Others are what a method returns."""


def check_reference() -> None:
    """Every public name is in one group."""
    grouped = [name for names, _ in REFERENCE.values() for name in names.split()]
    missing = set(crossstream.__all__) - {"__version__", *grouped}
    if missing:
        sys.exit(f"public names without a page: add them to REFERENCE in {__file__}: {sorted(missing)}")


def stage() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "website" / "assets", PAGES / "assets", ignore=shutil.ignore_patterns("README.md"))
    for folder in ("images", "monitoring"):
        shutil.copytree(ROOT / "docs" / folder, PAGES / folder)
    pages = {f"docs/{path.relative_to(ROOT / 'docs').as_posix()}" for path in (ROOT / "docs").rglob("*.md")}
    for path in sorted(pages | linked(pages)):
        write(site_uri(path), adapted(path))
    for title, (names, intro) in REFERENCE.items():
        entries = "".join(entry(name) for name in names.split())
        write(reference_uri(title), f"# {title}\n\n{intro}\n{entries}")


def write(uri: str, text: str) -> None:
    file = PAGES / uri
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def linked(pages: set[str]) -> set[str]:
    """The repository files outside of ``docs/`` that these pages lead to, directly or through such files."""
    found: set[str] = set()
    waiting = [*pages, "README.md", "CONTRIBUTING.md"]
    while waiting:
        page = waiting.pop()
        if not page.startswith("docs/"):
            found.add(page)
        if page.endswith(".md"):
            waiting.extend({path for _, path, _ in outside(page)} - found - pages)
    return found


def outside(page: str) -> Iterator[tuple[str, str, str]]:
    """The links of a page that lead to, or start from, files outside of ``docs/``: target, path, anchor."""
    for target in dict.fromkeys(links(ROOT / page)):
        path, hash_, anchor = target.partition("#")
        if not path or ":" in path:
            continue
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if (ROOT / path).is_dir():
            path += "/README.md" if (ROOT / path / "README.md").exists() else "/__init__.py"
        if not (ROOT / path).is_file():
            sys.exit(f"{page} links to {path}, which is not there")
        if not (path.startswith("docs/") and page.startswith("docs/")):
            yield target, path, hash_ + anchor


def site_uri(path: str) -> str:
    """Where a repository file is in the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"repository/{path}" + ("" if path.endswith(".md") else ".md")


def adapted(path: str) -> str:
    """A page with its links and blocks as the site needs them; a notebook as a page; another file as a block."""
    text = (ROOT / path).read_text(encoding="utf-8")
    fence = "`" * 8
    if path.endswith(".ipynb"):
        return notebook(text, fence)
    if not path.endswith(".md"):
        return f"# {path}\n\n{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n{fence}\n"
    for target, there, anchor in outside(path):
        relative = posixpath.relpath(site_uri(there), posixpath.dirname(site_uri(path)) or ".")
        text = text.replace(f"]({target})", f"]({relative}{anchor})")
    text = re.sub(r"^( *```\w+) .+$", r"\1", text, flags=re.MULTILINE)
    return _DIAGRAM.sub(r'<div class="diagram" markdown>\n\n\g<0>\n\n</div>', text)


def notebook(text: str, fence: str) -> str:
    """The cells of a notebook: text as it is written, code as blocks."""
    cells = ((cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"])
    return "\n\n".join(
        source if kind == "markdown" else f"{fence}python\n{source}\n{fence}" for kind, source in cells
    )


def reference_uri(title: str) -> str:
    return f"reference/{title.lower().replace(' ', '-')}.md"


def entry(name: str) -> str:
    """One name of the reference, with the methods that it inherits.

    Settings show their call and what else makes them, and no fields.
    """
    kind = getattr(crossstream, name, None)
    options: dict[str, Any] = {"merge_init_into_class": name in MADE_BY_USERS}
    if name == "serdes":
        options["signature_crossrefs"] = False  # the type bytes is not the serde of that name
    elif name.endswith("Error"):
        options["members"] = False
    elif is_dataclass(kind) and kind is not crossstream.Topology:
        makers = [maker for maker, member in vars(kind).items() if isinstance(member, classmethod)]
        options = {"merge_init_into_class": True, "members": makers or False}
    elif kind is not crossstream.Topology:
        options["inherited_members"] = True
    return f"\n::: crossstream.{name}\n    options: {json.dumps(options)}\n"


if __name__ == "__main__":
    check_reference()
    stage()
