"""The code and the pages are in plain words: some phrases are refused, with what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

_GAP = r"""(?:[\s#>]|["']\s*\n\s*[rfb]*["'])+"""
"""Between two words of a phrase: blanks, line ends with comment marks, the seam of a string that continues."""
_VERB = r"(?:\w+ed|\w+en|read|made|put|kept|sent|built|cut|done|run|built|stored)"

INSTEAD = {
    r"told|tells|telling": "'report', 'say', 'show', or name who does what",
    r"anew": "'again'",
    r"mend(?:s|ed|ing)?": "'fix'",
    r"likewise": "'too', 'also', 'the same', or repeat it",
    r"whoever": "'the reader', 'the process that …', 'anyone who'",
    r"nobody": "'no one', 'no reader', 'no left row'",
    r"somebody": "'someone', 'a reader', 'another process'",
    r"who wants?": "'the reader', 'the operator that needs'",
    r"(?<!there\s)(?:is|are|was) none(?= (?:that|of)\b|[.,;:)]|$)": "'is not a valid …', 'does not exist'",
    r"(?<!soon\s)(?<!long\s)(?<!far\s)as it is(?! " + _VERB + r"\b)": "'unchanged'",
    r"lets?(?: \w+){0,2} go": "'skip', 'drop', 'release'",
    r"(?:hands?|handed|handing)(?: it| them)? on(?! the\b)": "'forwards', 'emits', 'passes on'",
    r"of the user's": "'of the user', 'your own'",
    r"so does one": "say the verb again",
    r"for ever": "'forever', or 'until you stop it'",
    r"go(?:es)? on(?! (?:top|disk|a|an|the|its|their)\b)": "'continue'",
    r"that there is none of": "'that does not exist'",
    r"a way that is none": "'is not supported'",
}
"""Each phrase as a pattern, in which a blank stands for a gap, and what to write instead."""


def _pattern(phrase: str) -> re.Pattern[str]:
    """Finds the phrase in names with underscores, too, and over the end of a line."""
    flags = "" if "none" in phrase else "i"  # x is None
    return re.compile(rf"(?<![^\W_])(?{flags}:{phrase.replace(' ', _GAP)})(?![^\W_])")


_PATTERNS = [(_pattern(phrase), instead) for phrase, instead in INSTEAD.items()]


def findings(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, phrase, what to write instead) of each phrase in the text."""
    for pattern, instead in _PATTERNS:
        for found in pattern.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, re.sub(_GAP, " ", found[0]), instead


def files() -> list[Path]:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    pages += (ROOT / "docs").rglob("*.md")
    pages += (path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".md"))
    return sorted([*pages, *(ROOT / "src").rglob("*.py")])


def test_words_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words!r}: write {instead}"
        for path in files()
        for line, words, instead in sorted(findings(path.read_text(encoding="utf-8")))
    ]
    assert not found, f"{len(found)} phrases are not plain\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the driver is told", ["told"]),
        ("Told twice", ["Told"]),
        ("told_by, _told and untold", ["told", "told"]),
        ("we recommend to amend", []),
        ("mending it", ["mending"]),
        ("a joiner is\n    # none that works", ["is none"]),
        ('"the name is "\n        f"none that works"', ["is none"]),
        ("if x is None: x is none_of(y), for there is none.", []),
        ("it stays as it is, so", ["as it is"]),
        ("it stays as it\nis", ["as it is"]),
        ("checked as it is decoded, as soon as it is there", []),
        ("for every row", []),
        ("it runs for\never", ["for ever"]),
        ("lets the record go", ["lets the record go"]),
        ("the batch goes on", ["goes on"]),
        ("goes on the disk, hands on the table", []),
        ("each operator hands it on", ["hands it on"]),
    ],
)
def test_phrases_are_found_wherever_lines_end(text: str, words: list[str]) -> None:
    assert [found for _, found, _ in sorted(findings(text))] == words
