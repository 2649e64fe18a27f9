"""A headless Chromium, driven over its debugging pipe: nothing but the browser itself has to be installed."""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TIMEOUT_S = 60.0
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
    "--force-color-profile=srgb", "--hide-scrollbars",
)  # fmt: skip
# The browser reads from descriptor 3 and writes to 4.
_PLACE_PIPES = "import os, sys; os.dup2({}, 3); os.dup2({}, 4); os.execv(sys.argv[1], sys.argv[1:])"


def find_browser() -> str | None:
    """The path of a Chromium on this machine; None if there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """The browser's process with one page. Use it as a context manager.

    Attributes:
        errors: of the page: exceptions, console errors, requests that were refused.
    """

    def __init__(self, path: str):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        for_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        ends = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 64) for each in (for_browser, from_browser)]
        command = [path, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _PLACE_PIPES.format(*ends), *command], pass_fds=ends, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for each in (for_browser, from_browser, *ends):
            os.close(each)
        self._numbers, self._unread, self._session = itertools.count(1), b"", None
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        os.close(self._out)  # the browser ends when its commands end
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._profile.cleanup()

    # ------------------------------------------------------------------ the page

    def open(self, url: str, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Opens an address, in a window of this size in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 500)  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str):
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression: str):
        """Waits until an expression is true, and gives its value; True of an element."""
        deadline = time.monotonic() + TIMEOUT_S
        poll = f"""new Promise((done) => {{
          const end = Date.now() + 2000;
          const look = () => {{
            let value = null;
            try {{ value = {expression}; }} catch {{ /* what it is about is not there yet */ }}
            if (value instanceof Node) value = true;
            if (value || Date.now() > end) done(value || null); else setTimeout(look, 20);
          }};
          look();
        }})"""
        while time.monotonic() < deadline:
            try:
                if value := self.evaluate(poll):
                    return value
            except AssertionError:
                continue  # the page was left while it was looked at
        page = self.evaluate("document.body.innerText")
        raise AssertionError(f"never true: {expression}\nerrors: {self.errors}\nthe page says:\n{page}")

    def click(self, selector: str) -> None:
        """Presses and releases the mouse in the middle of an element."""
        x, y = self.wait(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); "
            "const r = e.getBoundingClientRect(); return r.width && [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move_to(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, text: str) -> None:
        """Types into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Presses a key, as "Tab" or "/"."""
        text = {"text": key} if len(key) == 1 else {}
        code = {"Tab": 9, "Enter": 13}.get(key, ord(key[0]))
        text = {"text": "\r"} if key == "Enter" else text
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    # ------------------------------------------------------------------ the pipe

    def call(self, method: str, **params) -> dict:
        """Sends a command and waits for its result; events that come before it are noted."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _next(self) -> dict:
        while b"\0" not in self._unread:
            if not select.select([self._in], [], [], TIMEOUT_S)[0]:
                raise AssertionError("the browser does not answer")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise AssertionError("the browser has ended")
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(f"console: {params['args']}")
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
