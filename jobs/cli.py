"""The command line `launch`: finds the verb, runs it, and catches errors, once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from jobs import console
from jobs.errors import ExitCode, LaunchError

# In the order of `launch --help`. A verb's module loads only when it is the one asked for.
VERBS = {
    "run": "jobs.commands.run",
    "plan": "jobs.commands.plan",
    "ls": "jobs.commands.ls",
    "show": "jobs.commands.show",
    "logs": "jobs.commands.logs",
    "wait": "jobs.commands.wait",
    "cancel": "jobs.commands.cancel",
    "fetch": "jobs.commands.fetch",
    "rerun": "jobs.commands.rerun",
    "diff": "jobs.commands.diff",
    "report": "jobs.commands.report",
    "data": "jobs.commands.data",
    "env": "jobs.commands.env",
    "image": "jobs.commands.image",
    "schema": "jobs.commands.schema",
    "doctor": "jobs.commands.doctor",
}

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


def _open_missing_streams() -> None:
    """A stream that was closed (`launch ls >&-`) is None; what is written there is lost."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115


def build_app(verbs: Sequence[str]) -> typer.Typer:
    """The application with the verbs that are needed."""
    app = typer.Typer(
        name="launch",
        help="Run distributed training jobs on an environment made by `pulumi up`.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_options)
    for verb in verbs:
        import_module(VERBS[verb]).register(app)
    return app


def _print_version(value: bool) -> None:
    if not value:
        return
    from importlib.metadata import version

    console.out(f"launch {version('trainyard')}")
    raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; after any verb, too.")
    ] = False,
) -> None:
    """Take the options that stand before the verb."""


def _call(arguments: list[str]) -> int:
    from typer._click.exceptions import ClickException, NoArgsIsHelpError, UsageError

    app = build_app(_verbs_for(arguments))
    try:
        result: Any = app(arguments, prog_name="launch", standalone_mode=False)
    except NoArgsIsHelpError as error:
        console.say(error.format_message())
        return int(ExitCode.USAGE)
    except UsageError as error:
        raise _usage_error(error, arguments) from error
    except ClickException as error:
        raise LaunchError(error.format_message()) from error
    except typer.Abort:
        return int(ExitCode.INTERRUPTED)
    return result if isinstance(result, int) else 0


def _verbs_for(arguments: Sequence[str]) -> list[str]:
    """The one verb that was typed; all of them for the help and for a misspelt one."""
    first = next((word for word in arguments if not word.startswith("-")), None)
    return [first] if first in VERBS else list(VERBS)


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [word for word in arguments[:end] if word != "--debug"]
    return kept + arguments[end:], len(kept) != end


def _usage_error(error: Any, arguments: Sequence[str]) -> LaunchError:
    from difflib import get_close_matches

    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:]
    verb = _verbs_for(arguments)
    if len(verb) == 1:
        return LaunchError(message, hint=f"see `launch {verb[0]} --help`")
    typed = next((word for word in arguments if not word.startswith("-")), "")
    near = get_close_matches(typed, list(VERBS), n=1)
    if typed and "command" in message:
        message = f"there is no `launch {typed}`"
    hint = f"did you mean `launch {near[0]}`?" if near else "see `launch --help`"
    return LaunchError(message, hint=hint)


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
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the end
    try:
        build_app(_verbs_for(words.split()[1:]))(prog_name="launch")
    except SystemExit:
        return 0
    except Exception:  # noqa: BLE001 - see above
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
