"""The command line `launch`: finds the verb, runs it, and catches errors, once."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Collection, Sequence
from importlib import import_module

from jobs.commands.parser import Act, CommandParser
from jobs.contracts.errors import ExitCode, LaunchError, hint_for_file
from jobs.host import console

# In the order of `launch --help`. A verb's module loads only when it is the one asked for; it is
# jobs/commands/<verb>.py.
VERBS = {
    "run": "Run a job and follow its ranks' logs.",
    "plan": "Show what `launch run` would start.",
    "ls": "List runs, newest first.",
    "show": "Show all that is known of a run.",
    "logs": "Print the log lines of all ranks, merged by time.",
    "wait": "Wait for the end of a run.",
    "cancel": "End runs.",
    "fetch": "Bring a run's outputs and logs home.",
    "rerun": "Run a recorded run once more.",
    "diff": "Show what parts two runs.",
    "report": "Show the figures of runs; draw their curves.",
    "data": "Prepare, push, list and pull datasets.",
    "env": "Look at environments; hand one on; mend one.",
    "cluster": "Look at a stack's clusters; keep nodes warm, let them go, change how many.",
    "image": "Install images on this machine; build and push them as containers.",
    "schema": "Print the JSON Schema of a job file.",
    "doctor": "Say what this machine lacks.",
    "completion": "Print what makes a shell complete `launch`.",
}

# argcomplete's shell functions set it.
COMPLETING = "_ARGCOMPLETE"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code (errors.ExitCode)."""
    if argv is None and sys.getfilesystemencoding() != "utf-8":
        _begin_again_in_utf8()
    _open_missing_streams()
    _clean_up_when_told_to_end()
    if COMPLETING in os.environ:
        return _complete(os.environ.get("COMP_LINE", ""))
    words, debug = _take_debug(list(sys.argv[1:] if argv is None else argv))
    try:
        result = _call(words)
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
    """Replace this process by one that can say every file's name, and so can what it starts.

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
    """Let SIGTERM and SIGHUP end this process as an exception does: what is half made goes."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        # One that nohup has us ignore stays ignored.
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def build_parser(verbs: Collection[str]) -> CommandParser:
    """The parser that lists every verb, and knows the arguments of those that are needed."""
    parser = CommandParser(
        "launch", "Run distributed training jobs on an environment made by `pulumi up`."
    )
    parser.epilog = "`launch run digits` runs the demo's job; `launch COMMAND --help` tells more."
    parser.add_argument("--version", action="store_true", help="Print the version.")
    parser.add_argument(
        "--debug",
        action="store_true",
        help="Show the traceback of an error; may stand anywhere.",
    )
    for verb, text in VERBS.items():
        if verb in verbs:
            import_module(f"jobs.commands.{verb}").configure(parser.add_command(verb, text))
        else:
            parser.list_command(verb, text)
    return parser


def _call(words: list[str]) -> int:
    verb = _verb_in(words)
    parser = build_parser({verb} & VERBS.keys())
    try:
        arguments = parser.parse_line(words)
    except SystemExit:  # how argparse ends after it printed a help
        return 0
    if "act" not in arguments:
        return _without_command(parser, parser.commands.get(verb, parser), arguments)
    values = vars(arguments)
    act: Act = values.pop("act")
    try:
        return int(act(**values) or 0)
    except LaunchError as error:
        if error.hint and (file := values.get("env")):
            error.hint = hint_for_file(error.hint, file)
        raise


def _without_command(parser: CommandParser, asked: CommandParser, arguments: Namespace) -> int:
    """Answer to a line that names no command: the version, or the help as for a mistake."""
    if asked is parser and arguments.version:
        from importlib.metadata import version

        console.out(f"launch {version('trainyard')}")
        return 0
    console.say(asked.format_help().rstrip())
    return int(ExitCode.USAGE)


def _verb_in(words: Sequence[str]) -> str:
    """The first word that is no option: before the verb no option takes a value."""
    return next((word for word in words if not word.startswith("-")), "")


def _take_debug(words: list[str]) -> tuple[list[str], bool]:
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word != "--debug"]
    return kept + words[end:], len(kept) != end


def _unexpected(error: Exception) -> LaunchError:
    if isinstance(error, FileNotFoundError) and error.filename is None:
        # os.getcwd() names no file.
        return LaunchError("the working folder is gone", hint="cd to a folder that is there")
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return LaunchError(f"{error.strerror}{place}", hint="add --debug to see where it happened")
    if isinstance(error, RecursionError):
        message = "what a file or a service says is nested too deeply to be read"
        return LaunchError(message, hint="add --debug to see what was read")
    message = f"{type(error).__name__}: {error}"
    return LaunchError(message, hint="this is a fault of launch; add --debug for its traceback")


def _complete(line: str) -> int:
    """Answer the shell; whatever goes wrong, the line being typed stays undisturbed."""
    try:
        from jobs.commands.completers import answer

        answer(build_parser({_verb_in(line.split()[1:])} & VERBS.keys() or VERBS))
    except Exception:  # noqa: BLE001 - see above
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
