"""The page in a real browser: Chromium, headless. What it shows is what the application has."""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.ui.source import LiveSource
from tests.faults.one_process import streams
from tests.metrics.shop import config_of, shop, write
from tests.ui.browser import CHROMIUM
from tests.ui.test_page import asked, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt install chromium"),
]


def browsed(folder: Path, address: str, *options: str) -> str:
    """The page after its scripts have run, or with ``--screenshot`` what Chromium says."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=3000",
        *options,
        address,
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    return run.stdout


def shown(document: str, name: str) -> str:
    """The text of the element with an id."""
    found = re.search(rf'id="{name}"[^>]*>(.*?)</(?:b|div|h1|span|article)>', document, re.DOTALL)
    assert found is not None, name
    return html.unescape(re.sub(r"<[^>]+>", " ", found[1]))


def fill(folder: Path) -> None:
    write(folder, "orders", [(f"o{n}", {"customer": f"c{n % 60}"}, 1_000 * n) for n in range(1234)])
    write(folder, "customers", [(f"c{n}", {"name": "<img src=x>"}, 5) for n in range(50)] + [(None, {}, 5)])


def test_it_shows_what_the_application_has(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        address = app.ui_address or ""
        until(lambda: bool(asked(address, "api/observation")["batches"]))
        document = browsed(tmp_path, f"{address}&still=1", "--dump-dom")
        progress = app.progress
    assert shown(document, "application") == "shop"
    assert shown(document, "lag") == "0"
    assert "1,285 in" in re.sub(r"<[^>]+>", "", document)
    assert "null-key" in shown(document, "dropped")
    assert f"{progress.state_rows['details']:,}" in shown(document, "state")
    (unmatched,) = progress.unmatched.values()
    assert f"{unmatched:,}" in shown(document, "unmatched")
    assert document.count('class="box"') == 7
    assert '<option value="details">' in document
    assert "1 dropped" in document


def test_what_was_not_answered_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    refused: list[str] = []
    for name in ("graph", "stores"):
        answers = getattr(LiveSource, name)

        def once_later(source: LiveSource, name: str = name, answers: Any = answers) -> Any:
            if name in refused:
                return answers(source)
            refused.append(name)
            raise cs.StateError("the state is not there yet", code="CS-713")

        monkeypatch.setattr(LiveSource, name, once_later)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        document = browsed(tmp_path, f"{app.ui_address}&still=1", "--dump-dom")
    assert sorted(refused) == ["graph", "stores"]
    assert document.count('class="box"') == 7
    assert '<option value="details">' in document


@pytest.mark.parametrize(("size", "scheme"), [("1440,1600", 1), ("500,2400", 0)])
def test_it_paints_in_light_and_dark_wide_and_narrow(tmp_path: Path, size: str, scheme: int) -> None:
    """The picture is not empty, and its background is that of the scheme."""
    fill(tmp_path)
    picture = tmp_path / "picture.png"
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        options = (
            f"--screenshot={picture}",
            f"--window-size={size}",
            f"--blink-settings=preferredColorScheme={scheme}",
        )
        browsed(tmp_path, f"{app.ui_address}&still=1", *options)
    assert picture.stat().st_size > 40_000
    pixels = decoded(picture)
    dark = sum(max(pixel) < 60 for pixel in pixels) / len(pixels)
    assert (dark > 0.6) == (scheme == 0)
    assert len(set(pixels)) > 20


def decoded(picture: Path) -> list[tuple[int, int, int]]:
    """Every 101st pixel of a PNG."""
    import zlib

    data, at, packed, width, depth = picture.read_bytes(), 8, b"", 0, 4
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        content = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, depth = int.from_bytes(content[:4], "big"), 4 if content[9] == 6 else 3
        elif kind == b"IDAT":
            packed += content
        at += length + 12
    raw, stride, before = zlib.decompress(packed), width * depth, bytearray(width * depth)
    found = []
    for start in range(0, len(raw), stride + 1):
        line = unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, depth)
        found += [tuple(line[x : x + 3]) for x in range(0, stride - 3, depth * 101)]
        before = line
    return found  # type: ignore[return-value]


def unfiltered(kind: int, line: bytearray, before: bytearray, depth: int) -> bytearray:
    """A line of a PNG without its filter."""
    for x in range(len(line)):
        left = line[x - depth] if x >= depth else 0
        up, corner = before[x], before[x - depth] if x >= depth else 0
        if kind == 1:
            add = left
        elif kind == 2:
            add = up
        elif kind == 3:
            add = (left + up) // 2
        elif kind == 4:
            guess = left + up - corner
            add = min((left, up, corner), key=lambda one: abs(guess - one))
        else:
            add = 0
        line[x] = (line[x] + add) & 255
    return line
