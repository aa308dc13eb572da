"""`launch logs`: print the lines of all ranks, merged by time."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import Annotated

import typer

from jobs.commands import completers, options, quantities
from jobs.commands.usage import make_app
from jobs.host import console


def logs(
    *,
    run: options.Run = "last",
    follow: options.Follow = False,
    rank: Annotated[
        str | None,
        typer.Option(
            metavar="N,N-M",
            help="Print only these ranks, e.g. 0,3 or 0-7.",
            autocompletion=completers.ranks,
        ),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(metavar="RE", help="Print only lines that match this regular expression."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Print only lines after this time: 5m, 2h or an ISO time."
        ),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=quantities.whole_number(at_least=0),
            help="Print only the last N lines.",
        ),
    ] = None,
    times: Annotated[
        bool, typer.Option("-t", "--timestamps", help="Show each line's time (UTC).")
    ] = False,
    preparation: Annotated[
        bool,
        typer.Option(
            "--preparation", help="Print the logs of image and node preparation (Azure ML)."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> int:
    """Print the log lines of all ranks, merged by time.

    With -f the exit code is the run's: 0 completed, 100 failed, 103 cancelled. Ctrl-C does not stop
    the run.
    """
    import msgspec

    from jobs.launching.follow import (
        lines_to_the_end,
        preparation_lines,
        wait_until_over,
        wait_until_started,
        write_lines,
    )
    from jobs.launching.start import detached, say_summary
    from jobs.launching.status_line import status_line
    from jobs.runs.logs import parse_pattern, parse_ranks, since_time
    from jobs.runs.outcome import exit_code

    pattern = parse_pattern(grep)
    earliest = since_time(since, time.time()) if since is not None else None
    environment = options.open_environment(stack, env)
    engine, handle = options.open_run(run, environment)
    if preparation:
        for line in preparation_lines(engine, handle):
            console.out(line)
        return 0
    status = engine.store.status(handle)
    num_logs = engine.store.record(handle).plan.spec.num_processes
    ranks = parse_ranks(rank, num_logs) if rank is not None else None
    words = options.stack_words(stack, env)
    try:
        started = wait_until_started(engine, handle) if follow else status
        # Who reads how a run ended does not start it again.
        is_on = not status.state.is_terminal()
        so_far = partial(engine.logs, follow=False)
        read = partial(lines_to_the_end, engine) if is_on and follow else so_far
        lines = read(handle, ranks, since=earliest, tail=tail, grep=pattern)
        if json:
            for line in lines:
                console.out(msgspec.json.encode(line).decode())
        else:
            below = status_line(engine, handle, started) if is_on and follow else nullcontext()
            with below as line:
                write_lines(lines, num_logs, has_times=times, line=line)
        if not follow:
            if is_on:
                console.say(f"{status.id} is {status.state.value}; -f goes on reading")
            return 0
        status = wait_until_over(engine, handle)
    except KeyboardInterrupt:
        if not follow:
            raise
        return detached(engine, handle, words)
    say_summary(engine, handle, status, words)
    return exit_code(status)


app = make_app({"logs": logs})
