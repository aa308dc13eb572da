"""Generate the JSON Schemas of job files and environments from the structs."""

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
        "name": "Name of the run in `launch ls`.",
        "description": "One line on the job, which `launch jobs` prints.",
        "image": "Name of a folder in images/, or the reference of a container image.",
        "launcher": "How ranks find each other. `none` starts them without a rendezvous.",
        "module": "A Python module to run as `python -m`. One of module, script, command.",
        "script": "A Python file, relative to this file. One of module, script, command.",
        "command": "A whole command line; a leading `python` is the image's own.",
        "code": "Folder of code that is copied into the run, relative to this file; default for a script: this file's folder.",
        "args": "Options of the program: `epochs: 3` becomes `--epochs 3`, `amp: true` becomes `--amp`; or a list of words.",
        "cluster": "Cluster to run on (default: the first that is large enough).",
        "nodes": "Number of nodes, or `max` for all nodes of the cluster.",
        "processes_per_node": "Ranks per node, or `gpu` for one per GPU (default: the cluster's setting).",
        "parameter_servers": "Number of parameter servers (launcher `tensorflow` only).",
        "chief": "Make rank 0 TensorFlow's chief, which coordinates the workers.",
        "inputs": "Datasets, folders or files that the job reads, each under a name: `${inputs.NAME}`, TRAINYARD_INPUT_NAME.",
        "outputs": "Folders that are kept with the run, each under a name: `${outputs.NAME}`, TRAINYARD_OUTPUT_NAME.",
        "requirements": "A pip requirements file, relative to this file, installed over the image.",
        "setup": "Commands that run once per node, before the ranks.",
        "env": "Environment variables of every rank.",
        "secrets": "Environment variables that get the value of a named secret, which is never written anywhere.",
        "limits": "Limits that end a run.",
        "retry": "Reasons to start a run again.",
        "shm_size": "Size of /dev/shm in a container, such as `8g`.",
        "priority": "Priority in the queue.",
        "identity": "Who reads and writes data on Azure: `managed` is the cluster's identity, `user` the person that sends the job.",
        "experiment": "Heading under which runs are grouped.",
        "tags": "Your own key-value pairs, kept with the run.",
    },
    JobInput: {
        "dataset": "A dataset of the stack, `name` (the newest) or `name@version`.",
        "path": "A folder or file, relative to this file, that is pushed as a dataset.",
        "file": "The one file of the dataset that is the input.",
        "mode": "How the input is brought to the node.",
    },
    JobLimits: {
        "wall_clock": "Maximum time of a run: `90s`, `30m`, `12h`, `2d`.",
        "cost": "Maximum cost of a run, in the currency of the stack.",
        "hang": "Time without any sign of progress after which a run counts as hung.",
    },
    JobRetry: {
        "max": "Maximum number of restarts.",
        "on": "After what.",
    },
    Cluster: {
        "compute": "Name of the compute target in Azure.",
        "processes_per_node": "Maximum number of ranks per node without GPUs; a node with GPUs takes one per GPU.",
        "price_per_node_hour": "null if it is unknown.",
        "family": "VM family by which Azure counts quota; null on the local stack.",
        "price_as_of": "Date of a list price; null if the stack sets the price.",
        "secrets": "Names of the secrets that its identity may read; null if the stack does not say.",
    },
}


def job_schema() -> dict[str, Any]:
    """Give the schema of a job file (docs/schemas/job-1.json)."""
    schema = _schema(JobFile, "job-1.json", "Trainyard job file")
    job = schema["$defs"]["JobFile"]
    job["properties"]["$schema"] = {"type": "string"}
    long = job["properties"]["inputs"]["additionalProperties"]
    text = {"type": "string", "description": "A path that begins with `./`, `/` or `~`; a dataset."}
    job["properties"]["inputs"]["additionalProperties"] = {"anyOf": [long, text]}
    schema["$defs"]["JobInput"]["oneOf"] = [{"required": [key]} for key in ("dataset", "path")]
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
