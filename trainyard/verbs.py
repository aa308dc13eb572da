"""Makes functions of verbs: an option becomes a keyword, and the words of a call those of `launch`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from typer._click.core import Command, Context, Parameter
from typer.main import get_command

from jobs.calling import call
from jobs.cli import build_app
from jobs.contracts.errors import LaunchError

# Verbs that start a run; what is about following it is a method of Run.
STARTS = ("run", "rerun")
_OF_STARTING = ("detach", "no_fetch", "dry_run")


@dataclass(frozen=True, kw_only=True)
class Word:
    """An argument or option of a verb, by its name in Python; `option` is as `launch` has it."""

    name: str
    option: str | None
    is_flag: bool = False
    is_many: bool = False
    is_required: bool = False

    @property
    def parameter(self) -> inspect.Parameter:
        """What the function's signature says."""
        kind = inspect.Parameter
        return kind(
            self.name,
            kind.POSITIONAL_OR_KEYWORD if self.option is None else kind.KEYWORD_ONLY,
            default=kind.empty if self.is_required else False if self.is_flag else None,
            annotation=self.annotation,
        )

    @property
    def annotation(self) -> str:
        """What may be given: text, a number or a path, several of them, or a mapping."""
        if self.is_flag:
            return "bool"
        text = "Text | Iterable[Text]" if self.is_many else "Text"
        if self.name == "set":
            text = f"Mapping[str, object] | {text}"
        return text if self.is_required else f"{text} | None"


def find_command(name: str) -> Command:
    """Find a verb, or a group of them, by its name in `launch`."""
    app: Any = get_command(build_app())
    found = app.get_command(Context(app), name)
    assert found is not None, name
    return found


def words_of(command: Command, verb: str) -> list[Word]:
    """List what the verb's function takes: arguments, required options, then the others."""
    words = [_word(each) for each in command.params if each.name not in ("json", "help")]
    taken = [each for each in words if verb not in STARTS or each.name not in _OF_STARTING]
    return sorted(taken, key=lambda each: (each.option is not None, not each.is_required))


def _word(param: Parameter) -> Word:
    is_option = param.param_type_name == "option"
    name = param.opts[-1].lstrip("-").replace("-", "_") if is_option else str(param.name)
    return Word(
        name=f"{name}_" if iskeyword(name) else name,
        option=param.opts[-1] if is_option else None,
        is_flag=type(param.type).__name__ == "BoolParamType",
        is_many=bool(getattr(param, "multiple", False)) or param.nargs == -1,
        is_required=param.required,
    )


def make(name: str) -> Any:
    """Make the function of a verb, or the functions of a group as its attributes."""
    command = find_command(name)
    group: Mapping[str, Command] | None = getattr(command, "commands", None)
    if group is None:
        return _function([name], command)
    made = {
        f"{each}_" if iskeyword(each) else each: _function([name, each], found)
        for each, found in group.items()
    }
    return SimpleNamespace(**made)


def _function(path: list[str], command: Command) -> Callable[..., Any]:
    words = words_of(command, path[0])
    has_json = any(each.name == "json" for each in command.params)
    signature = inspect.Signature([each.parameter for each in words])

    def verb(*arguments: Any, **named: Any) -> Any:
        try:
            given = signature.bind(*arguments, **named).arguments
        except TypeError as error:
            message = f"trainyard.{'.'.join(path)}(): {error}"
            raise TypeError(message) from None
        if given.get("stack") is not None and given.get("env") is not None:
            message = "stack and env exclude each other"
            raise LaunchError(message, hint="env=FILE is for where no stack can be read")
        typed = [*path, *(["--json"] if has_json else []), *_typed(words, given)]
        if path[0] not in STARTS:
            return call(typed)
        from trainyard.one_run import Run

        status = call([path[0], "--detach", *typed[1:]])
        return Run(status["id"], stack=given.get("stack"), env=given.get("env"))

    verb.__name__ = verb.__qualname__ = path[-1]
    verb.__module__ = "trainyard"
    verb.__doc__ = inspect.cleandoc(command.help or "")
    vars(verb)["__signature__"] = signature
    return verb


def _typed(words: Iterable[Word], given: Mapping[str, Any]) -> list[str]:
    """Give the words that would have been typed."""
    options: list[str] = []
    places: list[str] = []
    for word in words:
        value = given.get(word.name)
        if value is None or value is False:
            continue
        if word.is_flag:
            options.extend([str(word.option)] if value else [])
            continue
        texts = _texts(value) if word.is_many else [_text(value)]
        if word.option is None:
            places.extend(texts)
        else:
            options.extend(f"{word.option}={text}" for text in texts)
    return [*options, *(["--", *places] if places else [])]


def _texts(value: object) -> list[str]:
    if isinstance(value, Mapping):
        named = cast("Mapping[str, object]", value)
        return [f"{key}={_text(each)}" for key, each in named.items()]
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [_text(value)]
    return [_text(each) for each in cast("Iterable[object]", value)]


def _text(value: object) -> str:
    """Write a value as it is typed: text and paths as they are, others as JSON has them."""
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _plain(value: Any) -> object:
    """Give what a number or an array of numpy holds as JSON has it."""
    if isinstance(value, Path):
        return str(value)
    if not hasattr(value, "tolist"):
        message = f"{value!r} is neither text, a number nor a list or mapping of such"
        raise TypeError(message)
    return value.tolist()
