"""The typer application behind `launch`, with the verbs that are needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer._click.exceptions import ClickException, NoArgsIsHelpError, UsageError
from typer.core import TyperGroup

from jobs import console
from jobs.errors import ExitCode, LaunchError
from jobs.verbs import OPTIONS, SUMMARY, VERBS, overview


class Root(TyperGroup):
    """`launch` itself: its help is made of the verbs' lines, whichever of them are loaded."""

    def get_help(self, ctx: Any) -> str:
        """Give the same text that is given where typer is not loaded."""
        del ctx
        return overview()


def build_app(verbs: Sequence[str]) -> typer.Typer:
    """The application with the verbs that are needed."""
    app = typer.Typer(
        name="launch",
        cls=Root,
        help=SUMMARY,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_options)
    for verb in verbs:
        import_module(f"jobs.commands.{verb}").register(app)
    return app


def call(arguments: Sequence[str]) -> int:
    """Parse the arguments and run their verb; raises LaunchError for what it cannot parse."""
    app = build_app(verbs_for(arguments))
    try:
        result: Any = app(list(arguments), prog_name="launch", standalone_mode=False)
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


def complete(words: Sequence[str]) -> None:
    """Answer the shell, which says by environment variables what is typed."""
    build_app(verbs_for(words))(prog_name="launch")


def verbs_for(arguments: Sequence[str]) -> list[str]:
    """The one verb that was typed; all of them for a misspelt one."""
    first = next((word for word in arguments if not word.startswith("-")), None)
    return [first] if first in VERBS else list(VERBS)


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
            "--version", help=OPTIONS["--version"], is_eager=True, callback=_print_version
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help=OPTIONS["--debug"])] = False,
) -> None:
    """Take the options that stand before the verb."""
    # The callback has acted on the one, main() on the other.
    del version, debug


def _usage_error(error: UsageError, arguments: Sequence[str]) -> LaunchError:
    from difflib import get_close_matches

    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:]
    verb = verbs_for(arguments)
    if len(verb) == 1:
        return LaunchError(message, hint=f"see `launch {verb[0]} --help`")
    typed = next((word for word in arguments if not word.startswith("-")), "")
    near = get_close_matches(typed, list(VERBS), n=1)
    if typed and "command" in message:
        message = f"there is no `launch {typed}`"
    hint = f"did you mean `launch {near[0]}`?" if near else "see `launch --help`"
    return LaunchError(message, hint=hint)
