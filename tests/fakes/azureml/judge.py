"""Judges bodies of requests and answers by the models that azure-ai-ml bundles: what they lack is wrong.

The models are those of the last release whose tables can be read (tests/environments). A body is
judged as it is on the wire: exact names; of a request, nothing that the service alone may set.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.fakes.azure_native.judge import judge_value

RESTCLIENT = "azure.ai.ml._restclient"

# Kind of request -> class. Paths are judged by the stand-in's routes.
KINDS = {
    "code": "CodeVersion",
    "data": "DataVersionBase",
    "environment": "EnvironmentVersion",
    "model": "ModelVersion",
    "job": "JobBase",
    "compute": "ComputeResource",
    "compute-update": "ClusterUpdateParameters",
    "pending-upload": "PendingUploadRequestDto",
}
# What is only ever answered: class, of the last version alone.
ANSWERS = {
    "workspace": "Workspace",
    "datastore": "Datastore",
    "nodes": "AmlComputeNodesInformation",
    "usages": "ListUsagesResult",
    "sizes": "VirtualMachineSizeListResult",
}
# The versions whose models are bundled; another is judged by the last one before it.
BUNDLED = (
    "2023-04-01-preview",
    "2023-06-01-preview",
    "2023-08-01-preview",
    "2024-01-01-preview",
    "2024-04-01-preview",
    "2024-07-01-preview",
    "2025-01-01-preview",
)
# Azure ML's own SDK sends these as numbers, where the models say text.
NUMBERS = {"properties.properties.hash_version"}

Table = dict[str, Any]


def judge(kind: str, version: str, body: Any) -> list[str]:
    """What the models of an API version (2023-04-01 or later) hold against a body."""
    last = max(each for each in BUNDLED if each[:10] <= version[:10])
    table = read_tables()[f"{kind}@{last}"]
    return list(_Model(table["classes"]).judge(table["root"], body, ""))


def judge_answer(kind: str, body: Any) -> list[str]:
    """What the last version's models hold against an answer."""
    table = read_tables()[f"{kind}@{BUNDLED[-1]}"]
    return list(_Model(table["classes"], is_answer=True).judge(table["root"], body, ""))


@functools.cache
def read_tables() -> dict[str, Any]:
    """The tables by kind, made where they are not there yet."""
    from tests.environments.tables import make_tables

    classes = [(*each, version) for version in BUNDLED for each in KINDS.items()]
    classes += [(*each, BUNDLED[-1]) for each in ANSWERS.items()]
    wanted = (
        f"{kind}@{version} {RESTCLIENT}.v{version.replace('-', '_')} {root} -\n"
        for kind, root, version in classes
    )
    return json.loads(make_tables("".join(wanted)).read_text())


class _Model:
    """The classes that one kind of body reaches."""

    def __init__(self, classes: Table, *, is_answer: bool = False) -> None:
        self._classes = classes
        self._is_answer = is_answer

    def judge(self, name: str, value: Any, path: str) -> Iterator[str]:
        """Violations of an object."""
        if not isinstance(value, dict):
            yield f"{path}: {value!r} is no {name}"
            return
        cls, wrong = self._narrow(name, value, path)
        yield from wrong
        yield from self._object(cls, name, value, path)

    def _object(self, cls: Table, name: str, value: Table, path: str) -> Iterator[str]:
        """Properties by their keys; `properties.a.b` lies two objects further in."""
        rules = {
            tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", rule["key"])): rule
            for rule in cls["attributes"].values()
        }
        folders = {key[:depth] for key in rules for depth in range(1, len(key))}
        given = dict(_flat(value, (), folders))
        for key, rule in rules.items():
            place = f"{path}{'.'.join(key)}"
            if key not in given:
                if rule.get("required") and not rule.get("readonly"):
                    yield f"{place}: required, and missing"
                continue
            each = given.pop(key)
            if rule.get("readonly") and not self._is_answer:
                yield f"{place}: read-only"
            elif each is not None or rule.get("required"):
                yield from self._value(rule["type"], rule, each, place)
        for key in given:
            yield f"{path}{'.'.join(key)}: {name} has no such property"

    def _narrow(self, name: str, value: Table, path: str) -> tuple[Table, list[str]]:
        """The class that a discriminator picks."""
        cls = self._classes[name]
        if not cls["subtypes_of"]:
            return cls, []
        key = cls["attributes"][cls["discriminator"]]["key"]
        given = value.get(key)
        if given not in cls["subtypes_of"]:
            known = ", ".join(cls["subtypes_of"])
            return cls, [f"{path}{key}: {given!r} is none of {known}"]
        return self._narrow(cls["subtypes_of"][given], value, path)

    def _value(self, kind: str, rule: Table, value: Any, path: str) -> Iterator[str]:
        if kind == "object" or (path in NUMBERS and isinstance(value, int)):
            return
        if kind.startswith(("[", "{")):
            wanted = list if kind.startswith("[") else dict
            if not isinstance(value, wanted):
                yield f"{path}: {value!r} is no {wanted.__name__}"
                return
            for key, each in enumerate(value) if wanted is list else value.items():
                if each is not None:
                    yield from self._value(kind[1:-1], {}, each, f"{path}.{key}")
        elif kind in self._classes:
            yield from self.judge(kind, value, f"{path}.")
        else:
            yield from judge_value(kind, rule, value, path)


def _flat(
    value: Table, parents: tuple[str, ...], folders: set[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, each in value.items():
        place = (*parents, key)
        if place in folders and isinstance(each, dict):
            yield from _flat(each, place, folders)
        else:
            yield place, each
