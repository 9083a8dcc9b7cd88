"""`make release` finds what is wrong with distributions, metadata, version, changelog and tag."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools import distributions, release

from tests.docs.pages import ROOT

VERSION = "1.2.3"
ABOUT = f"crossstream-{VERSION}.dist-info/"
PACKAGE = {"crossstream/__init__.py": b"", "crossstream/py.typed": b"", "crossstream/cli/main.py": b"main"}
WHEEL = {
    **PACKAGE,
    f"{ABOUT}METADATA": b"",
    f"{ABOUT}RECORD": b"",
    f"{ABOUT}WHEEL": b"",
    f"{ABOUT}entry_points.txt": b"[console_scripts]\ncrossstream = crossstream.cli:main\n",
    f"{ABOUT}licenses/LICENSE": b"",
}
SOURCE = {f"src/{name}": content for name, content in PACKAGE.items()} | dict.fromkeys(
    distributions.SOURCES, b""
)
DATED = f"# Changelog\n\n## [{VERSION}] – 2030-01-31\n\n- x\n\n## [1.2.2] – 2029-01-31\n"


def metadata(*without: str, **fields: str) -> bytes:
    """Metadata of a wheel that are right, but for these fields."""
    lines = {
        "Metadata-Version": "2.4",
        "Name": "crossstream",
        "Version": VERSION,
        "Summary": "Joins",
        "License-Expression": "Apache-2.0",
        "License-File": "LICENSE",
        "Keywords": "kafka",
        "Requires-Python": ">=3.10",
        "Description-Content-Type": "text/markdown",
        **{name.replace("_", "-"): text for name, text in fields.items()},
    }
    classifiers = [
        "Typing :: Typed",
        *(f"Programming Language :: Python :: {one}" for one in distributions.PYTHONS),
    ]
    head = [f"{name}: {text}" for name, text in lines.items() if name not in without]
    head += [f"Classifier: {classifier}" for classifier in classifiers]
    return ("\n".join(head) + "\n\n# crossstream\n").encode()


def test_right_distributions_have_no_faults():
    assert list(distributions.faults_of_wheel(WHEEL, PACKAGE, VERSION)) == []
    assert list(distributions.faults_of_source(SOURCE, PACKAGE)) == []
    assert list(distributions.faults_of_metadata(metadata(), VERSION)) == []


@pytest.mark.parametrize(
    ("missing", "added", "fault"),
    [
        ("", {"tests/test_a.py": b""}, "outside of the package: tests/test_a.py"),
        ("crossstream/py.typed", {}, "the wheel has no crossstream/py.typed"),
        (f"{ABOUT}licenses/LICENSE", {}, "licenses/LICENSE"),
        (f"{ABOUT}entry_points.txt", {}, "does not install the command"),
        ("crossstream/cli/main.py", {}, "lacks crossstream/cli/main.py"),
        ("", {"crossstream/test_a.py": b""}, "not the checkout: crossstream/test_a.py"),
        ("", {"crossstream/cli/main.py": b"old"}, "other content: crossstream/cli/main.py"),
    ],
)
def test_faults_of_a_wheel(missing, added, fault):
    files = {name: content for name, content in (WHEEL | added).items() if name != missing}
    assert fault in "\n".join(distributions.faults_of_wheel(files, PACKAGE, VERSION))


@pytest.mark.parametrize(
    ("missing", "added", "fault"),
    [
        ("LICENSE", {}, "has no LICENSE"),
        ("src/crossstream/__init__.py", {}, "lacks crossstream/__init__.py"),
        ("", {"tests/__pycache__/a.pyc": b""}, "left behind: tests/__pycache__/a.pyc"),
    ],
)
def test_faults_of_a_source_distribution(missing, added, fault):
    files = {name: content for name, content in (SOURCE | added).items() if name != missing}
    assert fault in "\n".join(distributions.faults_of_source(files, PACKAGE))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (metadata(Version="1.2.4"), "crossstream 1.2.4 is not crossstream 1.2.3"),
        (metadata(License_Expression="MIT"), "the licence is not Apache-2.0"),
        (metadata("License-File"), "the licence is not Apache-2.0"),
        (metadata("Summary"), "summary, keywords"),
        (metadata(Requires_Python="many"), "requires-python"),
        (metadata(Description_Content_Type="text/plain"), "the README is not the description"),
        (metadata().replace(b"# crossstream", b"crossstream"), "does not render"),
        (
            metadata().replace(b"Typing :: Typed", b"Typing :: Types"),
            "refuses the classifier 'Typing :: Types'",
        ),
        (
            metadata().replace(b"Python :: 3.13", b"Python :: 3"),
            "'Programming Language :: Python :: 3.13' is missing",
        ),
    ],
)
def test_faults_of_metadata(text, fault):
    assert fault in "\n".join(distributions.faults_of_metadata(text, VERSION))


def test_links_that_an_index_does_not_find():
    text = "[a](docs/a.md#b) ![i](i.png) [b](https://x.org/b) [c](#c) `[d](d.md)`\n\n| x |\n|---|\n| [e](e.md) |\n"
    assert distributions.links_without_host(text) == ["docs/a.md", "e.md", "i.png"]


def test_files_are_read_from_archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("crossstream/a.py", "x")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as source:
        member = tarfile.TarInfo("crossstream-1/src/a.py")
        member.size = 1
        source.addfile(member, io.BytesIO(b"x"))
    assert distributions.wheel_files(tmp_path / "a.whl") == {"crossstream/a.py": b"x"}
    assert distributions.source_files(tmp_path / "a.tar.gz") == {"src/a.py": b"x"}


def test_version_changelog_and_tag_that_agree():
    assert list(release.disagreements(VERSION, DATED, ["newest", f"v{VERSION}"], False)) == []


@pytest.mark.parametrize(
    ("version", "log", "tags", "changed", "point"),
    [
        ("1.2.4", DATED, ["v1.2.4"], False, "is for 1.2.3, and the version is 1.2.4"),
        (VERSION, DATED.replace("2030-01-31", "unreleased"), [f"v{VERSION}"], False, "'unreleased' where"),
        (VERSION, "# Changelog\n", [f"v{VERSION}"], False, "no heading"),
        (VERSION, DATED, [], False, "no tag: it needs v1.2.3"),
        (VERSION, DATED, ["v1.2.2"], False, "the tag v1.2.2: it needs v1.2.3"),
        (VERSION, DATED, [f"v{VERSION}"], True, "commit them"),
    ],
)
def test_version_changelog_and_tag_that_do_not_agree(version, log, tags, changed, point):
    (found,) = release.disagreements(version, log, tags, changed)
    assert point in found


def test_the_changelog_has_a_heading_for_the_version():
    version = release.version_of((ROOT / "src/crossstream/_version.py").read_text(encoding="utf-8"))
    points = list(release.disagreements(version, release.changelog(), [f"v{version}"], False))
    assert all("unreleased" in point for point in points)


@pytest.mark.slow
def test_both_distributions_of_this_checkout_are_right(tmp_path, monkeypatch):
    """What `make release` does before it installs."""
    checkout = tmp_path / "checkout"
    copy_checkout(checkout)
    monkeypatch.setattr(release, "ROOT", checkout)
    version = release.version_of((ROOT / "src/crossstream/_version.py").read_text(encoding="utf-8"))
    wheel, faults = release.checked(version, tmp_path / "away")
    assert faults == []
    assert wheel.parent == checkout / "dist"


def copy_checkout(target: Path) -> None:
    """What builds need of the checkout."""
    ignored = shutil.ignore_patterns("__pycache__", "*.log")
    for name in ("src", "tools", "docs/images"):
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "Makefile", ".gitignore"):
        shutil.copy(ROOT / name, target / name)
