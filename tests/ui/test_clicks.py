"""The page in a real browser, used: a click on a row shows why it is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.one_process import streams
from tests.metrics.shop import config_of, shop
from tests.ui.browser import CHROMIUM, Browser
from tests.ui.test_browser import fill

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt install chromium"),
]


def test_a_click_on_a_row_shows_the_records_that_made_it(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        with Browser(tmp_path) as browser:
            browser.open(app.ui_address or "")
            browser.until("[...document.querySelectorAll('#store option')].length === 3")
            browser.ask("openStore('details')")
            browser.until("document.querySelector('#answer tr.link') !== null")
            key = browser.ask("document.querySelector('#answer tr.link td').textContent")
            browser.ask("document.querySelector('#answer tr.link').click()")
            browser.until("document.querySelector('#why h3') !== null")
            text = browser.ask("$('why').textContent")
            records = app.why("details", key).records
            assert len(records) == 2
            assert f"Why {key} = " in text
            assert "made by 2 records" in text
            for record in records:
                assert f"{record.topic}, partition {record.partition}, offset {record.offset}" in text
            assert browser.ask("document.querySelector('#why img')") is None, "values are never markup"
            assert browser.ask("$('answer').textContent").startswith("Kept are batches 0 to 0")
            browser.ask("$('key').value = 'o9999'; $('ask-why').click()")
            browser.until("$('why').textContent.includes('no row o9999')")
            assert "no record with the key o9999 has arrived" in browser.ask("$('why').textContent")
            browser.until("$('unmatched').textContent.includes('fan-out')")
