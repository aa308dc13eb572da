"""Makes documents of Batch AI from its published schemas; references are resolved offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

SCHEMAS = Path(__file__).with_name("batchai_schemas")
# Texts as people write them: paths, variables, quotes, commands; and any text at all.
_TEXTS = st.one_of(
    st.sampled_from(
        [
            "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/train.py",
            "$AZ_BATCHAI_MOUNT_ROOT/data",
            "${AZ_BATCHAI_INPUT_DATA}/x",
            "--lr 0.1 -v 'a b' \"$HOME\" | tee log",
            "it's",
            "mpirun -np 4 --hostfile hosts python x.py",
            "P7D",
            "1.00:00:00",
            "8G",
            "STANDARD_NC6",
            "https://account.file.core.windows.net/share",
            "${rank} ${inputs.x} $${run.id}",
            "DATA",
            "",
            "[parameters('x')]",
        ]
    ),
    st.text(max_size=20),
)
_NUMBERS = st.one_of(st.integers(-2, 20), st.integers(-(2**70), 2**70))
_EXPRESSION = st.just("[variables('y')]")


def schema_of(name: str) -> dict[str, Any]:
    """The schema of a kind and version of document, such as `2018-05-01-job`."""
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))


@cache
def documents(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Documents of a kind and version."""
    schema = schema_of(name)
    own, newest = schema["definitions"], schema_of("2018-05-01-job")["definitions"]
    others = newest | schema_of("2018-05-01-cluster")["definitions"]
    known = others | schema_of("2018-05-01-nfs")["definitions"] | own
    if "experimentName" in json.dumps(own | schema):
        known |= own
    strategy = _values(schema["properties"]["properties"], known)
    return strategy.map(
        lambda body: {"$schema": f"https://BatchAI/schemas/{name}.json", "properties": body}
    )


def _values(schema: dict[str, Any], known: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "oneOf" in schema:
        return st.one_of(*(_values(each, known) for each in schema["oneOf"]))
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _EXPRESSION if name == "expression" else _values(known[name], known)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type", "object")
    if kind == "array":
        return st.lists(_values(schema["items"], known), max_size=2)
    if kind != "object":
        return {"string": _TEXTS, "integer": _NUMBERS, "boolean": st.booleans()}[kind]
    properties = {
        key: _values(each, known)
        for key, each in schema.get("properties", {}).items()
        if isinstance(each, dict) and ({"type", "$ref", "oneOf"} & each.keys())
    }
    required = {
        key: value for key, value in properties.items() if key in schema.get("required", [])
    }
    optional = {key: value for key, value in properties.items() if key not in required}
    return st.fixed_dictionaries(required, optional=optional)


def leaf_keys(value: Any, key: str = "") -> Iterator[str]:
    """The keys of all scalars that are not null, as the import names them."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaf_keys(each, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from leaf_keys(each, f"{key}[{number}]")
    elif value is not None:
        yield key
