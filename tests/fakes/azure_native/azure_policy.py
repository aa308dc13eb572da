"""Judges a write by the Azure policies that are assigned above it, as their own definitions say.

The conditions are Microsoft's (azure_policies.json names the commit). Functions and operators are
those that these definitions use; another one is an error of the stand-in, no refusal.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fakes.azure_native.errors import Refused
from tests.fakes.azure_native.kinds import Kind
from tests.fakes.azure_native.store import Record

ASSIGNMENT = "azure-native:authorization:PolicyAssignment"
_PARAMETER = re.compile(r"\[parameters\('(\w+)'\)\]")
_EMPTY = re.compile(r"\[empty\(field\('([\w./]+)'\)\)\]")
# Where the SDK's inputs call a part otherwise than Azure Policy's aliases do.
_RENAMED = {
    "Microsoft.Storage/storageAccounts": {
        "networkAcls": "networkRuleSet",
        "supportsHttpsTrafficOnly": "enableHttpsTrafficOnly",
    },
}


@functools.cache
def definitions() -> dict[str, Any]:
    """The built-in definitions by their names."""
    path = Path(__file__).with_name("azure_policies.json")
    return json.loads(path.read_text())["definitions"]


def check_assignment(inputs: Record) -> None:
    """Raise Refused for a definition, a parameter or a value that Azure does not have."""
    name = inputs["policyDefinitionId"].rpartition("/")[2]
    if name not in definitions():
        raise Refused(
            404,
            "PolicyDefinitionNotFound",
            f"The policy definition '{inputs['policyDefinitionId']}' could not be found.",
        )
    known = definitions()[name]["parameters"]
    for parameter, given in inputs.get("parameters", {}).items():
        if parameter not in known:
            raise Refused(
                400, "UndefinedPolicyParameter", f"The parameter '{parameter}' is not defined."
            )
        allowed = known[parameter].get("allowedValues")
        if allowed is not None and given["value"] not in allowed:
            raise Refused(
                400,
                "PolicyParameterValueNotAllowed",
                f"The value '{given['value']}' is not allowed for policy parameter '{parameter}'.",
            )


def check(
    state: dict[str, dict[str, Record]], kind: Kind, resource_id: str, inputs: Record
) -> None:
    """Raise Refused where an assignment denies the write."""
    for record in state["resources"].values():
        given = record["inputs"]
        if record["token"] != ASSIGNMENT or given.get("enforcementMode") == "DoNotEnforce":
            continue
        if not f"{resource_id}/".lower().startswith(f"{given['scope']}/".lower()):
            continue
        definition = definitions()[given["policyDefinitionId"].rpartition("/")[2]]
        parameters = {
            name: each.get("defaultValue") for name, each in definition["parameters"].items()
        } | {name: each["value"] for name, each in given.get("parameters", {}).items()}
        if parameters["effect"].lower() != "deny":
            continue
        if _Judged(kind, resource_id, inputs, parameters).holds(definition["if"]):
            raise Refused(
                403,
                "RequestDisallowedByPolicy",
                f"Resource '{resource_id.rpartition('/')[2]}' was disallowed by policy. Policy "
                f'identifiers: \'[{{"policyAssignment":{{"name":"{definition["displayName"]}",'
                f'"id":"{record["id"]}"}}}}]\'.',
            )


class _Judged:
    """One write, and the parameters of one assignment."""

    def __init__(
        self, kind: Kind, resource_id: str, inputs: Record, parameters: dict[str, Any]
    ) -> None:
        self._kind, self._id, self._inputs, self._parameters = kind, resource_id, inputs, parameters

    def holds(self, condition: dict[str, Any]) -> bool:
        if "allOf" in condition:
            return all(self.holds(each) for each in condition["allOf"])
        if "anyOf" in condition:
            return any(self.holds(each) for each in condition["anyOf"])
        if "not" in condition:
            return not self.holds(condition["not"])
        (operator,) = condition.keys() - {"field", "value"}
        wanted = self._evaluated(condition[operator])
        if "field" in condition:
            return _OPERATORS[operator](self._field(condition["field"]), wanted)
        return _OPERATORS[operator](self._evaluated(condition["value"]), wanted)

    def _evaluated(self, value: Any) -> Any:
        if value == "[requestContext().apiVersion]":
            return self._kind.api_version
        if isinstance(value, str) and (found := _PARAMETER.fullmatch(value)):
            return self._parameters[found[1]]
        if isinstance(value, str) and (found := _EMPTY.fullmatch(value)):
            return not self._field(found[1])
        assert not isinstance(value, str) or not value.startswith("["), f"no function {value}"
        return value

    def _field(self, alias: str) -> Any:
        simple = {"type": self._kind.arm_type, "id": self._id}
        simple["name"] = self._id.rpartition("/")[2]
        if alias in simple:
            return simple[alias]
        if not alias.startswith(f"{self._kind.arm_type}/"):
            return None
        first, *rest = alias.removeprefix(f"{self._kind.arm_type}/").split(".")
        first = _RENAMED.get(self._kind.arm_type, {}).get(first, first)
        found: Any = self._inputs
        # The SDK lays some bodies flat: an alias names what is in `properties` without saying so.
        while first not in found and isinstance(found.get("properties"), dict):
            found = found["properties"]
        for part in (first, *rest):
            found = found.get(part) if isinstance(found, dict) else None
        return found


def _text(value: Any) -> str:
    return str(value).lower()


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": lambda found, wanted: found is not None and _text(found) == _text(wanted),
    "notEquals": lambda found, wanted: found is None or _text(found) != _text(wanted),
    "in": lambda found, wanted: _text(found) in map(_text, wanted),
    "exists": lambda found, wanted: (found is not None) == (_text(wanted) == "true"),
    "contains": lambda found, wanted: _text(wanted) in _text(found),
    "like": lambda found, wanted: bool(
        re.fullmatch(re.escape(_text(wanted)).replace(r"\*", ".*"), _text(found))
    ),
    "less": lambda found, wanted: _text(found) < _text(wanted),
    "greaterOrEquals": lambda found, wanted: _text(found) >= _text(wanted),
}
