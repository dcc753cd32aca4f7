"""A real browser for tests: Debian's chromium, told what to do by the devtools protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")


def found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One tab. Everything that the page complains of is kept in `complaints`, every address that it asks for in `asked`."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()
        self._write, self._read = os.fdopen(ours[1], "wb", buffering=0), os.fdopen(theirs[0], "rb", buffering=0)
        flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars"]
        flags += ["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Its sandbox cannot be made by root.
        program = found()
        assert program is not None
        # The protocol is spoken on file descriptors 3 and 4.
        line = 'exec "$@" 3<&"$IN" 4>&"$OUT"'
        self._process = subprocess.Popen(
            ["bash", "-c", line, "chromium", program, *flags, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(ours[0], theirs[1]),
            env={**os.environ, "IN": str(ours[0]), "OUT": str(theirs[1])},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self.complaints: list[str] = []
        self.asked: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write.close()
        self._read.close()
        self._process.terminate()
        self._process.wait(10)

    def call(self, method: str, may_fail: bool = False, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert may_fail or "error" not in answer, answer
                result: dict[str, Any] = answer.get("result", {})
                return result
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = self._read.read(1 << 20)
            assert more, "the browser ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(told["args"])[:500])
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.asked.append(told["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"dialog: {told['message']}")

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def eval(self, code: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, code: str, seconds: float = 20.0) -> Any:
        """Until the code says something true."""
        end = time.monotonic() + seconds
        while (value := self._tried(code)) in (None, False, 0, ""):  # An element arrives as an empty object.
            assert time.monotonic() < end, f"never true: {code}; {self.complaints}; {self.text()[:2000]}"
            time.sleep(0.03)
        return value

    def _tried(self, code: str) -> Any:
        """What the code says; None while the page that would say it is being left."""
        answer = self.call("Runtime.evaluate", may_fail=True, expression=code, awaitPromise=True, returnByValue=True)
        return None if "exceptionDetails" in answer else answer.get("result", {}).get("value")

    def text(self) -> str:
        return str(self.eval("document.body.innerText"))

    def press(self, key: str) -> None:
        more: dict[str, Any] = {"text": key} if len(key) == 1 else {}
        # What the browser itself does with a key depends on its number.
        if key == "Enter":
            more = {"text": "\r", "windowsVirtualKeyCode": 13}
        elif key == "Escape":
            more = {"windowsVirtualKeyCode": 27}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def press_until(self, key: str, code: str, seconds: float = 20.0) -> None:
        """A page that has just been drawn may not listen yet: press again until the code says something true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.press(key)
            with suppress(AssertionError):
                self.wait(code, 3.0)
                return
        raise AssertionError(f"{key} does nothing: {code}; {self.text()[:1000]}")

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def look(self, width: int, height: int, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features: Sequence[dict[str, str]] = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, target: Path, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        target.write_bytes(base64.b64decode(found["data"]))
