"""Judges a declaration and its answer by Microsoft's own models, and writes the request to be sent.

The models are those of the last releases that carry validation tables (tests/environments). The
SDK's `allowBlobPublicAccess` is the model's `allow_blob_public_access`, whose key in the request is
`properties.allowBlobPublicAccess`: names are compared without case and underscores, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.fakes.azure_native.kinds import KINDS, Kind
from tests.fakes.azure_native.tables import ANSWER, read_tables
from tests.fakes.azure_native.wire import UNKNOWN

Table = dict[str, Any]

# Not in the models, and right all the same: (token, path) -> where it comes from.
NEWER = {
    (
        "azure-native:machinelearningservices:Workspace",
        "managedNetwork.enableNetworkMonitor",
    ): "API 2025-12-01; the SDK 3.29.0 sends it with every managed network (ManagedNetworkSettings)",
}

# The SDK takes a list of ids where the request has a mapping from each to an empty object.
ID_LISTS = {"userAssignedIdentities"}

TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "bool": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "iso-8601": str,
    "rfc-1123": str,
    "date": str,
    "duration": str,
    "bytearray": str,
}


def judge(token: str, inputs: dict[str, Any]) -> list[str]:
    """What Microsoft's models hold against a declaration; UNKNOWN values are taken for right."""
    table = read_tables()[token]
    kind = KINDS[token]
    found = [*_parameters(kind, table, inputs)]
    body = {key: each for key, each in inputs.items() if key not in kind.beside_body}
    found += _Model(token, table).judge(table["root"], body, "")
    return found


def judge_answer(token: str, answer: dict[str, Any]) -> list[str]:
    """What Microsoft's models hold against what a resource is said to be."""
    table = _answer_table(token)
    body = {key: each for key, each in answer.items() if key != "azureApiVersion"}
    return list(_Model(token, table, is_answer=True).judge(table["root"], body, ""))


def is_read_only(token: str, answer: dict[str, Any], path: str) -> bool:
    """Whether the service alone sets what lies at a path of an answer."""
    table = _answer_table(token)
    return _Model(token, table).is_read_only(table["root"], answer, path.split("."))


def _answer_table(token: str) -> Table:
    tables = read_tables()
    return tables.get(f"{token}{ANSWER}", tables[token])


def rest_body(
    token: str, inputs: dict[str, Any]
) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    """(ARM type, API version, what the id is made of by name, body) of a declaration's PUT."""
    table = read_tables()[token]
    kind = KINDS[token]
    names = {name: str(inputs[name]) for name in kind.parameters if name in inputs}
    body = {key: each for key, each in inputs.items() if key not in kind.beside_body}
    return kind.arm_type, kind.api_version, names, _Model(token, table).write(table["root"], body)


def _parameters(kind: Kind, table: Table, inputs: dict[str, Any]) -> Iterator[str]:
    rules = {_plain(name): rule for name, rule in table["parameters"]}
    for name in kind.parameters:
        value = inputs.get(name)
        if value is not None and value is not UNKNOWN:
            yield from _rules(rules.get(_plain(name), {}), value, name)


