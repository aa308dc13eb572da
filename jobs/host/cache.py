"""Things built once per machine: keyed folders in the cache, one builder at a time, whole or absent.

Standard library only: set-up calls it before any environment exists.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.owners import FOLDER, xdg_folder
from jobs.host.private import locked, make_folder

# Shows a step while it runs; what it shows is the caller's.
Report = Callable[[str], AbstractContextManager[object]]

LOG_TAIL_LINES = 15


def cache_root(environ: Mapping[str, str]) -> Path:
    """Give the folder outside of a repository that programs and what can be made again lie in.

    Raises EnvironmentFailure where the user has no home, or names a folder that others can change.
    """
    if named := xdg_folder(environ, "XDG_CACHE_HOME"):
        return named
    with suppress(RuntimeError):  # of a user without a home
        base = Path("~/.cache").expanduser()
        if base.is_absolute():
            return base / FOLDER
    message = "there is no home folder for the cache"
    raise EnvironmentFailure(message, hint="set XDG_CACHE_HOME to an absolute folder")


def content_key(parts: Sequence[bytes | str]) -> str:
    """Name a result by all that went into it: 16 hex digits, equal only for equal parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:16]


@contextmanager
def exclusive(path: Path, *, what: str, report: Report) -> Generator[int]:
    """Hold the lock file at `path`; waits, saying so, while another process makes `what`.

    Yields the lock's descriptor: children that inherit it keep the lock when their parent is
    killed, so nobody starts anew beside a builder that lives on.
    """
    make_folder(path.parent)
    waiting = partial(report, f"waiting for another process that makes {what}")
    with locked(path, waiting=waiting) as descriptor:
        yield descriptor


def run_logged(
    command: Sequence[str | Path],
    *,
    what: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    keep: Sequence[int] = (),
    hint: str | None = None,
    answer: IO[bytes] | None = None,
) -> None:
    """Run a command with its output in `log`, or what it writes to stdout in the file `answer`.

    Raises EnvironmentFailure with the log's last lines and its path when the command fails.
    """
    make_folder(log.parent)
    arguments = [str(part) for part in command]
    with log.open("ab") as output:
        output.write(f"+ {' '.join(arguments)}\n".encode())
        output.flush()
        try:
            code = subprocess.run(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=answer or output,
                stderr=output,
                env=env,
                cwd=cwd,
                pass_fds=keep,
                check=False,
            ).returncode
        except OSError as error:
            message = f"{what}: cannot start {arguments[0]}: {error.strerror}"
            raise EnvironmentFailure(message, hint=hint) from error
    if code != 0:
        raise failure(what, code, log, hint=hint)


def failure(what: str, code: int, log: Path, *, hint: str | None = None) -> EnvironmentFailure:
    """Make the error for a program that failed: its log's last lines and path."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
    tail = "\n".join(f"  | {line}" for line in lines)
    message = f"{what} failed (exit code {code}); the end of {log}:\n{tail}"
    return EnvironmentFailure(message, hint=hint)
