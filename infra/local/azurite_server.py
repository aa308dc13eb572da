"""Starts, checks and stops the Azurite process of one storage folder.

    python -m infra.local.azurite_server start FOLDER [NODE AZURITE]
    python -m infra.local.azurite_server status|stop FOLDER

Needs the standard library, and azure-storage-blob to ask the server. The stack's dynamic provider calls it when the stack is made; `launch`
runs it as a program, to bring back a store that has died. What it keeps in the folder:

account.key   the account's key, random, mode 0600; handed to Azurite by environment, never argv
server.json   how the server is started, and which process runs it
server.lock   held (flock) while somebody starts or stops the server
azurite.log   what the server prints
azurite/      the blobs; never deleted from here
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from infra.local.listening import is_ours, name_listener
from infra.local.process_identity import identify, is_alive
from infra.local.storage_folder import (
    AzuriteError,
    check_free_space,
    explained,
    locked,
    make_private,
    write_whole,
)

START_TIMEOUT_S = 30.0
STOP_GRACE_S = 10.0
POLL_S = 0.05

KEY_FILE = "account.key"
SERVER_FILE = "server.json"
LOG_FILE = "azurite.log"
DATA_FOLDER = "azurite"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, kw_only=True)
class Server:
    """Settings of a server (`port` on 127.0.0.1), and the process that runs it, if any."""

    account: str
    port: int
    node: str
    azurite: str
    containers: tuple[str, ...]
    pid: int | None = None
    identity: str | None = None

    @property
    def is_running(self) -> bool:
        """True while its process lives, even if it does not answer yet."""
        return is_alive(self.pid, self.identity)

    @property
    def command(self) -> Server:
        """The record without the process."""
        return replace(self, pid=None, identity=None)


def read_server(folder: Path) -> Server | None:
    """Read how the server was last started, dead or alive; None when it never was."""
    try:
        fields: dict[str, Any] = json.loads((folder / SERVER_FILE).read_text(encoding="utf-8"))
        fields["containers"] = tuple(fields["containers"])
        return Server(**fields)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{folder / SERVER_FILE} is damaged ({error}); delete it and start again"
        raise AzuriteError(message) from error


def find_missing_containers(folder: Path, server: Server) -> set[str] | None:
    """List the containers that are not there; None when no server of ours answers to our key."""
    from infra.local.containers import StoreError, list_containers

    # Another user's would answer to any key.
    if not is_ours(server.port):
        return None
    try:
        key = (folder / KEY_FILE).read_text(encoding="ascii")
        return set(server.containers) - list_containers(server.port, server.account, key)
    except (OSError, StoreError):
        return None


def read_own(folder: Path, node: str = "", azurite: str = "") -> Server:
    """Read how the server was last started, with these programs where they are named.

    Raises AzuriteError where none ever was, or another user may have written what is said there.
    """
    with explained(folder):
        found = read_server(folder) or _never_started(folder)
        for path, open_to in ((folder, stat.S_IWOTH), (folder / SERVER_FILE, _OTHERS_WRITE)):
            status = path.stat()
            if status.st_uid != os.geteuid() or status.st_mode & open_to:
                message = (
                    f"{path} is another user's, or can be written by others (uid {status.st_uid}, "
                    f"mode {stat.S_IMODE(status.st_mode):04o}): what it says is not started; a disk "
                    "without modes, as WSL's /mnt/c, cannot hold a store"
                )
                raise AzuriteError(message)
    return replace(found, node=node or found.node, azurite=azurite or found.azurite).command


def start(folder: Path, wanted: Server | None = None) -> Server:
    """Run the server as wanted (as last time, when None) with its containers.

    Safe to repeat and to race: one that runs as wanted is left alone, one that runs with other
    settings is restarted. Blocks until it answers. Raises AzuriteError.
    """
    wanted = (wanted or read_own(folder)).command
    with explained(folder):
        make_private(folder)
        with locked(folder) as lock_fd:
            current = read_server(folder)
            if current is not None and current.is_running:
                if current.command == wanted and _is_answering(folder, current):
                    _create_containers(folder, current)
                    return current
                if current.port != wanted.port:
                    check_port(wanted.port)
                return _restart(folder, current, wanted, lock_fd)
            return _launch(folder, wanted, lock_fd)


def stop(folder: Path) -> bool:
    """End the server, gently so that it writes down its last 5 s; False when none ran."""
    if not (folder / SERVER_FILE).exists():
        return False
    with explained(folder), locked(folder):
        current = read_server(folder)
        if current is None or not current.is_running:
            return False
        _end(current)
        _write_server(folder, current.command)
        return True


def check_port(port: int) -> None:
    """Raise AzuriteError when something listens on this port of 127.0.0.1 already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            message = (
                f"port {port} of 127.0.0.1 is in use by another program"
                f"{name_listener(port)} ({error.strerror}); "
                f"`ss -ltnp sport = :{port}` shows the process; set `trainyard:storage.port` to another port"
            )
            raise AzuriteError(message) from None


def _restart(folder: Path, current: Server, wanted: Server, lock_fd: int) -> Server:
    _end(current)
    try:
        return _launch(folder, wanted, lock_fd)
    except (AzuriteError, OSError):
        # Better the old settings than no store.
        with suppress(AzuriteError, OSError):
            _launch(folder, current.command, lock_fd)
        raise


