"""The page while an application reads 10,000 records a second: what it costs the driver, and how fast it paints."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from tests.faults.one_process import streams
from tests.metrics.shop import config_of, write
from tests.ui.browser import CHROMIUM, Browser
from tests.ui.test_page import asked, until

CHAINS, RECORDS, SECONDS = 10, 10_000, 20
PAINT_MS, SHARE, MEGABYTES = 1_000, 0.02, 30


def chains() -> cs.Topology:
    """Ten times topic, filter, function, count, stream of its changes, topic."""
    builder = cs.StreamsBuilder()
    for n in range(CHAINS):
        records = builder.stream(f"in{n}").filter(lambda value: value["n"] >= 0)
        counts = records.map_values(lambda value: value["n"]).group_by_key(value=int).count(store=f"count{n}")
        counts.to_stream().to(f"out{n}")
    topology = builder.build()
    assert len(list(topology)) + CHAINS >= 60  # with the topics that it writes
    return topology


def used() -> float:
    """Processor seconds of the threads of the page so far."""
    mine = [one for one in threading.enumerate() if one.name.startswith(("crossstream ui", "AnyIO"))]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(one.ident or 0)) for one in mine)


def memory() -> float:
    """Megabytes of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def work(folder: Path, app: Any, seconds: float) -> None:
    """Writes and processes as many records a second, or as fast as the machine can."""
    value = [(f"k{n % 500}", {"n": n}, n) for n in range(RECORDS // CHAINS)]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        began = time.monotonic()
        for n in range(CHAINS):
            write(folder, f"in{n}", value)
        app.process_available()
        time.sleep(max(0.0, began + 1 - time.monotonic()))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt install chromium")
def test_the_page_under_load(tmp_path: Path) -> None:
    for n in range(CHAINS):
        write(tmp_path, f"in{n}", [])
    with streams(chains(), config_of(tmp_path)) as app:
        work(tmp_path, app, SECONDS)
    before = memory()
    with streams(chains(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        address = app.ui_address or ""
        with Browser(tmp_path) as browser:
            paints = []
            for _ in range(3):
                browser.open(address)
                paint = "performance.getEntriesByName('first-contentful-paint')[0]"
                browser.until(f"{paint} !== undefined")
                paints.append(browser.ask(f"{paint}.startTime"))
            browser.until("document.querySelectorAll('#graph .box').length > 50")
            seen, spent = asked(address, "api/observation"), used()
            work(tmp_path, app, SECONDS)
            last = asked(address, "api/observation")
            share = (used() - spent) / (last["time"] - seen["time"])
            until(lambda: asked(address, "api/observation")["state_rows"] == app.progress.state_rows)
            shown = "$('state').textContent.includes('count0')"
            browser.until(shown)
        rate = (last["read"] - seen["read"]) / (last["time"] - seen["time"])
        grown = memory() - before
    figures = (
        f"{rate:,.0f} records a second: paint {min(paints):.0f} ms, {share:.2%} of a core, {grown:.0f} MB"
    )
    print(figures)
    assert min(paints) < PAINT_MS, figures
    assert share <= SHARE, figures
    assert grown <= MEGABYTES, figures
