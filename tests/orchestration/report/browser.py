"""A headless Chromium that shows a page and says what it saw: errors, requests, sizes, and the text of elements.

Speaks the DevTools protocol over a pipe (`--remote-debugging-pipe`): messages of JSON, each with a zero byte behind it.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE = 240.0
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--mute-audio",
    "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
)  # fmt: skip
_PAGE = ("Network.requestWillBeSent", "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")


class Browser:
    """One page. `events`: what it reported, by method."""

    def __init__(self, process: subprocess.Popen[bytes], to_browser: int, from_browser: int) -> None:
        self._process, self._to, self._from = process, to_browser, from_browser
        self._buffer, self._last = b"", 0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._session = ""
        (target,) = (each for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def show(
        self, page: Path, width: int = 1280, height: int = 900, *, dark: bool = False, touch: bool = False
    ) -> None:
        """Loads a file and waits until it is there."""
        self.resize(width, height, touch=touch)
        self.media(dark=dark)
        self.events.clear()
        self._call("Page.navigate", url=page.absolute().as_uri())
        self._wait_for("Page.loadEventFired")

    def wait_for_load(self, address: str = "") -> None:
        """Waits until the page has loaded itself again, or, with an address, until that is there: a web page."""
        self.events.clear()
        if address:
            self._call("Page.navigate", url=address)
        self._wait_for("Page.loadEventFired")

    def resize(self, width: int, height: int, *, touch: bool = False) -> None:
        """Sets the size of the window's content in CSS pixels."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)

    def media(self, *, dark: bool = False, media: str = "screen") -> None:
        """Sets the colour scheme, and `screen` or `print`."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def problems(self) -> list[str]:
        """Errors and warnings of the console, exceptions of scripts, and violations of the page's policy."""
        found = []
        for method, about in self.events:
            if method == "Runtime.exceptionThrown":
                found.append(str(about["exceptionDetails"]))
            elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
                found.append(f"{about['entry']['level']}: {about['entry']['text']}")
            elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
                found.append(str(about["args"]))
        return found

    def requests(self) -> list[str]:
        """The addresses that the page asked for, itself included."""
        sent = [about for method, about in self.events if method == "Network.requestWillBeSent"]
        return [about["request"]["url"] for about in sent]

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def point_at(self, x: float, y: float) -> None:
        """Moves the pointer to a place in the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def shoot(self, file: Path, *, whole: bool = False) -> None:
        """Writes a PNG of the window, or of the whole page."""
        made = self._call("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))
        file.write_bytes(base64.b64decode(made["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}}

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _wait_for(self, method: str) -> None:
        while all(name != method for name, _ in self.events):
            self._read()

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(deadline - time.monotonic(), 0.0))
            content = os.read(self._from, 1 << 20) if ready else b""
            assert content, f"no answer of the browser (exit code {self._process.poll()})"
            self._buffer += content
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser that ends with this block. `profile`: a folder for its files."""
    pairs = os.pipe(), os.pipe()
    (theirs_in, ours_out), (ours_in, theirs_out) = pairs
    # The browser speaks on 3 and 4. The shell puts the pipes there, from numbers that it does not overwrite.
    read, write = (fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (theirs_in, theirs_out))
    options = " ".join([*_OPTIONS, f"--user-data-dir='{profile}'", "about:blank"])
    process = subprocess.Popen(
        ["/bin/bash", "-c", f"exec {CHROMIUM} {options} 3<&{read} 4>&{write}"],
        pass_fds=(read, write),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(profile)},
    )
    for each in (theirs_in, theirs_out, read, write):
        os.close(each)
    try:
        shown = Browser(process, ours_out, ours_in)
        yield shown
        with suppress(AssertionError, OSError):
            shown._session = ""
            shown._call("Browser.close")
    finally:
        os.close(ours_out)
        os.close(ours_in)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
