"""`launch ui` as a process: what it prints, what it holds, how it ends, and that nothing is lost with it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.contracts.errors import ExitCode
from jobs.host.socket_owner import listener_owner
from jobs.ui import rendering, server
from jobs.ui.pages import PAGE_SIZE
from jobs.ui.reading import Reading
from tests.busy import HANG_S
from tests.jobs.ui.conftest import folder_of
from tests.ports import free_port


class Started:
    """A `launch ui` that has printed its address."""

    def __init__(self, env_file: Path, *words: str) -> None:
        command = [
            sys.executable,
            "-P",
            "-m",
            "jobs.cli",
            "ui",
            "--no-browser",
            f"--env={env_file}",
        ]
        self.process = subprocess.Popen(
            [*command, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        place, _, self.query = self.address.removeprefix("http://").partition("/")
        self.host, _, port = place.partition(":")
        self.port = int(port)
        self.cookie = ""

    def ask(self, path: str) -> Any:
        """The answer to a GET, its text in `.text`."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=HANG_S)
        connection.request("GET", path, headers={"cookie": self.cookie})
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        connection.close()
        return answer

    def enter(self) -> None:
        self.cookie = self.ask(f"/{self.query}").headers["set-cookie"].partition(";")[0]

    def end(self, number: int) -> tuple[int, str]:
        """The exit code after a signal, and what it wrote to stderr."""
        self.process.send_signal(number)
        said = self.process.communicate(timeout=HANG_S)[1]
        return self.process.returncode, said


@pytest.fixture
def start(launching) -> Iterator[Any]:
    started: list[Started] = []

    def begin(*words: str) -> Started:
        started.append(Started(launching.env_file, *words))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


def test_the_printed_address_lets_in_and_ctrl_c_ends_it(launching, start):
    run = launching.add_run(name="digits")
    ui = start()
    assert (ui.host, ui.query[:7]) == ("127.0.0.1", "?token=")
    assert listener_owner(("127.0.0.1", ui.port)) == os.geteuid()
    assert addresses_of(ui.port) == {"0100007F"}
    assert ui.ask("/runs").status == 403
    ui.enter()
    assert run in ui.ask("/runs").text
    code, said = ui.end(signal.SIGINT)
    assert (code, said) == (0, "Ctrl-C ends it; runs go on\n")


def test_what_the_first_page_needs_is_loaded_ahead_of_it(launching, monkeypatch):
    asked = []
    rendering._templates.cache_clear()
    launching.add_run(name="digits")
    reading = Reading(launching.env_file)
    monkeypatch.setattr(Reading, "ask_each", lambda self, *words: asked.append(words))
    server._load_ahead(reading)
    assert asked == [("ls", f"--limit={PAGE_SIZE + 1}")]
    assert len(rendering._templates().cache) == len(rendering._templates().list_templates())


def test_what_cannot_be_loaded_ahead_is_told_by_the_page_alone(tmp_path, capsys):
    server._load_ahead(Reading(tmp_path / "none.json"))
    assert capsys.readouterr() == ("", "")


def addresses_of(port: int) -> set[str]:
    """Where this machine listens on a port, as /proc/net writes addresses."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            host, _, number = fields[1].partition(":")
            if fields[3] == "0A" and int(number, 16) == port:
                found.add(host)
    return found


def test_sigterm_ends_it_too_while_a_page_watches(launching, start):
    run = launching.add_run()
    ui = start()
    ui.enter()
    with socket.create_connection(("127.0.0.1", ui.port)) as watching:
        request = f"GET /runs/file/{run}/lines HTTP/1.1\r\nHost: 127.0.0.1:{ui.port}\r\n"
        watching.sendall(f"{request}Cookie: {ui.cookie}\r\n\r\n".encode())
        assert watching.recv(100).startswith(b"HTTP/1.1 200")
        code, _ = ui.end(signal.SIGTERM)
    assert code in (0, -signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_port_in_use_is_one_message_and_an_exit_code(launching, start):
    port = free_port()
    first = start(f"--port={port}")
    assert first.port == port
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "jobs.cli",
            "ui",
            f"--port={port}",
            f"--env={launching.env_file}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (ExitCode.ENVIRONMENT, "")
    assert done.stderr == (
        f"error: port {port} cannot be served: Address already in use\n\n"
        "hint: another --port, or none for any that is free\n"
    )


def test_a_killed_server_is_followed_by_another_on_its_port_and_nothing_is_lost(launching, start):
    """Its connections are in the kernel's memory for a while, as a browser's are."""
    run = launching.add_run(name="digits")
    first = start(f"--port={free_port()}")
    first.enter()
    with socket.create_connection(("127.0.0.1", first.port)):
        assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
        second = start(f"--port={first.port}")
        second.cookie = first.cookie
        assert second.ask("/runs").status == 403  # the old session is none
        second.enter()
        assert run in second.ask("/runs").text


def test_a_run_folder_that_goes_and_a_workspace_that_is_gone_are_said(written, served):
    import shutil

    run = written.add_run(name="digits")
    served.enter()
    assert served.ask(f"/runs/file/{run}").status == 200
    shutil.rmtree(folder_of(written, run))
    for page in ("", "/now", "/curves", "/lines"):
        answer = served.ask(f"/runs/file/{run}{page}")
        assert answer.status == 404, page
        assert f"there is no run `{run}`" in answer.text
    shutil.rmtree(written.workspace)
    runs = served.ask("/runs")
    assert (runs.status, run in runs.text) == (200, False)
    written.env_file.unlink()
    gone = served.ask("/runs")
    assert gone.status == 200
    assert "environment.json" in gone.text


@pytest.mark.parametrize("missing", ["jinja2", "starlette", "uvicorn"])
def test_a_missing_extra_is_named(missing):
    code = "import sys; from jobs.cli import main; sys.modules[sys.argv[1]] = None; sys.exit(main(['ui']))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, missing], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (ExitCode.ENVIRONMENT, "")
    assert done.stderr == (
        f"error: `launch ui` needs {missing}\n\nhint: make setup, or pip install 'trainyard[ui]'\n"
    )
