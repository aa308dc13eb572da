"""Reads the options of our training programs from their sources, and checks a job's `args` by them.

Nothing of a program is imported: its `Options` class is parsed, with the classes and the `Literal`s
that it takes from other modules of `trainer` (trainer/common/options.py says how it is written).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.jobfile.arguments import Argument
from jobs.jobfile.yaml_tree import brief

_NUMBERS: dict[str, tuple[Callable[[str], float], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
}
# Decided when the job is placed or started: `${inputs.words}`.
_PLACEHOLDER = "${"


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a program; `kind` is the name of its type, `default` None where it has none.

    A value has to be one of `choices`, `above` the one bound and not below `least`, where given.
    """

    name: str
    kind: str
    text: str
    default: object = None
    choices: tuple[str, ...] = ()
    above: float | None = None
    least: float | None = None


def read_options(module: str, folder: Path) -> dict[str, Option]:
    """Give the options of a program by their names; none where it has no `Options` class.

    `folder` is where Python finds the module. Raises LaunchError where the program is not there.
    """
    sources = _Sources(folder)
    if sources.made(module) is None and sources.made(f"{module}.__main__") is None:
        message = f"there is no program `{module}` in {folder}"
        near = get_close_matches(module, sources.modules(module), n=1)
        raise LaunchError(message, hint=f"did you mean `{near[0]}`?" if near else f"ls {folder}")
    return {option.name: option for option in sources.options(module, "Options").values()}


def check_arguments(
    args: Mapping[str, Argument], options: Mapping[str, Option], place: Callable[[str], str]
) -> None:
    """Check each of a job's `args` by the options; `place` gives where a key is written.

    Raises LaunchError for the first that the program would refuse.
    """
    named = dict(options)
    for option in options.values():
        if option.kind == "bool":
            named[f"no-{option.name}"] = replace(option, name=f"no-{option.name}", default=False)
    for key, value in args.items():
        if key not in named:
            raise _unknown(key, named, place(key))
        _check_value(named[key], value, place(key))


def _unknown(key: str, named: Mapping[str, Option], where: str) -> LaunchError:
    near = " or ".join(f"`{name}`" for name in _nearest(key.replace("_", "-").lower(), named))
    hint = f"did you mean {near}?" if near else f"its options: {', '.join(sorted(named))}"
    return LaunchError(f"{where}: the program has no option `{key}`", hint=hint)


def _nearest(key: str, names: Iterable[str]) -> list[str]:
    """Find the name that differs by a letter or two, else the three nearest that share a word with it."""
    words = set(key.split("-"))
    alike = [name for name in names if words.intersection(name.split("-"))]
    return (
        get_close_matches(key, names, n=1, cutoff=0.8)
        or get_close_matches(key, alike, n=3, cutoff=0)
        or get_close_matches(key, names, n=1)
    )


def _check_value(option: Option, value: Argument, where: str) -> None:
    if value is None or value == [] or _is_open(value):
        return
    if option.kind == "bool" and value is False and option.default is True:
        message = f"{where}: `{option.name}: false` is left out, and the program's default is true"
        raise LaunchError(message, hint=f"no-{option.name}: true")
    if value is False or (value is True and option.kind == "bool"):
        return
    wanted = _wanted(option, value)
    if wanted:
        message = f"{where}: the option `{option.name}` takes {wanted}, not `{_shown(value)}`"
        raise LaunchError(message, hint=_hint(option))


def _is_open(value: Argument) -> bool:
    return isinstance(value, str) and _PLACEHOLDER in value


def _shown(value: Argument) -> str:
    return str(value).lower() if isinstance(value, bool) else brief(str(value))


def _wanted(option: Option, value: Argument) -> str:
    """Word the values that the option takes; empty where this is one of them."""
    if option.kind == "bool":
        return "true or false"
    if isinstance(value, list):
        if len(value) > 1:
            return "one value"
        value = value[0]
    if option.choices:
        return "" if str(value) in option.choices else f"one of {', '.join(option.choices)}"
    if value is True:
        return "a value"
    if option.kind not in _NUMBERS:
        return ""
    convert, wanted = _NUMBERS[option.kind]
    try:
        number = convert(str(value))
    except ValueError:
        return wanted
    if option.above is not None and not number > option.above:
        return f"{wanted} above {option.above:g}"
    if option.least is not None and not number >= option.least:
        return f"{option.least:g} or more"
    return ""


def _hint(option: Option) -> str:
    shown = "" if option.default is None else f" (default: {option.default})"
    return f"`{option.name}`: {option.text}{shown}"