class _Model:
    """The classes of one resource type."""

    def __init__(self, token: str, table: Table, *, is_answer: bool = False) -> None:
        self._token = token
        self._classes = table["classes"]
        self._is_answer = is_answer

    def judge(self, name: str, value: Any, path: str) -> Iterator[str]:
        """Violations of an object."""
        if not isinstance(value, dict):
            yield f"{path.rstrip('.')}: {value!r} is no {name}"
            return
        cls, wrong = self._narrow(name, value, path)
        yield from wrong
        given = {_plain(key): key for key in value}
        for attribute, rule in cls["attributes"].items():
            key = given.pop(_plain(attribute), None)
            place = f"{path}{key or attribute}"
            if key is None:
                if rule.get("required") and not rule.get("readonly") and "constant" not in rule:
                    yield f"{path}{_camel(attribute)}: required, and missing"
            elif rule.get("readonly") and not self._is_answer:
                yield f"{place}: read-only"
            elif not wrong or attribute != cls["discriminator"]:
                yield from self._value(rule["type"], rule, value[key], place)
        for key in given.values():
            if (self._token, re.sub(r"\[\d+\]", "[]", f"{path}{key}")) not in NEWER:
                yield f"{path}{key}: {name} has no such property"

    def is_read_only(self, name: str, value: dict[str, Any], path: list[str]) -> bool:
        """Whether what lies at a path, or something around it, is the service's alone to set."""
        cls, _ = self._narrow(name, value, "")
        rules = {_plain(attribute): rule for attribute, rule in cls["attributes"].items()}
        first, *rest = path
        rule = rules[_plain(first)]
        if not rest or rule.get("readonly"):
            return bool(rule.get("readonly"))
        return self.is_read_only(rule["type"], value[first], rest)

    def write(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """The object as the request has it."""
        cls, _ = self._narrow(name, value, "")
        rules = {_plain(attribute): rule for attribute, rule in cls["attributes"].items()}
        written: dict[str, Any] = {}
        for key, each in value.items():
            rule = rules.get(_plain(key), {"key": key, "type": "object"})
            *parents, last = re.split(r"(?<!\\)\.", rule["key"])
            inner = written
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[last.replace("\\.", ".")] = self._written(rule["type"], each, key)
        return written

    def _written(self, kind: str, value: Any, key: str) -> Any:
        if kind.startswith("{") and key in ID_LISTS and isinstance(value, list):
            return {each: {} for each in value}
        if kind.startswith("[") and isinstance(value, list):
            return [self._written(kind[1:-1], each, key) for each in value]
        if kind.startswith("{") and isinstance(value, dict):
            return {name: self._written(kind[1:-1], each, key) for name, each in value.items()}
        if kind in self._classes and isinstance(value, dict):
            return self.write(kind, value)
        return _number(value)

    def _narrow(self, name: str, value: dict[str, Any], path: str) -> tuple[Table, list[str]]:
        """The class that a discriminator picks."""
        cls = self._classes[name]
        if not cls["subtypes_of"]:
            return cls, []
        given = {_plain(key): each for key, each in value.items()}.get(_plain(cls["discriminator"]))
        if given is None or given is UNKNOWN:
            return cls, []
        if given not in cls["subtypes_of"]:
            known = ", ".join(cls["subtypes_of"])
            place = f"{path}{_camel(cls['discriminator'])}"
            return cls, [f"{place}: {given!r} is none of {known}"]
        return self._narrow(cls["subtypes_of"][given], value, path)

    def _value(self, kind: str, rule: Table, value: Any, path: str) -> Iterator[str]:
        if value is UNKNOWN or kind == "object":
            return
        if kind.startswith("{") and path.rpartition(".")[2] in ID_LISTS and isinstance(value, list):
            value = {each: {} for each in value if each is not UNKNOWN}
        if kind.startswith("["):
            yield from self._list(kind, rule, value, path)
        elif kind.startswith("{"):
            if not isinstance(value, dict):
                yield f"{path}: {value!r} is no mapping"
                return
            for key, each in value.items():
                yield from self._value(kind[1:-1], {}, each, f"{path}.{key}")
        elif kind in self._classes:
            yield from self.judge(kind, value, f"{path}.")
        else:
            yield from judge_value(kind, rule, value, path)

    def _list(self, kind: str, rule: Table, value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{path}: {value!r} is no list"
            return
        yield from _rules(rule, value, path)
        for index, each in enumerate(value):
            inner = {"enum": rule["enum"]} if "enum" in rule else {}
            yield from self._value(kind[1:-1], inner, each, f"{path}[{index}]")


def judge_value(kind: str, rule: Table, value: Any, path: str) -> Iterator[str]:
    """Violations of a value that is no object, by its type and its rules."""
    expected = TYPES.get(kind, object)
    value = _number(value)
    if not isinstance(value, expected) or (isinstance(value, bool) and kind != "bool"):
        yield f"{path}: {value!r} is no {kind}"
        return
    yield from _rules(rule, value, path)


def _rules(rule: Table, value: Any, path: str) -> Iterator[str]:
    """Enumeration, pattern, lengths and range of one value."""
    if "enum" in rule and isinstance(value, str) and value not in rule["enum"]:
        yield f"{path}: {value!r} is none of {', '.join(rule['enum'])}"
    if "constant" in rule and "enum" not in rule and rule["constant"] not in {True, value}:
        yield f"{path}: {value!r} is not {rule['constant']!r}"
    if "pattern" in rule and not re.search(rule["pattern"], str(value)):
        yield f"{path}: {value!r} does not match {rule['pattern']}"
    if isinstance(value, str | list):
        least = rule.get("min_length", rule.get("min_items", 0))
        most = rule.get("max_length", rule.get("max_items", len(value)))
        if not least <= len(value) <= most:
            yield f"{path}: its length {len(value)} is not within {least} and {most}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = rule.get("minimum", value), rule.get("maximum", value)
        if not least <= value <= most:
            yield f"{path}: {value} is not within {least} and {most}"


def _number(value: Any) -> Any:
    """A whole number as an integer: Pulumi's protocol has but one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _camel(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(part.capitalize() for part in rest)
