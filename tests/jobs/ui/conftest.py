"""The pages, served by a thread of the test, and a real browser that looks at them."""

from __future__ import annotations

import http.client
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engines.local.engine import LocalEngine
from jobs.runs.supervision import take_lock
from jobs.ui.addresses import make_pages
from jobs.ui.pages import Pages
from jobs.ui.reading import Reading
from jobs.ui.server import listen, make_server
from tests.busy import HANG_S, wait_until
from tests.fakes.asked_pages import pages_of
from tests.fakes.launching import FakeEngine
from tests.ports import free_port

TOKEN = "the-one-time-token"
START_S = 10


class Served:
    """The pages at a port of loopback, entered by a client that keeps its cookie."""

    def __init__(self, env_file: Path, port: int = 0) -> None:
        self._socket = listen(port or free_port())
        self.port = self._socket.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self.address = f"{self.origin}/?token={TOKEN}"
        self.cookie = ""
        pages = make_pages(Reading(env_file), port=self.port, token=TOKEN)
        self._server = make_server(pages)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()
        wait_until(lambda: self._server.started, START_S)

    def ask(
        self, path: str, *, method: str = "GET", body: str | None = None, **headers: str
    ) -> Any:
        """Send a request as the browser of this user; `headers` with _ for -, None leaves one out."""
        usual = {"host": f"127.0.0.1:{self.port}", "cookie": self.cookie, "origin": None}
        if body is not None:
            usual |= {"content-type": "application/x-www-form-urlencoded", "origin": self.origin}
        named = usual | {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        sent = {name: value for name, value in named.items() if value}
        connection.request(method, path, body, headers=sent)
        answer = connection.getresponse()
        told = SimpleNamespace(
            status=answer.status, headers=dict(answer.getheaders()), text=answer.read().decode()
        )
        connection.close()
        return told

    def enter(self) -> None:
        """Exchange the token for the cookie."""
        answer = self.ask(f"/?token={TOKEN}")
        assert answer.status == 200, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def end(self) -> None:
        """End the server, with its connections."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(HANG_S)
        self._socket.close()


@pytest.fixture
def written(launching, monkeypatch):
    """`launch` with run folders whose lines are read as they are."""
    monkeypatch.setattr(FakeEngine, "logs", LocalEngine.logs)
    return launching


@pytest.fixture
def served(written) -> Iterator[Served]:
    made = Served(written.env_file)
    yield made
    made.end()


@pytest.fixture
def pages(launching) -> Pages:
    """The pages of the environment that `launching` types."""
    return pages_of(Reading(launching.env_file))


def folder_of(written, run) -> Path:
    return Path(written.workspace, "runs", run)


@pytest.fixture
def supervised():
    """Runs that somebody supervises: the lock of each, by its id."""
    locks = {}
    yield locks
    for lock in locks.values():
        os.close(lock)


def add_running(written, supervised, **changes) -> str:
    run = written.add_run(**changes)
    supervised[run] = take_lock(folder_of(written, run))
    events = folder_of(written, run) / "events.jsonl"
    kept = [each for each in events.read_text().splitlines() if '"completed"' not in each]
    events.write_text("\n".join(kept) + "\n")
    return run


def new_context(chromium, **how: Any) -> Any:
    """A window of its own, which waits for what it is asked as long as for a hang."""
    context = chromium.new_context(**how)
    context.set_default_timeout(HANG_S * 1000)
    return context


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's chromium, driven by Playwright: of one file, since its loop runs in this thread till then."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its own sandbox needs what a container of CI forbids; the pages are ours.
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"], timeout=HANG_S * 1000
        )
        yield browser
        browser.close()


@pytest.fixture
def page(chromium, served) -> Iterator[Any]:
    """A page of a browser that has entered; what it complains of fails the test."""
    context = new_context(chromium, viewport={"width": 1200, "height": 900})
    served.enter()
    name, _, value = served.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": served.origin}])
    opened = context.new_page()
    # What this page asks for every few seconds it asks for ten times as often.
    opened.add_init_script(
        "(() => { const later = window.setTimeout;"
        " window.setTimeout = (act, ms) => later(act, ms / 10); })();"
    )
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("dialog", lambda dialog: problems.append(dialog.message) or dialog.dismiss())
    opened.on(
        "console",
        lambda told: told.type == "error" and problems.append(f"{told.text} {told.location}"),
    )
    opened.problems = problems
    yield opened
    context.close()
    assert problems == []
