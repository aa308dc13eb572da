"""Reads Microsoft's newest models of Azure ML by their text: who sets a property, and when; words.

They come with azure-ai-ml (azure_ai_ml.txt) and are of our stacks' API version. They carry no tables
like the older ones of azure_models.py, but say of each property whether it is taken at creation, at an
update, or is only read: `rest_field(name="computeLocation", visibility=["read", "create"])`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
SERVICE = "azure/ai/ml/_restclient/arm_ml_service"


@dataclass(frozen=True, kw_only=True)
class Field:
    """One property: when the service takes or gives it (read, create, update ...), and its type."""

    when: frozenset[str]
    type: str

    @property
    def is_fixed_at_creation(self) -> bool:
        return "create" in self.when and "update" not in self.when


class Models:
    """The models by name. Nothing is imported: their modules would bring a client along."""

    def __init__(self, models: str, enums: str, configuration: str) -> None:
        self._classes = _classes(models)
        self._enums = _classes(enums)
        self._configuration = configuration

    @property
    def api_version(self) -> str:
        """The API version that the client asks for."""
        (version,) = re.findall(r'kwargs\.pop\("api_version", "([\w-]+)"\)', self._configuration)
        return version

    def values(self, enum: str) -> set[str]:
        """The values of an enumeration."""
        lines = (each for each in self._enums[enum].body if isinstance(each, ast.Assign))
        return {ast.literal_eval(each.value) for each in lines}

    def fields(self, name: str) -> dict[str, Field]:
        """A model's properties and those that it inherits, by their names on the wire."""
        model = self._classes[name]
        found: dict[str, Field] = {}
        for base in map(ast.unparse, model.bases):
            found |= self.fields(base) if base in self._classes else {}
        return found | dict(_fields(model))

    def narrowed(self, name: str, value: Mapping[str, Any]) -> str:
        """The model that a value is of: a subtype where one of its words says so."""
        for each, model in self._classes.items():
            bases = {ast.unparse(base) for base in model.bases}
            words = {ast.literal_eval(word.value) for word in model.keywords if word.arg}
            if name in bases and words & {word for word in value.values() if isinstance(word, str)}:
                return self.narrowed(each, value)
        return name

    def fixed_at_creation(self, name: str, value: Mapping[str, Any], path: str = "") -> set[str]:
        """What of a declared value is taken at its creation alone, by its path in the SDK's shape.

        Raises KeyError for what no model has.
        """
        fields = self.fields(self.narrowed(name, value))
        found: set[str] = set()
        for key, each in value.items():
            field = fields[key] if key in fields else self._flattened(fields)[key]
            if field.is_fixed_at_creation:
                found.add(f"{path}{key}")
            for model, inner, place in self._inside(field, each, f"{path}{key}"):
                found |= self.fixed_at_creation(model, inner, f"{place}.")
        return found

    def _flattened(self, fields: Mapping[str, Field]) -> dict[str, Field]:
        """The SDK lifts a resource's `properties` where their names are free."""
        return self.fields(_model_of(fields["properties"])) if "properties" in fields else {}

    def _inside(
        self, field: Field, value: Any, path: str
    ) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        model = _model_of(field)
        if model not in self._classes:
            return
        if isinstance(value, dict) and "dict[str," not in field.type:
            yield model, value, path
        for each in value.values() if isinstance(value, dict) else value:
            if "dict[str," in field.type and isinstance(each, dict):
                yield model, each, f"{path}.*"
            elif isinstance(value, list) and isinstance(each, dict):
                yield model, each, f"{path}[]"


def _model_of(field: Field) -> str:
    found = re.search(r"_models\.(\w+)", field.type)
    return found[1] if found else ""


def _classes(text: str) -> dict[str, ast.ClassDef]:
    return {each.name: each for each in ast.parse(text).body if isinstance(each, ast.ClassDef)}


def _fields(model: ast.ClassDef) -> Iterator[tuple[str, Field]]:
    for line in model.body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.value, ast.Call):
            continue
        if not ast.unparse(line.value.func).startswith("rest_"):
            continue
        given = {each.arg: ast.unparse(each.value) for each in line.value.keywords}
        name = ast.literal_eval(given["name"]) if "name" in given else ast.unparse(line.target)
        when = frozenset(ast.literal_eval(given["visibility"]))
        yield name, Field(when=when, type=ast.unparse(line.annotation))


@functools.cache
def read_models() -> Models:
    """Read the models, from an environment that is laid where it is not there yet.

    Raises EnvironmentFailure where the package index is out of reach.
    """
    from tests.environments.laying import lay_environment

    lock = PROJECT / "tests" / "environments" / "azure_ai_ml.txt"
    environment = lay_environment(lock, PROJECT, what="azure_ai_ml")
    (service,) = environment.glob(f"lib/python*/site-packages/{SERVICE}")
    texts = ("models/_models.py", "models/_enums.py", "_configuration.py")
    return Models(*((service / each).read_text(encoding="utf-8") for each in texts))