class _Sources:
    """Parsed modules below a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Mapping[str, ast.stmt] | None] = {}

    def made(self, module: str) -> Mapping[str, ast.stmt] | None:
        """Give what makes each name of a module; None where it is not there or is no Python."""
        if not all(part.isidentifier() for part in module.split(".")):
            return None
        if module not in self._made:
            path = self._folder.joinpath(*module.split(".")).with_suffix(".py")
            try:
                self._made[module] = _made_in(path.read_bytes())
            except (OSError, SyntaxError, ValueError):
                self._made[module] = None
        return self._made[module]

    def modules(self, like: str) -> list[str]:
        """List the modules of the same package, whichever of them is meant."""
        top = like.split(".", maxsplit=1)[0]
        paths = (self._folder / top).glob("**/*.py")
        return [".".join(path.relative_to(self._folder).with_suffix("").parts) for path in paths]

    def options(self, module: str, name: str) -> dict[str, Option]:
        """Give the options of a class and of those it extends, by the names of their fields."""
        module, made = self._find(module, name)
        if not isinstance(made, ast.ClassDef):
            return {}
        options: dict[str, Option] = {}
        for base in reversed(made.bases):  # of two that have a field, the first one's counts
            if isinstance(base, ast.Name):
                options |= self.options(module, base.id)
        for field in made.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                option, was = self._option(module, field), options.get(field.target.id)
                if option is not None:
                    # `__post_init__` of a class that it extends bounds the field all the same.
                    bounds = {"above": was.above, "least": was.least} if was else {}
                    options[field.target.id] = replace(option, **bounds)
        for bounded, above, least in _bounds(made):
            if bounded in options:
                options[bounded] = replace(options[bounded], above=above, least=least)
        return options

    def _find(self, module: str, name: str) -> tuple[str, ast.stmt | None]:
        """Find the class or assignment of a name, and the module that makes it; None without one."""
        made = (self.made(module) or {}).get(name)
        if isinstance(made, ast.ImportFrom) and made.module:
            there = next(each.name for each in made.names if (each.asname or each.name) == name)
            return self._find(made.module, there)
        return module, made

    def _option(self, module: str, field: ast.AnnAssign) -> Option | None:
        match field:
            case ast.AnnAssign(
                target=ast.Name(id=name),
                annotation=ast.Subscript(
                    value=ast.Name(id="Annotated"),
                    slice=ast.Tuple(elts=[hint, ast.Constant(value=str(text)), *_]),
                ),
            ):
                kind, choices = self._kind(module, hint)
                default = field.value.value if isinstance(field.value, ast.Constant) else None
                name = name.replace("_", "-")
                return Option(name=name, kind=kind, text=text, default=default, choices=choices)
            case _:
                return None

    def _kind(self, module: str, hint: ast.expr) -> tuple[str, tuple[str, ...]]:
        """Give the type's name, and the words of a Literal."""
        match hint:
            case ast.BinOp(left=left, op=ast.BitOr()):
                return self._kind(module, left)
            case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=words)):
                choices = [each.value for each in words if isinstance(each, ast.Constant)]
                return "choice", tuple(map(str, choices))
            case ast.Name(id=name):
                module, made = self._find(module, name)
                return (
                    self._kind(module, made.value) if isinstance(made, ast.Assign) else (name, ())
                )
            case _:
                return "", ()


@lru_cache(maxsize=64)
def _made_in(source: bytes) -> Mapping[str, ast.stmt]:
    """Parse a module; gives the first class, assignment or import of each name."""
    made: dict[str, ast.stmt] = {}
    for statement in ast.parse(source).body:
        match statement:
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name), *_]):
                made.setdefault(name, statement)
            case ast.ImportFrom(module=str(), level=0):
                for each in statement.names:
                    made.setdefault(each.asname or each.name, statement)
            case _:
                continue
    return made


def _bounds(made: ast.ClassDef) -> Iterator[tuple[str, float | None, float | None]]:
    """Yield the fields that `__post_init__` always bounds, as above a number or at least one.

    What it asks under an `if` depends on other options.
    """
    for method in made.body:
        if not isinstance(method, ast.FunctionDef) or method.name != "__post_init__":
            continue
        for statement in method.body:
            match statement:
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr=asked), args=given)):
                    values = [each.value for each in given if isinstance(each, ast.Constant)]
                case _:
                    continue
            names = [value for value in values if isinstance(value, str)]
            if asked == "require_positive":
                yield from ((name, 0, None) for name in names)
            elif asked == "require_at_least" and isinstance(values[0], int | float):
                yield from ((name, None, values[0]) for name in names)
