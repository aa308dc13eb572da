"""The command line `launch`: runs what was typed, and catches errors, once.

Two things are answered without loading the command framework, which would be most of their
time: the help of the whole, and `ls`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs import console
from jobs.errors import ExitCode, LaunchError
from jobs.verbs import overview

COMPLETING = "_LAUNCH_COMPLETE"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code (errors.ExitCode)."""
    _open_missing_streams()
    arguments, debug = _take_debug(list(sys.argv[1:] if argv is None else argv))
    if COMPLETING in os.environ:
        return _complete()
    try:
        result = _call(arguments)
        sys.stdout.flush()
    except LaunchError as error:
        if debug:
            raise
        console.report_error(error)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader left; the interpreter must not complain when it flushes once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return console.READER_GONE
    except Exception as error:
        if debug:
            raise
        console.report_error(_unexpected(error))
        return int(ExitCode.ENVIRONMENT)
    return result


def plain_listing(words: Sequence[str]) -> tuple[int | None, bool, str, Path | None] | None:
    """What `launch ls WORDS` asks for: limit, JSON, stack, environment file.

    None for all that has to be parsed with care: help, mistakes, joined or repeated options.
    """
    takes_value = {"-n": "limit", "--limit": "limit", "-s": "stack", "--stack": "stack"}
    takes_value["--env"] = "env"
    flags = {"-a": "all", "--all": "all", "--json": "json"}
    given: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name = takes_value.get(word) or flags.get(word)
        if name is None or name in given or (word in takes_value and not left):
            return None
        given[name] = left.pop(0) if word in takes_value else "yes"
    limit = given.get("limit", "20")
    if not limit.isdecimal() or int(limit) < 1 or any(not value for value in given.values()):
        return None
    stack = given.get("stack") or os.environ.get("TRAINYARD_STACK") or "local"
    env_file = Path(given["env"]) if "env" in given else None
    return (None if "all" in given else int(limit)), "json" in given, stack, env_file


def _call(arguments: list[str]) -> int:
    if arguments in (["-h"], ["--help"]):
        console.out(overview())
        return int(ExitCode.SUCCEEDED)
    listing = plain_listing(arguments[1:]) if arguments[:1] == ["ls"] else None
    if listing is not None:
        from jobs.listing import list_runs

        limit, as_json, stack, env_file = listing
        list_runs(stack, env_file, limit=limit, as_json=as_json)
        return int(ExitCode.SUCCEEDED)
    from jobs.app import call

    return call(arguments)


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [word for word in arguments[:end] if word != "--debug"]
    return kept + arguments[end:], len(kept) != end


def _open_missing_streams() -> None:
    """A stream that was closed (`launch ls >&-`) is None; what is written there is lost."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115


def _unexpected(error: Exception) -> LaunchError:
    if isinstance(error, FileNotFoundError) and error.filename is None:
        # os.getcwd() names no file.
        return LaunchError("the working folder is gone", hint="cd to a folder that is there")
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return LaunchError(f"{error.strerror}{place}", hint="add --debug to see where it happened")
    message = f"{type(error).__name__}: {error}"
    return LaunchError(message, hint="this is a fault of launch; add --debug for its traceback")


def _complete() -> int:
    """Answer the shell; whatever goes wrong, the line being typed stays undisturbed."""
    from jobs.app import complete

    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the end
    try:
        complete(words.split()[1:])
    except SystemExit:
        return 0
    except Exception:  # noqa: BLE001 - see above
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
