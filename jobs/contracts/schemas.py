"""The JSON Schemas of what people write and hand on, generated from the structs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from jobs.contracts.spec import Cluster, Environment, JobFile, JobInput, JobLimits, JobRetry

DIALECT = "https://json-schema.org/draft/2020-12/schema"

# What an editor shows beside a key. Keyed by struct and field; a test holds it complete.
DESCRIPTIONS: Mapping[type[Struct], Mapping[str, str]] = {
    JobFile: {
        "name": "What the run is called in `launch ls`.",
        "description": "A sentence on the job, for `launch jobs` and for readers.",
        "image": "A folder of images/, or any image reference.",
        "launcher": "How ranks find each other. `none` starts them without a rendezvous.",
        "module": "A Python module to run as `python -m`. One of module, script, command.",
        "script": "A Python file, relative to this file. One of module, script, command.",
        "command": "A whole command line; the word `python` in front is the image's own.",
        "code": "The folder that travels, relative to this file; for a script: this file's.",
        "args": "Options behind the program: `epochs: 3` is `--epochs 3`, `amp: true` is `--amp`.",
        "cluster": "A cluster of the stack; else the first that is large enough.",
        "nodes": "How many machines, or `max` for all that the cluster has.",
        "processes_per_node": "Ranks on each, or `gpu`: one a GPU, else what the cluster says.",
        "parameter_servers": "Parameter servers of the launcher `tensorflow`.",
        "chief": "Rank 0 is TensorFlow's chief, which coordinates workers that only serve.",
        "inputs": "Datasets by a name of yours; NAME is in TRAINYARD_INPUT_NAME.",
        "outputs": "Folders that come back; NAME is in TRAINYARD_OUTPUT_NAME.",
        "setup": "Commands that run once a node, before the ranks.",
        "env": "Environment variables of every rank.",
        "secrets": "Variables that get the value of a named secret, never written anywhere.",
        "limits": "When a run is ended from outside.",
        "retry": "When a run is started again.",
        "shm_size": "Size of /dev/shm in a container, such as `8g`.",
        "priority": "The place in the queue.",
        "experiment": "A heading that runs are grouped under.",
        "tags": "Words of your own, kept with the run.",
    },
    JobInput: {
        "dataset": "A dataset of the stack, `name` (the newest) or `name@version`.",
        "mode": "How it comes to the node.",
    },
    JobLimits: {
        "wall_clock": "The most time a run may take: `90s`, `30m`, `12h`, `2d`.",
        "cost": "The most it may cost, in the currency of the stack.",
        "hang": "How long nothing may move before a run counts as hung.",
    },
    JobRetry: {
        "max": "How often at most.",
        "on": "After what.",
    },
    Cluster: {
        "compute": "The physical name.",
        "processes_per_node": "Ranks at most on a node without GPUs; with GPUs it is one each.",
        "price_per_node_hour": "null where it is not known.",
        "family": "What Azure counts the size's quota by; null on the local stack.",
        "price_as_of": "The day of a list price; null where the price is the stack's own.",
    },
}


def job_schema() -> dict[str, Any]:
    """Give the schema of a job file (docs/schemas/job-1.json)."""
    schema = _schema(JobFile, "job-1.json", "Trainyard job file")
    job = schema["$defs"]["JobFile"]
    job["properties"]["$schema"] = {"type": "string"}
    job["oneOf"] = [{"required": [key]} for key in ("module", "script", "command")]
    return schema


def environment_schema() -> dict[str, Any]:
    """Give the schema of the stack output `environment` (docs/schemas/environment-1.json)."""
    return _schema(Environment, "environment-1.json", "Trainyard environment")


SCHEMAS = {"job": job_schema, "environment": environment_schema}


def schema_text(name: str) -> str:
    """Give one of SCHEMAS as it is published: indented JSON, ends with a newline."""
    encoded = msgspec.json.encode(SCHEMAS[name]())
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _schema(kind: type[Struct], file: str, title: str) -> dict[str, Any]:
    schema = msgspec.json.schema(kind)
    for struct, texts in DESCRIPTIONS.items():
        definition = schema["$defs"].get(struct.__name__)
        for name, text in texts.items() if definition else ():
            definition["properties"][name]["description"] = text
    return {"$schema": DIALECT, "$id": f"trainyard:{file}", "title": title, **schema}
