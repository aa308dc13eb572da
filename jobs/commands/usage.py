"""Adapt typer to the rules of `launch`: errors are LaunchErrors, commands a table."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer
from typer._click.core import Context, Parameter
from typer._click.exceptions import (
    BadOptionUsage,
    BadParameter,
    MissingParameter,
    NoSuchOption,
    UsageError,
)
from typer._click.formatting import HelpFormatter
from typer.core import TyperCommand, TyperGroup

from jobs.contracts.errors import LaunchError, hint_for_file, hint_for_words

MAX_WIDTH = 100
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH}

# A verb: its exit code, None for success.
Act = Callable[..., int | None]


class Command(TyperCommand):
    """Reject surplus arguments and options that exclude each other."""

    allow_extra_args = True

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the words; raise LaunchError for surplus ones and for --stack beside --env."""
        with _known(ctx):
            rest = super().parse_args(ctx, args)
        if ctx.resilient_parsing:
            return rest
        if rest:
            message = f"unexpected argument: {rest[0]}"
            raise mistake(message, ctx)
        if _is_typed(ctx, "stack") and _is_typed(ctx, "env"):
            message = "argument --env: not allowed with argument -s/--stack"
            raise mistake(message, ctx)
        return rest

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Write a required argument as its name alone: `run JOB`, not `run {JOB}`."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def invoke(self, ctx: Context) -> int | None:
        """Run the verb; a hint of its errors names the stack or environment file that was typed."""
        try:
            return super().invoke(ctx)
        except LaunchError as error:
            file = ctx.params.get("env")
            if error.hint and file:
                error.hint = hint_for_file(error.hint, Path(file))
            if error.hint and "stack" in ctx.params:
                from jobs.commands.options import stack_words

                error.hint = hint_for_words(error.hint, stack_words(ctx.params["stack"], file))
            raise


class Group(TyperGroup):
    """List commands one a line; suggest the nearest for an unknown one."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the words up to the command's name."""
        with _known(ctx):
            return super().parse_args(ctx, args)

    def lines(self, ctx: Context) -> Mapping[str, str]:
        """Return each command's line of the help."""
        del ctx
        return {
            name: (command.help or "").partition("\n")[0] for name, command in self.commands.items()
        }

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands, unwrapped, before the options."""
        lines = self.lines(ctx)
        width = max(map(len, lines))
        with formatter.section("Commands"):
            for name, text in lines.items():
                formatter.write(f"  {name:<{width}}  {text}\n")
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write nothing: format_options wrote them."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command of the first word; raise LaunchError with the nearest if there is none."""
        command = self.get_command(ctx, args[0])
        if command is not None or ctx.resilient_parsing:
            return (args[0] if command else None), command, args[1:]
        near = get_close_matches(args[0], self.list_commands(ctx), n=1)
        message = f"there is no `{ctx.command_path} {args[0]}`"
        hint = f"did you mean `{ctx.command_path} {near[0]}`?" if near else _hint(ctx)
        raise LaunchError(message, hint=hint)


def make_app(commands: Mapping[str, Act], *, epilog: str | None = None) -> typer.Typer:
    """Make the app of a verb from its function, or of a group from several in their order.

    The help of each is its function's docstring.
    """
    app = typer.Typer(
        cls=Group,
        epilog=epilog,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for name, act in commands.items():
        app.command(name, cls=Command)(act)
    return app


def mistake(message: str, ctx: Context | None) -> LaunchError:
    """Make the error of a mistake in the command line; its hint names the help."""
    return LaunchError(message, hint=_hint(ctx))


def as_launch_error(error: UsageError) -> LaunchError:
    """Translate an error of typer's parser into ours."""
    ctx = error.ctx
    if isinstance(error, MissingParameter) and ctx is not None:
        missing = [
            _name(each)
            for each in ctx.command.params
            if each.required and each.name not in ctx.params
        ]
        return mistake(f"the following arguments are required: {', '.join(missing)}", ctx)
    if isinstance(error, NoSuchOption):
        meant = f" (did you mean {error.possibilities[0]}?)" if error.possibilities else ""
        unknown = mistake(f"no such option: {error.option_name}{meant}", ctx)
        takes = [each.name for each in ctx.command.params] if ctx is not None else []
        if "overrides" in takes and (key := _job_key(error.option_name)):
            unknown = mistake(f"no such option: {error.option_name}", ctx)
            unknown.hint = f"--set {key}=VALUE sets the key of the job"
        if "arguments" in takes:
            unknown.hint = f"{unknown.hint}; options of a script stand behind `--`"
        return unknown
    if isinstance(error, BadOptionUsage) and ctx is not None:
        found = next(each for each in ctx.command.params if error.option_name in each.opts)
        text = "expected one argument" if "requires" in error.message else "takes no value"
        return mistake(f"argument {_name(found)}: {text}", ctx)
    if isinstance(error, BadParameter) and error.param is not None:
        value, is_choice, known = error.message.removesuffix(".").partition(" is not one of ")
        text = f"invalid choice: {value} (choose from {known})" if is_choice else error.message
        return mistake(f"argument {_name(error.param)}: {text}", ctx)
    # All that is left: words, but none that could name a command.
    return mistake("a command is missing", ctx)


def _job_key(option: str) -> str | None:
    """Find the key of the job file that an option names, if only in the singular."""
    from msgspec import structs

    from jobs.contracts.spec import JobFile

    word = option.lstrip("-").replace("-", "_")
    for field in structs.fields(JobFile):
        if field.name in (word, f"{word}s"):
            return f"{field.name}.KEY" if field.default_factory is dict else field.name
    return None


@contextmanager
def _known(ctx: Context) -> Generator[None]:
    """Tell an error its command, which that of an option without its value does not know."""
    try:
        yield
    except UsageError as error:
        error.ctx = error.ctx or ctx
        raise


def _name(param: Parameter) -> str:
    if param.param_type_name == "option":
        return "/".join(param.opts)
    return (param.metavar or param.opts[0]).removesuffix("...")


def _is_typed(ctx: Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _hint(ctx: Context | None) -> str:
    return f"see `{ctx.command_path if ctx else 'launch'} --help`"
