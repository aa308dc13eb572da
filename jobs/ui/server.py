"""Serves the pages on loopback: a socket, a one-time address, a browser that is told it in private."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path

import uvicorn

from jobs.contracts.errors import EnvironmentFailure
from jobs.host import console
from jobs.ui.pages import make_pages
from jobs.ui.reading import Reading

LOOPBACK = "127.0.0.1"


def run(*, port: int, env_file: Path | None, is_opened: bool) -> None:
    """Serve until Ctrl-C; prints the address first. Raises EnvironmentFailure for a port in use."""
    with _listen(port) as listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        pages = make_pages(Reading(env_file), port=port, token=token)
        address = f"http://{LOOPBACK}:{port}/?token={token}"
        console.out(address)
        console.say("Ctrl-C ends it; runs go on")
        config = uvicorn.Config(
            pages, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        with tempfile.TemporaryDirectory(prefix="trainyard-ui-") as folder:
            if is_opened:
                _open_browser(Path(folder), address)
            # uvicorn ends on Ctrl-C and SIGTERM, and then raises what they mean.
            with suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
    except OSError as error:
        listening.close()
        message = f"port {port} cannot be served: {error.strerror}"
        raise EnvironmentFailure(
            message, hint="another --port, or none for any that is free"
        ) from None
    return listening


def _open_browser(folder: Path, address: str) -> None:
    """Open the address by a file of this user's alone: other users see the arguments of a process."""
    page = folder / "open.html"
    page.touch(mode=0o600)
    page.write_text(f'<meta http-equiv="refresh" content="0; url={escape(address)}">')
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.name == "nt") and (
        os.uname().sysname != "Darwin"
    ):
        return  # a browser in the terminal would take the terminal
    with suppress(webbrowser.Error):
        webbrowser.open(page.as_uri())
