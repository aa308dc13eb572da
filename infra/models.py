"""Reads a stack's configuration into structs; every wrong key is noted with its path.

A field's type tells what its key takes: bounds and patterns by `Meta`, further checks of one value
by `checked`. Rules over several keys stand in the struct's `rules`. msgspec itself would end at the
first mistake, so its description of the types is followed field by field.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta
from msgspec import inspect as types

PROJECT = "trainyard"
NAME = r"[a-z0-9][a-z0-9-]{0,31}"

Problem = tuple[str, str]
"""Key below the struct that a rule judges, and what is wrong with it."""
Rule = Callable[..., Iterable[Problem]]
"""Judges good values of the keys (and of `given`) that its parameters name."""

_Model = TypeVar("_Model", bound=msgspec.Struct)


class SettingsError(Exception):
    """Problems of the settings, one line each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        count = "1 wrong setting" if len(problems) == 1 else f"{len(problems)} wrong settings"
        super().__init__("\n  ".join([f"{count}, nothing was changed", *problems]))


@dataclass(frozen=True)
class Wrong:
    """Tells why a value is refused."""

    reason: str


Check = Callable[[str, Mapping[str, Any]], Any]
"""Turns a text into its value, or into Wrong, given what else is known."""


def text(pattern: str, wanted: str, check: Check | None = None) -> Meta:
    """Describe a text by its pattern (all of it matches) and in words, for messages."""
    return Meta(pattern=rf"\A(?:{pattern})\Z", description=wanted, extra={"check": check})


def checked(check: Check) -> Meta:
    """Describe a text that `check` judges."""
    return Meta(extra={"check": check})


def shown(value: object) -> str:
    """Write a value as the file has it."""
    return json.dumps(value)


def decode_config(config: Mapping[str, str]) -> dict[str, Any]:
    """Select our part of a configuration that Pulumi hands over (`trainyard:key` -> value).

    Objects come as JSON; keys of other namespaces are not ours to judge.
    """
    ours = ((key.partition(":"), value) for key, value in config.items())
    return {key: _decode(value) for (space, _, key), value in ours if space == PROJECT}


def read_model(
    model: type[_Model], values: Mapping[str, Any], given: Mapping[str, Any], problems: list[str]
) -> _Model | None:
    """Build the struct of a configuration; with any problem, noted in `problems`, None.

    `given` are facts from elsewhere: fields of these names take them, rules and checks may ask.
    """
    found = _Reader(given, problems).read(values, _described(model), f"{PROJECT}:")
    return None if found is UNSET else cast("_Model", found)


