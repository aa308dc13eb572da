"""Runs `launch` in a fork that may crash at a point of a submit.

Imports nothing of the stand-in Azure: every fork would load it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection
from typing import Any, Literal, NoReturn, get_args

Crash = Literal[
    "",
    "before the intent",
    "after the intent",
    "after the code",
    "after the image",
    "after the record",
    "while the job is sent",
    "after the reply",
]
CRASHES: tuple[Crash, ...] = tuple(each for each in get_args(Crash) if each)


def run_launch(
    argv: Sequence[str], environ: Mapping[str, str], folder: str, out: str, err: str, crash: Crash
) -> None:
    """Run the words with these variables, in this folder, writing to these files; ends the process."""
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    faulthandler.enable()
    from jobs.cli import main
    from jobs.engines.azure_ml import logs, status

    # A person's machine asks Azure less often than a test can bear to wait.
    logs.PERIOD_S = status.FRESH_S = 0.25
    if crash:
        _arm(crash)
    code = main(list(argv))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _arm(crash: Crash) -> None:
    """Have this process killed at a point of a submit."""
    from jobs.engines.azure_ml import sender, submission

    way = sender.JobSender
    if crash == "before the intent":
        _die_in(submission, "write_intent", is_before=True)
    elif crash == "after the intent":
        _die_in(submission, "write_intent")
    elif crash == "after the code":
        _die_in(sender, "upload")
    elif crash == "after the image":
        _die_in(sender, "send_version")
    elif crash == "after the record":
        _die_in(submission.Submission, "prepare")
    elif crash == "after the reply":
        _die_in(way, "put")
    else:
        put = way.put

        def put_and_die(*args: Any) -> None:
            # The request is on its way, and nobody reads the answer.
            _die_in(HTTPConnection, "getresponse", is_before=True)
            put(*args)

        way.put = put_and_die  # type: ignore[method-assign]


def _die_in(owner: Any, name: str, *, is_before: bool = False) -> None:
    real: Callable[..., Any] = getattr(owner, name)

    def fatal(*args: Any, **keywords: Any) -> NoReturn:
        if not is_before:
            real(*args, **keywords)
        _die()

    setattr(owner, name, fatal)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    raise AssertionError