def _launch(folder: Path, wanted: Server, lock_fd: int) -> Server:
    check_free_space(folder)
    check_port(wanted.port)
    _ensure_key(folder)
    (folder / DATA_FOLDER).mkdir(mode=0o700, exist_ok=True)
    _write_server(folder, wanted)
    # -P: a folder `infra` where we were called must not stand in for this one.
    program = [sys.executable, "-P", "-m", "infra.local.azurite_server", "exec"]
    subprocess.run(
        [*program, str(folder), str(lock_fd)],
        pass_fds=(lock_fd,),
        stdin=subprocess.DEVNULL,
        check=False,  # what went wrong is seen, and said, below
    )
    _wait_until_answering(folder)
    _create_containers(folder, wanted)
    started = read_server(folder)
    assert started is not None
    return started


def _become_server(folder: Path, lock_fd: int) -> None:
    """Write down who we are, then become Azurite.

    The lock came from the starter and stays held until the record is on disk, even where the
    starter is killed in between: no server runs that the folder does not know.
    """
    # Neither end passes exec: the starter waits until the record is written, or the child dead.
    until_exec, held_open = os.pipe()
    if os.fork() > 0:
        os.close(held_open)
        os.read(until_exec, 1)
        return
    os.setsid()
    server = read_server(folder)
    assert server is not None
    log_fd = os.open(folder / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    _write_server(folder, replace(server, pid=os.getpid(), identity=identify(os.getpid())))
    os.set_inheritable(lock_fd, False)
    key = (folder / KEY_FILE).read_text(encoding="ascii")
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment["AZURITE_ACCOUNTS"] = f"{server.account}:{key}"
    os.chdir(folder)
    argv = [server.node, server.azurite, "--blobHost", "127.0.0.1"]
    argv += ["--blobPort", str(server.port), "--location", str(folder / DATA_FOLDER)]
    # Azurite is older than the newest SDK's API version, which works all the same.
    argv += ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    os.execve(server.node, argv, environment)


def _wait_until_answering(folder: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        server = read_server(folder)
        if server is None or not server.is_running:
            message = f"Azurite ended at once: {_last_words(folder)}"
            raise AzuriteError(message)
        if _is_answering(folder, server):
            return
        time.sleep(POLL_S)
    message = f"Azurite did not answer within {START_TIMEOUT_S:.0f} s: {_last_words(folder)}"
    raise AzuriteError(message)


def _is_answering(folder: Path, server: Server) -> bool:
    return find_missing_containers(folder, server) is not None


def _create_containers(folder: Path, server: Server) -> None:
    from infra.local.containers import StoreError, create_container

    key = (folder / KEY_FILE).read_text(encoding="ascii")
    try:
        for name in find_missing_containers(folder, server) or ():
            create_container(server.port, server.account, key, name)
    except StoreError as error:
        raise AzuriteError(str(error)) from error


def _end(server: Server) -> None:
    """Terminate the process, kill it after a grace; returns when it is gone."""
    assert server.pid is not None
    for number, patience_s in ((signal.SIGTERM, STOP_GRACE_S), (signal.SIGKILL, STOP_GRACE_S)):
        with suppress(ProcessLookupError):
            os.kill(server.pid, number)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if not server.is_running:
                return
            time.sleep(POLL_S)
    message = f"Azurite (pid {server.pid}) does not end, not even by SIGKILL"
    raise AzuriteError(message)


def _ensure_key(folder: Path) -> None:
    if (folder / KEY_FILE).exists():
        return
    key = base64.b64encode(secrets.token_bytes(64)).decode()
    write_whole(folder / KEY_FILE, key)


def _write_server(folder: Path, server: Server) -> None:
    write_whole(folder / SERVER_FILE, json.dumps(asdict(server), indent=1) + "\n")


def _last_words(folder: Path) -> str:
    try:
        lines = (folder / LOG_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return "; ".join(lines[-3:]) or f"it left nothing in {folder / LOG_FILE}"


def _never_started(folder: Path) -> Server:
    message = f"no server was ever started in {folder}; `uv run pulumi up -s local` makes it"
    raise AzuriteError(message)


def main(argv: list[str]) -> int:
    """Run the program; `status` ends with 0 when the server answers, with 3 when not."""
    match argv:
        case ["start", folder, *programs]:
            path = Path(folder).absolute()
            server = start(path, read_own(path, *programs))
            print(json.dumps(asdict(server)))  # noqa: T201
            return 0
        case ["stop", folder]:
            print("stopped" if stop(Path(folder).absolute()) else "was not running")  # noqa: T201
            return 0
        case ["status", folder]:
            path = Path(folder).absolute()
            server = read_server(path)
            answering = server is not None and server.is_running and _is_answering(path, server)
            print("answering" if answering else "not running")  # noqa: T201
            return 0 if answering else 3
        case ["exec", folder, lock_fd]:
            _become_server(Path(folder), int(lock_fd))
            return 0
        case _:
            print(__doc__, file=sys.stderr)  # noqa: T201
            return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except AzuriteError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
