"""The page over HTTP, without a browser: who may ask, what is answered, what is left after a connection."""

from __future__ import annotations

import dataclasses
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.cli import main
from crossstream.metrics.observation import Observation
from crossstream.storage.root import root_of
from crossstream.ui.server import Page
from crossstream.ui.source import FolderSource, Source
from tests.cli.cases import ENVIRONMENT
from tests.faults.one_process import streams
from tests.metrics.shop import config_of, shop, write

ORDERS = [
    ("o1", {"customer": "c1"}, 5_000),
    ("o2", {"customer": "none"}, 7_000),
    ("ä", {"customer": "c1"}, 1),
]
CUSTOMERS = [("c1", {"name": "<b>Ann</b>"}, 1_000)]


def get(address: str, path: str = "", **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(address.partition("?")[0] + path, headers={**cookie(address), **headers})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def cookie(address: str) -> dict[str, str]:
    """What a browser sends that has opened the address, which has a token."""
    place, _, token = address.partition("/?token=")
    return {"Cookie": f"crossstream-token-{place.rpartition(':')[2]}={token}"} if token else {}


def asked(address: str, path: str) -> Any:
    status, content = get(address, path)
    assert status == 200, content
    return json.loads(content)


def events(address: str, count: int) -> list[Any]:
    """So many observations as they are sent."""
    host, port = address.removeprefix("http://").partition("/")[0].split(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=20)) as connection:
        connection.request("GET", "/api/events", headers=cookie(address))
        with closing(connection.getresponse()) as answer:
            assert answer.getheader("content-type", "").startswith("text/event-stream")
            found: list[Any] = []
            while len(found) < count:
                if not (line := answer.readline()):
                    raise ConnectionError("the stream has ended")
                if line.startswith(b"data: "):
                    found.append(json.loads(line[6:]))
            return found


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fill(folder: Path) -> None:
    write(folder, "orders", ORDERS)
    write(folder, "customers", CUSTOMERS)


