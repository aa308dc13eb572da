"""Serves the pages on loopback: a socket, a one-time address, a browser that is told it in private."""

from __future__ import annotations

import mimetypes
import os
import secrets
import socket
import tempfile
import threading
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.host import console
from jobs.host.socket_owner import is_own_peer
from jobs.ui.addresses import make_pages
from jobs.ui.edge import or_bug
from jobs.ui.pages import PAGE_SIZE
from jobs.ui.reading import Reading
from jobs.ui.rendering import compile_templates

LOOPBACK = "127.0.0.1"
BACKLOG = 128
# Of a request's head: the id of the last event has a part for each rank.
LONGEST_HEAD = 256 << 10


class OwnListener(socket.socket):
    """A listening socket that hangs up on other users of this machine before a byte is read."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; raises ConnectionAbortedError for another user's."""
        connection, address = super().accept()
        if not is_own_peer(connection):
            connection.close()
            raise ConnectionAbortedError
        return connection, address


def run(*, port: int, env_file: Path | None, is_opened: bool) -> None:
    """Serve until Ctrl-C; prints the address first. Raises EnvironmentFailure for a port in use."""
    with listen(port) as listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        reading = Reading(env_file)
        pages = make_pages(reading, port=port, token=token)
        address = f"http://{LOOPBACK}:{port}/?token={token}"
        console.out(address)
        console.say("Ctrl-C ends it; runs go on")
        threading.Thread(target=_load_ahead, args=(reading,), daemon=True).start()
        with tempfile.TemporaryDirectory(prefix="trainyard-ui-") as folder:
            if is_opened:
                _open_browser(Path(folder), address)
            # uvicorn ends on Ctrl-C and SIGTERM, and then raises what they mean.
            with suppress(KeyboardInterrupt):
                make_server(pages).run(sockets=[listening])


def make_server(pages: ASGIApp) -> uvicorn.Server:
    """Make the server of the pages, which runs on the socket that `listen` gives."""
    config = uvicorn.Config(
        pages,
        loop="asyncio",  # it asks OwnListener for connections
        http="h11",
        h11_max_incomplete_event_size=LONGEST_HEAD,
        log_level="error",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def listen(port: int) -> OwnListener:
    """Listen on a port of loopback, any free one for 0; raises EnvironmentFailure for one in use.

    From here on the port is ours: nobody else gets a socket of it that listens, and who opens the
    address waits until he is answered.
    """
    listening = OwnListener(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # So that a server can follow another whose last connections the kernel still remembers;
        # beside a socket that listens it lets nobody in.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        message = f"port {port} cannot be served: {error.strerror}"
        raise EnvironmentFailure(
            message, hint="another --port, or none for any that is free"
        ) from None
    return listening


def _load_ahead(reading: Reading) -> None:
    """Load what the first page needs while the browser starts; what fails here fails on that page, too."""
    compile_templates()
    mimetypes.init()  # its tables are files
    with suppress(LaunchError):
        or_bug(lambda: reading.once().ask_each("ls", f"--limit={PAGE_SIZE + 1}"))


def _open_browser(folder: Path, address: str) -> None:
    """Open the address by a file of this user's alone: other users see the arguments of a process."""
    page = folder / "open.html"
    page.touch(mode=0o600)
    page.write_text(
        f'<meta http-equiv="refresh" content="0; url={escape(address)}">', encoding="utf-8"
    )
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.name == "nt") and (
        os.uname().sysname != "Darwin"
    ):
        return  # a browser in the terminal would take the terminal
    # One that has a /tmp of its own finds no page there.
    console.say("if the browser shows no page, open the address above")
    # Some stay in their command until they are closed.
    threading.Thread(target=_open, args=(page.as_uri(),), daemon=True).start()


def _open(address: str) -> None:
    with suppress(webbrowser.Error):
        webbrowser.open(address)
