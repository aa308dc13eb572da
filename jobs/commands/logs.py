"""`launch logs`: the lines of all ranks, merged by time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, options
from jobs.commands.usage import make_app
from jobs.contracts.errors import LaunchError
from jobs.host import console

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from jobs.contracts.spec import LogLine, RunHandle, RunStatus
    from jobs.engines.base import Engine


def logs(
    *,
    run: options.Run = "last",
    follow: options.Follow = False,
    rank: Annotated[
        str | None,
        typer.Option(
            metavar="N,N-M",
            help="These ranks only: 0,3 or 0-7.",
            autocompletion=completers.ranks,
        ),
    ] = None,
    grep: Annotated[str | None, typer.Option(metavar="RE", help="Lines that match only.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Later lines only: 5m, 2h or an ISO time."),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=options.whole_number(at_least=0), help="The last lines only."
        ),
    ] = None,
    times: Annotated[
        bool, typer.Option("-t", "--timestamps", help="Show each line's time (UTC).")
    ] = False,
    preparation: Annotated[
        bool,
        typer.Option(
            "--preparation", help="Instead: how image and nodes were made ready (Azure ML)."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> int:
    """Print the log lines of all ranks, merged by time.

    With -f the exit code is the run's: 0 completed, 100 failed, 103 cancelled. Ctrl-C leaves the run
    alone.
    """
    import time

    from jobs.launching.follow import (
        lines_to_the_end,
        wait_until_over,
        wait_until_started,
        write_lines,
    )
    from jobs.launching.start import detached, say_summary
    from jobs.runs.logs import since_time
    from jobs.runs.outcome import exit_code

    pattern = _pattern(grep)
    earliest = since_time(since, time.time()) if since is not None else None
    environment = options.open_environment(stack, env)
    engine, handle = options.open_run(run, environment)
    if preparation:
        _print_preparation(engine, handle)
        return 0
    status = engine.status(handle)
    # Parameter servers have logs, too, numbered after the ranks.
    spec = engine.store.record(handle).plan.spec
    num_logs = status.world_size + spec.parameter_servers
    ranks = parse_ranks(rank, num_logs) if rank is not None else None
    words = options.stack_words(stack, env)
    try:
        if follow:
            wait_until_started(engine, handle)
        # Who reads how a run ended does not start it again.
        is_on = not status.state.is_terminal()
        read = lines_to_the_end if follow and is_on else _lines_so_far
        lines = read(engine, handle, ranks, since=earliest, tail=tail, grep=pattern)
        if json:
            _write_json(lines)
        else:
            write_lines(lines, num_logs, has_times=times)
        if not follow:
            _hint_at_nothing(status)
            return 0
        status = wait_until_over(engine, handle)
    except KeyboardInterrupt:
        if not follow:
            raise
        return detached(engine, handle, words)
    say_summary(engine, handle, status, environment, words)
    return exit_code(status)


def _lines_so_far(
    engine: Engine, handle: RunHandle, ranks: Sequence[int] | None, **filters: Any
) -> Iterator[LogLine]:
    return engine.logs(handle, ranks, follow=False, **filters)


def _print_preparation(engine: Engine, handle: RunHandle) -> None:
    from jobs.engines.base import Attended

    if not isinstance(engine, Attended):
        message = f"{handle.id} is a run of this machine: nothing was made ready for it elsewhere"
        raise LaunchError(message, hint=f"launch show {handle.id}")
    shown = ""
    for name, line in engine.preparation(handle):
        if name != shown:
            console.out(console.styled(f"==> {name} <==", "bold"))
            shown = name
        console.out(line)


def parse_ranks(text: str, world_size: int) -> list[int]:
    """The ranks that `0,3`, `0-7` or a mixture names, in order.

    Raises LaunchError for what is no rank, or none of this run.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?\s*", part)
        if match is None:
            message = f"`--rank {text}`: `{part}` is no rank"
            raise LaunchError(message, hint="for example --rank 0,3 or --rank 0-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) >= world_size:
            message = f"`--rank {text}`: the run has the ranks 0 to {world_size - 1}"
            raise LaunchError(message, hint=f"--rank {world_size - 1}")
        ranks.update(range(first, last + 1))
    if not ranks:
        message = f"`--rank {text}` names no rank"
        raise LaunchError(message, hint="for example --rank 0,3 or --rank 0-7")
    return sorted(ranks)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        message = f"`--grep {text}` is no regular expression: {error}"
        raise LaunchError(
            message, hint="a plain word needs no quoting; put \\ before ( [ * + ?"
        ) from None


def _write_json(lines: Iterable[LogLine]) -> None:
    import msgspec

    for line in lines:
        console.out(msgspec.json.encode(line).decode())


def _hint_at_nothing(status: RunStatus) -> None:
    if not status.state.is_terminal():
        console.say(f"{status.id} is {status.state.value}; -f goes on reading")


app = make_app({"logs": logs})
