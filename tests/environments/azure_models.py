"""Prints, as JSON, what Microsoft's own models say a request may hold.

Run by the Python of the environment that azure_models.txt locks, with lines of
`NAME PACKAGE CLASS PATH` on stdin (PATH may be `-`, for a body alone). Of a client library only
the models and the text of the operations are read, never its clients. The result:

{"NAME": {"root": CLASS, "parameters": [[name, rules] ...] as the path takes them,
          "classes": {CLASS: {"attributes": {name: {"key", "type", "enum"?, rules...}},
                              "discriminator": attribute or null,
                                      "subtypes_of": {value: CLASS}}}}}
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

RULES = ("required", "readonly", "constant", "pattern", "max_length", "min_length")
RULES += ("maximum", "minimum", "max_items", "min_items", "unique")


class Model:
    """What the older models derive from; msrest's own would bring an HTTP client along."""


def main() -> None:
    serialization = types.ModuleType("msrest.serialization")
    serialization.Model = Model
    sys.modules |= {"msrest": types.ModuleType("msrest"), "msrest.serialization": serialization}
    sys.modules["msrest"].serialization = serialization
    tables: dict[str, Any] = {}
    for line in sys.stdin:
        name, package, root, path = line.split()
        models = importlib.import_module(f"{bare_parents(package)}.models._models_py3")
        tables[name] = {
            "root": root,
            "parameters": [] if path == "-" else list(path_parameters(package, path)),
            "classes": reachable(models, root),
        }
    json.dump(tables, sys.stdout)


def bare_parents(package: str) -> str:
    """Let the package's modules load without its `__init__`, which loads clients."""
    parts = package.split(".")
    place = next(each for each in map(Path, sys.path) if each.joinpath(*parts).is_dir())
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        if parts[:depth] != ["azure"] and name not in sys.modules:
            module = types.ModuleType(name)
            module.__path__ = [str(place.joinpath(*parts[:depth]))]
            sys.modules[name] = module
    return package


def reachable(models: Any, root: str) -> dict[str, Any]:
    """The tables of a class and of all that it can hold."""
    found: dict[str, Any] = {}
    wanted = [root]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found[name] = describe(models, getattr(models, name))
        wanted += found[name]["subtypes_of"].values()
        for attribute in found[name]["attributes"].values():
            inner = attribute["type"].strip("[]{}")
            if isinstance(getattr(models, inner, None), type):
                wanted.append(inner)
    return found


def describe(models: Any, cls: Any) -> dict[str, Any]:
    enums = enums_of(models, cls)
    attributes = {}
    for name, entry in cls._attribute_map.items():
        rules = {
            rule: each
            for rule, each in getattr(cls, "_validation", {}).get(name, {}).items()
            if rule in RULES
        }
        attributes[name] = {"key": entry["key"], "type": entry["type"], **rules}
        if name in enums:
            attributes[name]["enum"] = enums[name]
    subtypes = vars(cls).get("_subtype_map", {})
    return {
        "attributes": attributes,
        "discriminator": next(iter(subtypes), None),
        "subtypes_of": next(iter(subtypes.values()), {}),
    }


def enums_of(models: Any, cls: Any) -> dict[str, list[str]]:
    """Attribute -> the values of its enumeration.

    By the annotations of `__init__` and, of what the service alone sets, by the class's docstring.
    """
    module = sys.modules[models.__name__.rpartition(".")[0]]
    found = {}
    told = re.findall(r":vartype (\w+):((?:.|\n)*?)(?=\n\s*:|\Z)", cls.__doc__ or "")
    for name, annotation in [*told, *cls.__init__.__annotations__.items()]:
        for word in re.findall(r"\w+", str(annotation)):
            enum = getattr(module, word, None) or getattr(models, word, None)
            if isinstance(enum, type) and issubclass(enum, Enum):
                found[name] = [str(each.value) for each in enum]
    return found


def path_parameters(package: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rules of what a path takes, from the operation that puts to it."""
    folder = Path(next(iter(sys.modules[package].__path__))) / "operations"
    wanted = re.sub(r"{\w+}", "{}", path).lower()
    for file in sorted(folder.glob("_*.py")):
        for function in ast.parse(file.read_text()).body:
            if isinstance(function, ast.FunctionDef) and is_put_to(function, wanted):
                yield from url_rules(function)
                return


def is_put_to(function: ast.FunctionDef, wanted: str) -> bool:
    text = ast.unparse(function)
    urls = [
        each.value
        for each in ast.walk(function)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and "/" in each.value
    ]
    paths = {re.sub(r"{\w+}", "{}", each).lower() for each in urls}
    return wanted in paths and ("method='PUT'" in text or 'method="PUT"' in text)


def url_rules(function: ast.FunctionDef) -> Iterator[tuple[str, dict[str, Any]]]:
    for call in ast.walk(function):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("SERIALIZER.url"):
            continue
        name = ast.literal_eval(call.args[0])
        rules = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
        yield name, {rule: value for rule, value in rules.items() if rule in RULES}


if __name__ == "__main__":
    main()
