"""`make release`: builds wheel and source distribution, checks, installs and tries them. Publishes nothing.

1. Both are built into ``dist/``; the wheel is built once more from the source distribution and has to be the same.
2. Their files and metadata are what they should be (`tools.distributions`).
3. The wheel is installed in a new environment outside of the checkout, with the versions of the runtime lock; there
   the demo and a test with the test driver run (`tools.installed`).
4. Version, changelog and tag agree. Until a commit has a tag, what is missing before publishing is only listed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools import distributions

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-runtime.lock"
_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\] – (?P<date>\S+)$", re.MULTILINE)


def main() -> int:
    """Prints what is done and found; 1 if something is wrong."""
    version = version_of((ROOT / "src/crossstream/_version.py").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="crossstream-release-") as temporary:
        away = Path(temporary)
        wheel, faults = checked(version, away)
        if not faults:
            faults = tried(wheel, away)
    points = [*before_publishing(wheel), *disagreements(version, changelog(), tags(), changed())]
    is_tagged = any(tag.startswith("v") for tag in tags())
    print("".join(f"wrong: {fault}\n" for fault in faults), end="")
    print("".join(f"before publishing: {point}\n" for point in points), end="")
    if faults or (points and is_tagged):
        return 1
    print(f"crossstream {version} in dist/ is good" + ("" if points else " and ready to publish"))
    return 0


def checked(version: str, away: Path) -> tuple[Path, list[str]]:
    """The wheel in ``dist/``, built just now, and what is wrong with it and the source distribution."""
    say("Building the wheel and the source distribution")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    build(ROOT, ROOT / "dist")
    wheel, source = one(ROOT / "dist", "*.whl"), one(ROOT / "dist", "*.tar.gz")
    package = distributions.package_files(ROOT / "src" / "crossstream")
    files = distributions.wheel_files(wheel)
    say("Checking their files and metadata")
    faults = [
        *distributions.faults_of_wheel(files, package, version),
        *distributions.faults_of_source(distributions.source_files(source), package),
        *distributions.faults_of_metadata(metadata_of(wheel), version),
    ]
    again = distributions.wheel_files(wheel_from(source, away))
    if distributions.digests(again) != distributions.digests(files):
        faults.append("a wheel that is built from the source distribution has other files")
    return wheel, faults


def build(checkout: Path, target: Path, *options: str) -> None:
    """Builds wheel and source distribution, or what the options say, into ``target``."""
    run([sys.executable, "-m", "hatchling", "build", "-d", str(target), *options], checkout)


def wheel_from(source: Path, away: Path) -> Path:
    """A wheel from an unpacked source distribution."""
    with tarfile.open(source) as archive:
        archive.extractall(away / "source", filter="data")
    (checkout,) = (away / "source").iterdir()
    build(checkout, away / "again", "-t", "wheel")
    return one(away / "again", "*.whl")


def one(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def metadata_of(wheel: Path) -> bytes:
    return next(
        content for name, content in distributions.wheel_files(wheel).items() if name.endswith("/METADATA")
    )


def tried(wheel: Path, away: Path) -> list[str]:
    """What fails where the wheel is installed in a new environment, outside of the checkout."""
    say("Installing the wheel in a new environment (PySpark is large: about a minute)")
    environment = away / "environment"
    python, folder = str(environment / "bin" / "python"), away / "elsewhere"
    folder.mkdir()
    run([sys.executable, "-m", "venv", str(environment)], folder)
    run(
        [python, "-m", "pip", "install", "--quiet", "--no-compile", "--require-hashes", "-r", str(LOCK)],
        folder,
    )
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], folder)
    steps = {
        "Trying the command line and the test driver": [python, "-I", str(ROOT / "tools" / "installed.py")],
        "Checking its dependencies": [python, "-m", "pip", "check"],
        "Running the demo": [str(environment / "bin" / "crossstream"), "demo", "--dir", str(folder / "demo")],
    }
    faults = []
    for title, command in steps.items():
        say(title)
        try:
            run(command, folder)
        except subprocess.CalledProcessError as error:
            faults.append(f"{title.lower()} failed:\n{error.stdout}")
    return faults


def run(command: Sequence[str], folder: Path) -> str:
    """What a program prints; `CalledProcessError` if it fails. Modules of the checkout are not found."""
    there = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    there["DIST_EXTRA_CONFIG"] = str(ROOT / "tools" / "build.cfg")
    done = subprocess.run(
        command,
        cwd=folder,
        env=there,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return done.stdout


def version_of(text: str) -> str:
    """The version in the text of `_version.py`."""
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise ValueError("src/crossstream/_version.py has no version")
    return found[1]


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def tags() -> list[str]:
    """The tags of the commit that is checked out."""
    return run(["git", "tag", "--points-at", "HEAD"], ROOT).split()


def changed() -> bool:
    """Whether files differ from the commit that is checked out."""
    return bool(run(["git", "status", "--porcelain"], ROOT).strip())


def disagreements(version: str, log: str, of_commit: Sequence[str], has_changes: bool) -> Iterator[str]:
    """Where version, changelog, tag and commit do not agree."""
    heading = _HEADING.search(log)
    if heading is None:
        yield "CHANGELOG.md has no heading '## [VERSION] – DATE'"
    elif heading["version"] != version:
        yield f"the first heading of CHANGELOG.md is for {heading['version']}, and the version is {version}"
    elif not re.fullmatch(r"\d{4}-\d{2}-\d{2}", heading["date"]):
        yield f"CHANGELOG.md has {heading['date']!r} where version {version} has its date, such as 2030-01-31"
    versions = [tag for tag in of_commit if tag.startswith("v")]
    if versions != [f"v{version}"]:
        yield f"the commit has {'the tag ' + ', '.join(versions) if versions else 'no tag'}: it needs v{version}"
    if has_changes:
        yield "files differ from the commit: commit them or put them away"


def before_publishing(wheel: Path) -> Iterator[str]:
    """What an index shows badly, and only the owner of the repository can add."""
    text = metadata_of(wheel)
    if not distributions.urls_of(text):
        yield "[project.urls] in pyproject.toml is missing: name the repository and the documentation"
    links = distributions.links_without_host((ROOT / "README.md").read_text(encoding="utf-8"))
    if links:
        yield f"{len(links)} links of the README lead to files of the repository: an index needs whole addresses"


def say(text: str) -> None:
    print(f"{text}…", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"wrong: {' '.join(map(str, error.cmd))} failed:\n{error.stdout}")
