"""What a wheel and a source distribution of crossstream have to hold, and what their metadata has to say."""

from __future__ import annotations

import hashlib
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from markdown_it import MarkdownIt
from packaging.metadata import ExceptionGroup, Metadata
from trove_classifiers import classifiers as known_classifiers
from trove_classifiers import deprecated_classifiers

LICENCE = "Apache-2.0"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
SOURCES = ("LICENSE", "PKG-INFO", "README.md", "CHANGELOG.md", "pyproject.toml")
"""Files of a source distribution beside the package."""
JUNK = re.compile(r"(^|/)(__pycache__|\.venv|\.git|\.pytest_cache|build|dist)(/|$)|\.(pyc|log|class)$")


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Each file of a wheel by its path."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def source_files(source: Path) -> dict[str, bytes]:
    """Each file of a source distribution by its path below the folder that all of them are in."""
    found = {}
    with tarfile.open(source) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                found[str(PurePosixPath(*PurePosixPath(member.name).parts[1:]))] = content.read()
    return found


def package_files(package: Path) -> dict[str, bytes]:
    """Each file of the package in the checkout, by its path in a wheel."""
    paths = {
        path: path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()
    }
    return {name: path.read_bytes() for path, name in paths.items() if not JUNK.search(name)}


def faults_of_wheel(files: Mapping[str, bytes], package: Mapping[str, bytes], version: str) -> Iterator[str]:
    """What is wrong with the files of a wheel, given those of the package in the checkout."""
    about = f"crossstream-{version}.dist-info/"
    others = sorted(name for name in files if not name.startswith(("crossstream/", about)))
    if others:
        yield f"the wheel has files outside of the package: {', '.join(others[:5])}"
    inside = {name: content for name, content in files.items() if name.startswith("crossstream/")}
    yield from _differences("the wheel", inside, package)
    for name in ("crossstream/py.typed", f"{about}licenses/LICENSE", f"{about}entry_points.txt"):
        if name not in files:
            yield f"the wheel has no {name}"
    if b"crossstream = crossstream.cli:main" not in files.get(f"{about}entry_points.txt", b""):
        yield "the wheel does not install the command crossstream"


def faults_of_source(files: Mapping[str, bytes], package: Mapping[str, bytes]) -> Iterator[str]:
    """What is wrong with the files of a source distribution."""
    yield from (f"the source distribution has no {name}" for name in SOURCES if name not in files)
    junk = sorted(name for name in files if JUNK.search(name))
    if junk:
        yield f"the source distribution has what a build or a run left behind: {', '.join(junk[:5])}"
    inside = {name.removeprefix("src/"): files[name] for name in files if name.startswith("src/")}
    yield from _differences("the source distribution", inside, package)


def _differences(subject: str, found: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> Iterator[str]:
    """Files that are missing, more or different."""
    for verb, names in (
        ("lacks", wanted.keys() - found.keys()),
        ("has, but not the checkout:", found.keys() - wanted.keys()),
        ("has with other content:", {name for name in wanted.keys() & found if found[name] != wanted[name]}),
    ):
        if names:
            yield f"{subject} {verb} {', '.join(sorted(names)[:5])}"


def faults_of_metadata(text: bytes, version: str) -> Iterator[str]:
    """What an index would refuse, or show wrongly, of the metadata of a wheel."""
    try:
        about = Metadata.from_email(text)
    except ExceptionGroup as group:
        yield from (f"metadata: {error}" for error in group.exceptions)
        return
    if (about.name, str(about.version)) != ("crossstream", version):
        yield f"metadata: {about.name} {about.version} is not crossstream {version}"
    if about.license_expression != LICENCE or about.license_files != ["LICENSE"]:
        yield f"metadata: the licence is not {LICENCE} in the file LICENSE"
    if not about.summary or not about.keywords or about.requires_python is None:
        yield "metadata: summary, keywords or the versions of Python are missing"
    yield from _faults_of_classifiers(about.classifiers or [])
    if about.description_content_type != "text/markdown" or not about.description:
        yield "metadata: the README is not the description"
    elif "<h1>crossstream</h1>" not in rendered(about.description):
        yield "the README does not render: it has no heading"


def _faults_of_classifiers(found: list[str]) -> Iterator[str]:
    for classifier in found:
        if classifier not in known_classifiers or classifier in deprecated_classifiers:
            yield f"metadata: an index refuses the classifier {classifier!r}"
    for wanted in ("Typing :: Typed", *(f"Programming Language :: Python :: {one}" for one in PYTHONS)):
        if wanted not in found:
            yield f"metadata: the classifier {wanted!r} is missing"


def rendered(description: str) -> str:
    """A description as an index shows it: Markdown with tables, HTML escaped."""
    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(description))


def urls_of(text: bytes) -> Mapping[str, str]:
    """The addresses that the metadata names."""
    return Metadata.from_email(text, validate=False).project_urls or {}


def links_without_host(description: str) -> list[str]:
    """Targets that lead to files of the repository: an index does not find them."""
    found = re.findall(r'(?:href|src)="([^"#]+)', rendered(description))
    return sorted({target for target in found if "://" not in target and not target.startswith("mailto:")})


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """A digest of each file, but not of the list of files."""
    return {
        name: hashlib.sha256(content).hexdigest()
        for name, content in files.items()
        if not name.endswith("/RECORD")
    }
