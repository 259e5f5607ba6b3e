"""A headless Chromium over its debugging pipe, with the standard library alone."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# The browser reads from descriptor 3 and writes to 4, whichever the pipes have here.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_SECONDS = 60  # to wait for an answer on a busy machine


def find_browser():
    """Path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """Messages end in a zero byte; events are kept until somebody asks for them."""

    def __init__(self, write, read):
        self.write, self.read, self.number, self.waiting, self.events = write, read, 0, b"", []

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        message |= {} if session is None else {"sessionId": session}
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        seen = next((event for event in self.events if event.get("method") == method), None)
        while seen is None:
            event = self._next()
            self.events.append(event)
            seen = event if event.get("method") == method else None
        return seen

    def _next(self):
        while b"\0" not in self.waiting:
            part = os.read(self.read, 1 << 20)
            assert part, "the browser has gone"
            self.waiting += part
        message, self.waiting = self.waiting.split(b"\0", 1)
        return json.loads(message)


@contextmanager
def chromium(profile):
    """A browser of its own, ended with the block."""
    here, there = os.pipe(), os.pipe()
    flags = "--headless --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe --no-first-run"
    flags += " --disable-dev-shm-usage --disable-background-networking --disable-component-update"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _START,
            str(here[0]),
            str(there[1]),
            find_browser(),
            *flags.split(),
            f"--user-data-dir={profile}",
        ],
        pass_fds=(here[0], there[1]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(here[0])
    os.close(there[1])
    try:
        yield Browser(here[1], there[0])
    finally:
        with suppress(BrokenPipeError):
            os.write(here[1], b'{"id": 0, "method": "Browser.close"}\0')
        os.close(here[1])
        os.close(there[0])
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Page:
    """An open page: what it asked for, what it complained of, and what it looks like."""

    def __init__(self, browser, path, *, width, dark):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        browser.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        browser.wait_for("Page.loadEventFired")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def events(self, *methods):
        time.sleep(0.05)  # what is on its way arrives before the answer to the next call
        self.evaluate("1")
        return [event["params"] for event in self.browser.events if event.get("method") in methods]

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("Page.printToPDF")["data"]))
