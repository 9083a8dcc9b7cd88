"""Headless Chromium, steered through pipes (DevTools protocol): opens pages, clicks, asks, takes pictures."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page. Chromium reads commands from descriptor 3 and answers on descriptor 4."""

    def __init__(self, folder: Path, *, width: int = 1440, height: int = 1200, scheme: str = "light") -> None:
        assert CHROMIUM is not None
        ours, theirs = os.pipe(), os.pipe()
        command = [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        ]

        def descriptors() -> None:
            os.dup2(ours[0], 3)
            os.dup2(theirs[1], 4)

        quiet = subprocess.DEVNULL
        # High numbers first: 3 and 4 may be among those of the pipes.
        ours = tuple(os.dup(one) if one < 5 else one for one in ours)
        theirs = tuple(os.dup(one) if one < 5 else one for one in theirs)
        self._process = subprocess.Popen(
            command, close_fds=False, preexec_fn=descriptors, stdout=quiet, stderr=quiet
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._out, self._in = os.fdopen(ours[1], "wb", buffering=0), os.fdopen(theirs[0], "rb")
        self._number, self._session = 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._out.close()
        self._in.close()

    def call(self, method: str, **parameters: Any) -> Any:
        """The answer to a command; events are passed over."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._read())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> bytes:
        found = b""
        while not found.endswith(b"\0"):
            one = self._in.read(1)
            assert one, "Chromium has ended"
            found += one
        return found[:-1]

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 60) -> None:
        """Waits until an expression holds."""
        self.waited(lambda: bool(self.ask(expression)), expression, seconds)

    @staticmethod
    def waited(holds: Callable[[], bool], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)

    def picture(self, path: Path) -> None:
        """Takes a picture of what the window shows."""
        answer = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))
