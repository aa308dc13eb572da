"""`launch fetch`: brings a run's outputs, metrics and logs home."""

from __future__ import annotations

import time
from pathlib import Path

from jobs.commands import completers as completion
from jobs.commands import options
from jobs.commands.parser import CommandParser
from jobs.contracts.errors import EnvironmentFailure
from jobs.host import console

# Between two looks at a run that is still on.
PAUSE_S = 2.0


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    parser.epilog = "Metrics and summary, too, and also while the run is on. Prints the folder."
    options.add_run(parser)
    into = parser.add_argument("--into", metavar="DIR", type=Path, help="Where to; else ./RUN.")
    completion.offer(into, completion.files)
    parser.add_argument("-f", "--follow", action="store_true", help="Go on until the run is over.")
    options.add_environment(parser)
    parser.set_defaults(act=fetch)


def fetch(*, run: str, into: Path | None, follow: bool, stack: str, env: Path | None) -> None:
    """Bring a run's outputs and logs home."""
    environment = options.open_environment(stack, env)
    engine, handle = options.open_run(run, environment)
    folder = Path(handle.id) if into is None else into.expanduser()
    while True:
        # Looked at before the copy: what is written in between would be missed otherwise.
        is_over = engine.store.status(handle).state.is_terminal()
        try:
            folder = engine.fetch(handle, folder)
        except OSError as error:
            message = f"cannot write to `{error.filename or folder}`: {error.strerror}"
            raise EnvironmentFailure(
                message, hint="--into DIR, a folder with space in it"
            ) from error
        if is_over or not follow:
            break
        time.sleep(PAUSE_S)
    console.out(str(folder))
    if not is_over:
        console.say(f"{handle.id} is still on; type it again for the rest, or --follow")