def test_values_are_those_of_the_application(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        address = app.ui_address
        assert address is not None
        until(lambda: bool(asked(address, "api/observation")["batches"]))
        seen = events(address, 2)[-1]
        assert seen["read"] == app.progress.total_rows == 4
        assert seen["state_rows"] == app.progress.state_rows
        assert seen["state_bytes"] == app.progress.state_bytes
        assert seen["lag"] == {"customers": {"0": 0}, "orders": {"0": 0}}
        assert seen["recent"][0]["phases"].keys() >= {"plan", "run", "publish", "commit"}
        graph = asked(address, "api/graph")
        assert {"orders", "customers", "details"} <= {shape["name"] for shape in graph["shapes"]}
        found = asked(address, "api/rows?store=details&operation=all")
        assert dict(map(tuple_of, found["rows"])) == dict(app.store("details").all())
        assert asked(address, "api/history").keys() == {"time", "lag", "read", "written", "batch", "age"}


def tuple_of(row: list[Any]) -> tuple[Any, Any]:
    return row[0], row[1]


def test_the_largest_fan_out_of_a_join(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        sizes = []
        for changed in (["c1", "c2"], ["c2"]):
            write(tmp_path, "customers", [(key, {"name": "Eve"}, 8_000) for key in changed])
            app.process_available()
            sizes.append(app.progress.fan_out)
        assert sizes == [{"orders.join(customers)": 2}, {}]
        address = app.ui_address or ""
        until(lambda: asked(address, "api/observation")["batches"] == 3)
        assert asked(address, "api/observation")["fan_out"] == {"orders.join(customers)": 2}


def test_a_store_is_browsed(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        write(tmp_path, "orders", [("o2", {"customer": "c1"}, 9_000)])
        app.process_available()
        write(tmp_path, "orders", [("o2", None, 9_500)])
        app.process_available()
        address = app.ui_address
        assert address is not None
        stores = asked(address, "api/stores")
        assert [one["name"] for one in stores["stores"]] == ["customers", "details", "orders"]
        assert stores["batches"] == [0, 1, 2]

        def keys(query: str) -> list[str]:
            return [key for key, _ in asked(address or "", f"api/rows?store=orders&{query}")["rows"]]

        assert keys("operation=get&key=o1") == ["o1"]
        assert keys("operation=get&key=o2") == []
        assert keys("operation=get&key=o2&as_of=1") == ["o2"]
        assert keys("operation=prefix&key=o") == ["o1"]
        assert keys("operation=prefix&key=o&as_of=0") == ["o1", "o2"]
        assert keys("operation=range&key=o2&to=%C3%A4&as_of=1") == ["o2", "ä"]
        assert keys("operation=get&key=%C3%A4") == ["ä"]
        changed = asked(address, "api/changes?store=details&key=o2")["changes"]
        assert [(one["batch"], [value for _, value in one["rows"]]) for one in changed] == [
            (0, []),
            (1, [{"customer": "c1", "name": "<b>Ann</b>"}]),
            (2, []),
        ]
        status, problem = get(address, "api/rows?store=none")
        assert (status, json.loads(problem)["code"]) == (400, "CS-710")
        status, problem = get(address, "api/rows?store=orders&operation=all&as_of=77")
        assert (status, json.loads(problem)["code"]) == (400, "CS-713")


def test_why_a_row_is_what_it_is(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        address = app.ui_address
        assert address is not None
        found = asked(address, "api/why?store=details&key=o1")
        assert (found["value"], found["exact"], found["records"]) == (app.store("details").get("o1"), True, 2)
        assert found["step"]["operator"] == app.why("details", "o1").step.operator
        sources = {one["operator"]: one for one in steps(found["step"]) if one["records"]}
        assert [(one["offset"], one["topic"]) for one in sources["orders"]["records"]] == [(0, "orders")]
        missing = asked(address, "api/why?store=details&key=o9")
        assert missing["value"] is None
        assert "has arrived" in missing["ended"]
        status, problem = get(address, "api/why?store=none&key=o1")
        assert (status, json.loads(problem)["code"]) == (400, "CS-710")
        status, problem = get(address, "api/why?store=details&key=o1&as_of=77")
        assert (status, json.loads(problem)["code"]) == (400, "CS-713")


def steps(step: dict[str, Any]) -> list[dict[str, Any]]:
    return [step, *(one for inner in step["inputs"] for one in steps(inner))]


def test_why_of_a_window_and_of_many_records(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", shop_input())
    counts = orders.group_by(lambda order: order["customer"], key=str).windowed_by(
        cs.TimeWindows(size=1_000, grace=1_000_000)
    )
    counts.count(store="counts")
    write(tmp_path, "orders", [(f"o{n}", {"customer": "c1"}, 2_000 + n) for n in range(130)])
    with streams(builder.build(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        address = app.ui_address or ""
        assert [one["by_time"] for one in asked(address, "api/stores")["stores"]] == [True]
        found = asked(address, "api/why?store=counts&key=c1&place=2000,3000")
        assert (found["value"], found["exact"], found["records"]) == (130, True, 130)
        (source,) = [one for one in steps(found["step"]) if one["records"]]
        assert (len(source["records"]), source["count"]) == (100, 130)
        assert asked(address, "api/why?store=counts&key=c1&place=3000,4000")["value"] is None


def test_why_takes_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    monkeypatch.setattr("crossstream.ui.source.WHY_SECONDS", 0)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        status, problem = get(app.ui_address or "", "api/why?store=details&key=o1")
        assert (status, json.loads(problem)["code"]) == (400, "CS-281")
        assert "crossstream why" in json.loads(problem)["next"]


def test_why_of_a_state_folder_needs_the_file_of_the_application(tmp_path: Path) -> None:
    with page_of(tmp_path) as page:
        status, problem = get(page.address, "api/why?store=details&key=o1")
        assert (status, json.loads(problem)["code"]) == (400, "CS-281")
        assert "--app app.py" in json.loads(problem)["next"]


def test_a_store_that_is_too_large_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    monkeypatch.setattr("crossstream.ui.source.LiveSource.rows", 2)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        status, problem = get(app.ui_address or "", "api/rows?store=orders&operation=all")
        assert (status, json.loads(problem)["code"]) == (400, "CS-281")
        assert get(app.ui_address or "", "api/rows?store=orders&operation=get&key=o1")[0] == 200


def test_only_this_machine_is_answered_by_its_name(tmp_path: Path) -> None:
    """A page of another origin whose name leads to this machine gets nothing."""
    with page_of(tmp_path) as page:
        for host in ("evil.example:80", "127.0.0.1.evil.example", ""):
            assert get(page.address, "api/observation", Host=host)[0] in (400, 403), host
        for host in ("localhost", "localhost:1", "127.0.0.1:99", "[::1]:5"):
            assert get(page.address, "api/observation", Host=host)[0] == 200, host


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_is_needed(tmp_path: Path, host: str) -> None:
    with page_of(tmp_path, host=host) as page:
        here, name = f"http://127.0.0.1:{page.port}/", f"crossstream-token-{page.port}"
        assert page.token is not None
        assert page.address.endswith(f"/?token={page.token}")
        for path in (
            "",
            "api/observation",
            "api/events",
            "api/rows?store=orders",
            "assets/page.js",
            "?token=x",
        ):
            assert get(here, path)[0] == 401, path
        assert get(here, "api/observation", Cookie=f"{name}=x")[0] == 401
        assert get(here, "api/observation", Cookie=f"{name}={page.token}")[0] == 200
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
        connection.request("GET", f"/?token={page.token}")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("location")) == (303, "/")
        cookie = answer.getheader("set-cookie", "")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        connection.close()


def test_an_open_page_needs_none(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path, ui_port=0, ui_open=True)) as app:
        app.process_available()
        assert "token" not in str(app.ui_address)
        assert get(str(app.ui_address), "api/observation")[0] == 200
        assert get(str(app.ui_address), "api/observation", Host="evil.example")[0] == 403


def test_what_follows_the_token_in_the_address_stays(tmp_path: Path) -> None:
    with page_of(tmp_path) as page, closing(http.client.HTTPConnection("127.0.0.1", page.port)) as asker:
        asker.request("GET", f"//evil.example/?still=1&token={page.token}")
        assert asker.getresponse().getheader("location") == "/?still=1"


@pytest.mark.parametrize(
    "path",
    ["api/rows?store=details", "api/changes?store=details&key=o1", "api/stores", "api/why", "api/events"],
)
def test_a_page_of_another_site_gets_nothing_done(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another port of this machine is of the same site, so that the browser sends the cookie."""
    with page_of(tmp_path) as page:
        monkeypatch.setattr(page.feed.source, "open", lambda *_: pytest.fail("it is carried out"))
        monkeypatch.setattr(page.feed.source, "stores", lambda *_: pytest.fail("it is carried out"))
        for site in ("cross-site", "same-site", "", "other"):
            assert get(page.address, f"api/{path}", **{"Sec-Fetch-Site": site})[0] == 403, site
        monkeypatch.undo()
        for site in ("same-origin", "none"):
            assert get(page.address, "api/stores", **{"Sec-Fetch-Site": site})[0] == 200, site


def test_it_only_reads(tmp_path: Path) -> None:
    with page_of(tmp_path) as page:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            url = page.address.partition("?")[0] + "api/rows?store=orders"
            request = urllib.request.Request(url, method=method, data=b"x", headers=cookie(page.address))
            with pytest.raises(urllib.error.HTTPError, match="405") as caught:
                urllib.request.urlopen(request, timeout=20)
            caught.value.close()
        assert get(page.address, "assets/..%2Fserver.py")[0] == 404
        assert get(page.address, "assets/page.html")[0] == 404


def test_closed_connections_leave_nothing_behind(tmp_path: Path) -> None:
    with page_of(tmp_path) as page:
        until(lambda: page.feed.number > 0)
        before = threading.active_count()
        for _ in range(12):
            events(page.address, 1)
        until(lambda: page.feed.looking == 0)
        assert threading.active_count() <= before + 2  # of those that read files, of any number of requests


def test_a_stop_ends_what_listens(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    page = page_of(tmp_path)

    def listen() -> None:
        with suppress(OSError, http.client.HTTPException, ValueError):
            events(page.address, 1000)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    until(lambda: page.feed.looking == 1)
    started = time.monotonic()
    page.__exit__(None, None, None)
    assert time.monotonic() - started < 5
    assert {one.name for one in set(threading.enumerate()) - before if one is not listener} <= {
        "AnyIO worker thread"
    }


class page_of:  # a context, of a state folder
    """The page of the state that a run left in a folder."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        fill(folder)
        with streams(shop(), config_of(folder)) as app:
            app.process_available()
        self._page = Page(host, 0, lambda: FolderSource(root_of(folder / "state")))

    def __enter__(self) -> Page:
        return self._page

    def __exit__(self, *_: object) -> None:
        self._page.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._page, name)


def test_a_state_folder_shows_what_its_commits_say(tmp_path: Path) -> None:
    with page_of(tmp_path) as page:
        seen = asked(page.address, "api/observation")
        assert (seen["application"], seen["status"], seen["from_folder"]) == ("shop", "unseen", True)
        assert seen["last"]["batch"] == 0
        assert seen["last"]["rows"] == 4
        assert seen["state_rows"]["orders"] == 3
        assert asked(page.address, "api/graph") is None
        assert len(asked(page.address, "api/rows?store=details&operation=all")["rows"]) == 2


def test_a_state_folder_shows_what_the_page_of_the_run_saw_last(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        wanted = app.progress
    source = FolderSource(root_of(tmp_path / "state"))
    seen = source.observe()
    assert (seen.status, seen.read, seen.matched) == ("stopped", wanted.total_rows, wanted.matched)
    assert json.loads(source.graph())["shapes"]
    with streams(shop(), config_of(tmp_path)) as app:
        for number in range(2):
            write(tmp_path, "orders", [(f"n{number}", {"customer": "c1"}, 1)])
            app.process_available()
    assert source.observe().status == "unseen" or source.observe().time - seen.time < 30


def test_a_failure_is_shown_until_the_stop(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    builder.stream("orders", shop_input()).map_values(lambda value: 1 // 0).to(
        "out", cs.Produced(key=cs.serdes.string(), value=cs.serdes.json())
    )
    write(tmp_path, "orders", ORDERS)
    with streams(builder.build(), config_of(tmp_path, ui_port=0)) as app:
        with pytest.raises(cs.ProcessingError):
            app.process_available()
        address = app.ui_address or ""
        until(lambda: bool(asked(address, "api/observation")["errors"]))
        seen = asked(address, "api/observation")
        assert seen["status"] == "failed"
        assert "ZeroDivisionError" in seen["errors"][0]
        assert "offset" in seen["errors"][0]
    assert FolderSource(root_of(tmp_path / "state")).observe().errors == tuple(seen["errors"])


def shop_input() -> cs.Consumed:
    return cs.Consumed(key=cs.serdes.string(), value=cs.serdes.json())


def test_a_source_that_fails_does_not_end_the_page(tmp_path: Path) -> None:
    class Broken(Source):
        def observe(self) -> Observation:
            raise cs.StateError("gone", code="CS-713", where={}, next="wait")

        def graph(self) -> bytes:
            return b"null"

        def open(self, name: str, as_of: int | None) -> cs.StoreReader:
            raise NotImplementedError

    page = Page("127.0.0.1", 0, lambda: Broken(root_of(tmp_path)))
    try:
        assert get(page.address)[0] == 200
    finally:
        page.close()


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with (
        streams(shop(), config_of(tmp_path, ui_port=0)) as app,
        pytest.raises(cs.ConfigError, match="uvicorn") as caught,
    ):
        app.start()
    assert "crossstream[ui]" in str(caught.value)


def test_ui_of_a_folder_without_state_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", str(tmp_path)]) == 1
    assert "CS-713" in capsys.readouterr().err


def test_every_id_that_the_script_uses_is_on_the_page() -> None:
    import re

    assets = Path(cs.__file__).parent / "ui" / "assets"
    script, page = (assets / "page.js").read_text(), (assets / "page.html").read_text()
    used = set(re.findall(r'\$\("([\w-]+)"\)', script)) | set(re.findall(r'\["(plot-\w+)"', script))
    assert used
    assert used <= set(re.findall(r'id="([\w-]+)"', page))
    assert "<script>" not in page
    assert "innerHTML" not in script
    assert not re.search(r"https?://(?!www\.w3\.org)", script + page)


def test_a_start_that_is_refused_writes_nothing_into_the_state(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path)) as app:
        app.process_available()
    other = config_of(tmp_path, ui_port=0)
    other = dataclasses.replace(other, application_id="other")
    with streams(shop(), other) as app, pytest.raises(cs.StateError, match="belongs to"):
        app.start()
    assert not (tmp_path / "state" / "ui").exists()


def test_files_of_the_page_have_the_rights_of_the_state(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path, ui_port=0)) as app:
        app.process_available()
        until(lambda: (tmp_path / "state" / "ui" / "history.bin").exists())
    for name in ("last.json", "graph.json", "history.bin"):
        assert (tmp_path / "state" / "ui" / name).stat().st_mode & 0o077 == 0


@pytest.mark.timeout(60)
def test_crossstream_ui_serves_a_state_folder_until_ctrl_c(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path)) as app:
        app.process_available()
    command = [sys.executable, "-m", "crossstream", "ui", str(tmp_path / "state"), "--port", str(free_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert asked(address, "api/observation")["application"] == "shop"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.timeout(240)
def test_crossstream_ui_with_the_file_of_the_application(tmp_path: Path) -> None:
    fill(tmp_path)
    with streams(shop(), config_of(tmp_path)) as app:
        app.process_available()
    (tmp_path / "app.py").write_text("from tests.metrics.shop import shop\n\ntopology = shop()\n")
    options = ["--app", "app.py", "--topics-dir", str(tmp_path / "topics"), "--port", str(free_port())]
    command = [sys.executable, "-m", "crossstream", "ui", str(tmp_path / "state"), *options]
    here = {**ENVIRONMENT, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=here, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert asked(address, "api/why?store=details&key=o1")["records"] == 2
            assert asked(address, "api/graph")["shapes"]
        finally:
            process.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