def _decode(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


@functools.cache
def _described(model: type[msgspec.Struct]) -> types.Type:
    return types.type_info(model)


@dataclass(frozen=True)
class _Reader:
    """Follows a type and a value together; what is wrong becomes a problem and UNSET."""

    given: Mapping[str, Any]
    problems: list[str]

    def read(self, value: Any, node: types.Type, path: str) -> Any:
        meta, node = _unwrap(node, value)
        before = len(self.problems)
        if isinstance(node, types.VarTupleType):
            found = self._list(value, node, path)
        elif not isinstance(node, types.StructType | types.DictType):
            found = _scalar(value, node, meta, self.given)
        elif not isinstance(value, dict):
            found = _no(value, "mapping")
        elif isinstance(node, types.StructType):
            found = self._struct(cast("dict[str, Any]", value), node, path)
        else:
            found = self._mapping(cast("dict[str, Any]", value), node, path)
        if isinstance(found, Wrong):
            self._refuse(path, found.reason)
        return found if len(self.problems) == before else UNSET

    def _refuse(self, path: str, reason: str) -> None:
        self.problems.append(f"{path.rstrip(':')}: {reason}")

    def _struct(self, values: dict[str, Any], node: types.StructType, path: str) -> Any:
        good, before = dict(self.given), len(self.problems)
        fields = {field.name: field for field in node.fields if field.name not in self.given}
        for name, field in fields.items():
            if values.get(name) is not None:
                good[name] = self.read(values[name], field.type, _below(path, name))
            elif field.required:
                self._refuse(_below(path, name), "is missing")
            else:
                good[name] = _default(field)
        good = {name: value for name, value in good.items() if value is not UNSET}
        for rule in getattr(node.cls, "rules", ()):
            wanted = inspect.signature(rule).parameters.keys()
            assert wanted <= fields.keys() | self.given.keys(), rule.__name__
            # Where a value is wrong by itself that is noted already.
            if wanted <= good.keys():
                for key, reason in rule(**{name: good[name] for name in wanted}):
                    self._refuse(_below(path, key), reason)
        for key in (key for key in values if key not in fields):
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(sorted(fields))}"
            self._refuse(_below(path, key), f"unknown key, {hint}")
        if len(self.problems) > before:
            return UNSET
        return node.cls(**{field.name: good[field.name] for field in node.fields})

    def _mapping(self, values: dict[str, Any], node: types.DictType, path: str) -> Any:
        if not values and node.min_length:
            return Wrong("is empty")
        meta, key_type = _unwrap(node.key_type, "")
        for key in values:
            if isinstance(_scalar(key, key_type, meta, self.given), Wrong):
                self._refuse(_below(path, key), f"is not a valid {meta.get('description', 'key')}")
        return {key: self.read(values[key], node.value_type, _below(path, key)) for key in values}

    def _list(self, value: Any, node: types.VarTupleType, path: str) -> Any:
        if not isinstance(value, list):
            return _no(value, "list")
        values = cast("list[Any]", value)
        if node.max_length is not None and len(values) > node.max_length:
            return Wrong(f"{len(values)} are more than Azure's {node.max_length}")
        found: list[Any] = []
        seen: set[str] = set()
        for index, each in enumerate(values):
            found.append(self.read(each, node.item_type, f"{path}[{index}]"))
            if str(each).lower() in seen:
                self._refuse(f"{path}[{index}]", f"{shown(each)} is there twice")
            seen.add(str(each).lower())
        return tuple(found)


def _no(value: object, kind: str) -> Wrong:
    return Wrong(f"{shown(value)} is not a {kind}")


def _unwrap(node: types.Type, value: Any) -> tuple[Mapping[str, Any], types.Type]:
    """Take the words around a type off it, and of a choice of types the one that fits."""
    if isinstance(node, types.UnionType):
        kinds = [kind for kind in node.types if not isinstance(kind, types.NoneType)]
        is_dict = isinstance(value, dict)
        node = next((k for k in kinds if isinstance(k, types.DictType) == is_dict), kinds[0])
    if not isinstance(node, types.Metadata):
        return {}, node
    words = cast("Any", node)
    return {**(words.extra_json_schema or {}), **(words.extra or {})}, node.type


def _scalar(value: Any, node: types.Type, meta: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    if isinstance(node, types.LiteralType):
        choices = ", ".join(str(choice) for choice in node.values)
        return value if value in node.values else Wrong(f"{shown(value)} is not one of: {choices}")
    if isinstance(node, types.BoolType):
        return value if isinstance(value, bool) else Wrong(f"{shown(value)} is not true or false")
    if isinstance(node, types.IntType):
        if not isinstance(value, int) or isinstance(value, bool):
            return _no(value, "whole number")
        is_within = cast("int", node.ge) <= value <= cast("int", node.le)
        return value if is_within else Wrong(f"{value} is not between {node.ge} and {node.le}")
    pattern = getattr(node, "pattern", None)
    if not isinstance(value, str) or (pattern and not re.search(pattern, value)):
        wanted = f"a valid {meta['description']}" if pattern else "text"
        return Wrong(f"{shown(value)} is not {wanted}")
    if not value:
        return Wrong("is empty")
    check = meta.get("check")
    return check(value, given) if check else value


def _default(field: types.Field) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _below(path: str, key: str) -> str:
    return f"{path}{'' if path.endswith(':') else '.'}{key}"
