"""Find the verb of `launch` that was typed, run it, and report errors once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer._click.core import Command, Context
from typer._click.exceptions import NoArgsIsHelpError, UsageError
from typer._click.shell_completion import CompletionItem
from typer.main import get_command

from jobs.commands.usage import SETTINGS, Group, as_launch_error
from jobs.contracts.errors import ExitCode, LaunchError
from jobs.host import console

# In the order of `launch --help`. A verb is jobs/commands/<verb>.py (or _ROOMS), which holds its `app` and
# loads only when the verb is typed.
VERBS = {
    "run": "Run a job and follow its ranks' logs.",
    "plan": "Show what `launch run` would start.",
    "bench": "Measure a job at several sizes, and report how it scales.",
    "predict": "Predict training rates on more GPUs from measured ones.",
    "init": "Write the job file of a script.",
    "import": "Write job files from those of Batch AI and other tools.",
    "jobs": "List the jobs of the catalog with their requirements and arguments.",
    "ls": "List runs, newest first.",
    "show": "Show a run's state, attempts, ranks and figures.",
    "logs": "Print the log lines of all ranks, merged by time.",
    "stacks": "Show where all ranks stand in their Python code (stack traces); `launch env ls` lists stacks.",
    "exec": "Run a command beside a rank, in its folder, variables and image.",
    "wait": "Wait for the end of a run.",
    "cancel": "End runs.",
    "fetch": "Download a run's outputs and logs.",
    "keep": "Protect runs from `launch rm` and `launch prune`.",
    "rm": "Remove runs that are over, with their outputs and checkpoints.",
    "prune": "Remove old runs and cached files that nothing uses.",
    "rerun": "Start a recorded run again.",
    "diff": "Show how two runs differ.",
    "report": "Show the final figures of runs and draw their curves.",
    "ui": "Show runs, data, clusters and environments in the browser, and act on them.",
    "data": "Prepare, push, list and pull datasets.",
    "model": "Register, list, fetch and copy the models that runs wrote.",
    "env": "List, show, export, check and repair environments.",
    "cluster": "List a stack's clusters; keep nodes warm, release them, resize.",
    "image": "Install images on this machine; build, push and promote them as containers.",
    "shell": "Start a shell or a command in an image's runtime.",
    "schema": "Print the JSON Schema of a job file or of an environment.",
    "doctor": "Check this machine and name what is missing.",
    "completion": "Print the script by which a shell completes `launch`.",
}

# The rooms of verbs that build on others.
_ROOMS = {"ui": "jobs.ui.command"}

# Set by typer's completion scripts.
COMPLETING = "_LAUNCH_COMPLETE"


def module_of(verb: str) -> str:
    """Name the module that holds the `app` of a verb."""
    return _ROOMS.get(verb, f"jobs.commands.{verb}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (errors.ExitCode)."""
    if argv is None and sys.getfilesystemencoding() != "utf-8":
        _begin_again_in_utf8()
    _open_missing_streams()
    _clean_up_when_told_to_end()
    if COMPLETING in os.environ:
        return _complete(os.environ[COMPLETING])
    words, debug = _take_debug(list(sys.argv[1:] if argv is None else argv))
    try:
        result = call(words)
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


def _begin_again_in_utf8() -> None:
    """Start this process again in UTF-8, which it and its children need for file names.

    Where PYTHONUTF8=0 meets the language C there is ASCII alone.
    """
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _open_missing_streams() -> None:
    """Open /dev/null for each standard stream that was closed (`launch ls >&-`).

    A closed descriptor of 0 to 2 would be given to the next file that is opened, which whoever
    writes to the stream, or a child that gets streams of its own, would overwrite.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free one, which it is: those before it are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            stream = open(descriptor, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def _clean_up_when_told_to_end() -> None:
    """Turn SIGTERM and SIGHUP into SystemExit, so that half-made files are removed."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        # One that nohup has us ignore stays ignored.
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


class Verbs(Group):
    """List every verb from the table; import the module of the one that was typed."""

    def lines(self, ctx: Context) -> Mapping[str, str]:
        """Return the table VERBS."""
        del ctx
        return VERBS

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the verbs in the order of the help."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import a verb's module and build its command; None if there is no such verb."""
        del ctx
        if cmd_name not in VERBS:
            return None
        command = get_command(import_module(module_of(cmd_name)).app)
        command.help = command.help or VERBS[cmd_name]
        return command

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Complete verbs without importing them."""
        found = [
            CompletionItem(verb, help=text)
            for verb, text in VERBS.items()
            if verb.startswith(incomplete)
        ]
        return found or super().shell_complete(ctx, incomplete)


def build_app() -> typer.Typer:
    """Build the app of `launch`: its own options, and the verbs of the table."""
    app = typer.Typer(
        cls=Verbs,
        help="Run distributed training jobs on an environment made by `pulumi up`.",
        epilog="`launch run digits` runs the demo job; `launch COMMAND --help` explains a command.",
        context_settings=SETTINGS,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_own_options)
    return app


def _print_version(ctx: typer.Context, *, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        from importlib.metadata import version

        console.out(f"launch {version('trainyard')}")
        raise typer.Exit


def _own_options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; allowed at any place.")
    ] = False,
) -> None: ...


def call(words: list[str]) -> int:
    """Run the verb that the words say; give its exit code.

    Raises LaunchError, and whatever a mistake of ours ends with.
    """
    try:
        launch = get_command(build_app())
        with launch.make_context("launch", words) as context:
            return int(launch.invoke(context) or 0)
    except typer.Exit as end:  # after a help or the version
        return end.exit_code
    except NoArgsIsHelpError as error:
        console.say(error.message)
        return int(ExitCode.USAGE)
    except UsageError as error:
        raise as_launch_error(error) from None


def _take_debug(words: list[str]) -> tuple[list[str], bool]:
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word != "--debug"]
    return kept + words[end:], len(kept) != end


def _unexpected(error: Exception) -> LaunchError:
    if isinstance(error, FileNotFoundError) and error.filename is None:
        # os.getcwd() names no file.
        return LaunchError("the working folder was deleted", hint="cd to an existing folder")
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return LaunchError(f"{error.strerror}{place}", hint="add --debug to see where it happened")
    if isinstance(error, RecursionError):
        message = "a file or an answer of a service is nested too deeply"
        return LaunchError(message, hint="add --debug to see its source")
    message = f"{type(error).__name__}: {error}"
    return LaunchError(message, hint="this is a bug in launch; add --debug for the traceback")


def _complete(instruction: str) -> int:
    """Answer the shell's request for completions; print nothing if anything fails."""
    try:
        from jobs.commands.completers import answer

        return answer(get_command(build_app()), instruction, COMPLETING)
    except Exception:  # noqa: BLE001 - see above
        return 0


if __name__ == "__main__":
    sys.exit(main())
