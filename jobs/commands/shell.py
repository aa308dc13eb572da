"""`launch shell`: run a program, or a shell, with an image's Python first on PATH."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from jobs.commands import completers
from jobs.commands.usage import make_app

Image = Annotated[
    str,
    typer.Argument(
        metavar="IMAGE",
        help="A folder of images/ that is installed.",
        autocompletion=completers.images,
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND...]", help="A command line; else an interactive shell."),
]


def shell(*, image: Image, command: Words = None) -> None:
    """Start a shell or a command in an image's runtime.

    `python` is the image's, and `trainer` can be imported from every folder. The working folder stays.
    The exit code is the command's. Write `--` before a command that has options.
    """
    from jobs.contracts.errors import EnvironmentFailure
    from jobs.host import console
    from jobs.host.project import require_trusted, sources_folder
    from jobs.images.runtimes import runtime_python
    from jobs.images.shell import interactive_shell, shell_environment

    project = sources_folder()
    require_trusted(project)
    environ = shell_environment(runtime_python(image, project), project, os.environ)
    words = command or interactive_shell(environ)
    if not command and console.is_terminal(sys.stderr):
        console.say(f"the shell's `python` is that of image {image}; `exit` leaves it")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(words[0], words, environ)
    except OSError as error:
        message = f"cannot start `{words[0]}`: {error.strerror}"
        hint = f"launch shell {image} -- python -c 'import sys; print(sys.path)'"
        raise EnvironmentFailure(message, hint=hint) from None


app = make_app({"shell": shell})
