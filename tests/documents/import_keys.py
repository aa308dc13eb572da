"""Writes what `launch import` makes of each key into docs/import.md.

`python -m tests.documents.import_keys` imports documents that have every key, and writes what is said of each
between the marks; with `--check` it writes nothing and fails where the page differs.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.launching.imports.batchai_variables import VARIABLES
from jobs.launching.imports.draft import Choices
from jobs.launching.imports.importing import import_documents
from jobs.launching.imports.leaves import Told
from tests.documents.import_tasks import SCRIPT, TASKS
from tools.marked import put_between

PAGE = Path(__file__).resolve().parents[2] / "docs" / "import.md"
BEGIN = "<!-- keys: written by tests/documents/import_keys.py -->"
HEADINGS = {
    "aml.yaml": "Command jobs of az ml",
    "train.runconfig": "Run configurations of Azure ML's first version",
    "sky.yaml": "Tasks of SkyPilot",
    "dstack.yml": "Tasks of dstack",
    "appdef.yaml": "Applications of TorchX",
}
END = "<!-- end of keys -->"
WRITE = ".venv/bin/python -m tests.documents.import_keys"

_REFERENCE = {"sourceVault": {"id": "v"}, "secretUrl": "https://v.vault.azure.net/secrets/name/0"}
_LOGIN = {"accountKey": "k", "accountKeySecretReference": _REFERENCE}
_MOUNTS = {
    "azureFileShares": [
        {
            "accountName": "account",
            "azureFileUrl": "https://account.file.core.windows.net/share",
            "relativeMountPath": "share",
            "fileMode": "0777",
            "directoryMode": "0777",
            "credentials": _LOGIN,
        }
    ],
    "azureBlobFileSystems": [
        {
            "accountName": "account",
            "containerName": "container",
            "relativeMountPath": "blobs",
            "mountOptions": "-o ro",
            "credentials": _LOGIN,
        }
    ],
    "fileServers": [
        {
            "fileServer": {"id": "/nfs"},
            "sourceDirectory": "data",
            "relativeMountPath": "nfs",
            "mountOptions": "rw",
        }
    ],
    "unmanagedFileSystems": [{"mountCommand": "mount -t x", "relativeMountPath": "own"}],
}
_PYTHON = {
    "pythonScriptFilePath": "/opt/train.py",
    "pythonInterpreterPath": "python3",
    "commandLineArgs": "--x 1",
}
_JOB = {
    "name": "train",
    "location": "eastus",
    "schedulingPriority": "high",
    "cluster": {"id": "/clusters/nc6"},
    "mountVolumes": _MOUNTS,
    "nodeCount": 2,
    "containerSettings": {
        "imageSourceRegistry": {
            "serverUrl": "r.example.com",
            "image": "r.example.com/team/train:1",
            "credentials": {
                "username": "u",
                "password": "p",
                "passwordSecretReference": _REFERENCE,
            },
        },
        "shmSize": "8G",
    },
    "jobPreparation": {"commandLine": "true"},
    "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/share",
    "inputDirectories": [{"id": "DATA", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/blobs/x"}],
    "outputDirectories": [
        {
            "id": "MODEL",
            "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/share",
            "pathSuffix": "m",
            "type": "model",
            "createNew": True,
        }
    ],
    "environmentVariables": [{"name": "EPOCHS", "value": "3"}],
    "secrets": [
        {"name": "TOKEN", "value": "t"},
        {"name": "OTHER", "valueSecretReference": _REFERENCE},
    ],
    "constraints": {"maxWallClockTime": "P7D"},
    "experimentName": "tries",
}
_TOOLKITS: dict[str, dict[str, Any]] = {
    "horovodSettings": {**_PYTHON, "processCount": 4},
    "pyTorchSettings": {**_PYTHON, "processCount": 4, "communicationBackend": "gloo"},
    "tensorFlowSettings": {
        "pythonScriptFilePath": "/opt/train.py",
        "pythonInterpreterPath": "python3",
        "masterCommandLineArgs": "--m",
        "workerCommandLineArgs": "--w",
        "parameterServerCommandLineArgs": "--p",
        "workerCount": 2,
        "parameterServerCount": 1,
    },
    "customMpiSettings": {"commandLine": "python /opt/train.py", "processCount": 4},
    "customToolkitSettings": {"commandLine": "mpirun -np 2 python /opt/train.py"},
    "cntkSettings": {**_PYTHON, "languageType": "Python", "configFilePath": "c", "processCount": 4},
    "caffeSettings": {**_PYTHON, "configFilePath": "c", "processCount": 4},
    "caffe2Settings": _PYTHON,
    "chainerSettings": {**_PYTHON, "processCount": 4},
}
_ACCOUNT = {"adminUserName": "a", "adminUserSshPublicKey": "s", "adminUserPassword": "p"}
_CLUSTER = {
    "name": "nc6",
    "location": "eastus",
    "vmSize": "STANDARD_NC6",
    "vmPriority": "lowpriority",
    "scaleSettings": {
        "autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 4, "initialNodeCount": 1}
    },
    "virtualMachineConfiguration": {
        "imageReference": {
            "publisher": "p",
            "offer": "o",
            "sku": "s",
            "version": "v",
            "virtualMachineImageId": "i",
        }
    },
    "nodeSetup": {
        "setupTask": {
            "commandLine": "true",
            "environmentVariables": [{"name": "A", "value": "1"}],
            "secrets": [{"name": "B", "value": "s", "valueSecretReference": _REFERENCE}],
            "stdOutErrPathPrefix": "/x",
        },
        "mountVolumes": _MOUNTS,
        "performanceCountersSettings": {
            "appInsightsReference": {
                "component": {"id": "c"},
                "instrumentationKey": "k",
                "instrumentationKeySecretReference": _REFERENCE,
            }
        },
    },
    "userAccountSettings": _ACCOUNT,
    "subnet": {"id": "s"},
}
_MANUAL = {"manual": {"targetNodeCount": 2, "nodeDeallocationOption": "requeue"}}
_SERVER = {
    "vmSize": "Standard_D2_v3",
    "sshConfiguration": {"publicIPsToAllow": ["*"], "userAccountSettings": _ACCOUNT},
    "dataDisks": {
        "diskSizeInGB": 10,
        "diskCount": 2,
        "storageAccountType": "Standard_LRS",
        "cachingType": "none",
    },
    "subnet": {"id": "s"},
}
_PROJECT = {
    "clusterName": "nc6",
    "persistCluster": "False",
    "resourceGroup": "g",
    "storageAccount": "s",
    "blobContainerName": "b",
    "experimentName": "e",
    "workspaceName": "w",
    "sourceScript": "train.py",
    "sourceScriptFileShareDirectory": "scripts",
    "monitorFileName": "stdout-0.txt",
    "logFileShareName": "logs",
    "maxNodes": 2,
}


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with what an import says; returns the exit code."""
    page = PAGE.read_text(encoding="utf-8")
    written = with_keys(page)
    if arguments == ["--check"]:
        if page != written:
            print(f"docs/{PAGE.name} is not what an import says; {WRITE}")
        return int(page != written)
    PAGE.write_text(written, encoding="utf-8")
    return 0


def with_keys(page: str) -> str:
    """Return the page with the tables between its marks."""
    return put_between(page, BEGIN, END, tables())


def tables() -> str:
    """Write a table for each kind of document, and that of the variables."""
    parts: list[str] = []
    for heading, rows in (
        ("job.json", job_rows()),
        ("cluster.json", cluster_rows()),
        ("nfs.json", rows_of({"nfs.json": {"properties": _SERVER}}, "nfs.json")),
        ("project.json", rows_of(_with_project(), "project.json")),
        ("Command lines of az batchai", command_rows()),
        *((HEADINGS[name], task_rows(name)) for name in TASKS),
    ):
        parts += [f"### {heading}", "", "| key | outcome | how |", "| --- | --- | --- |"]
        parts += [f"| `{key}` | {outcome} | {how} |" for key, outcome, how in rows]
        parts.append("")
    parts += ["### Variables", "", "| variable | value |", "| --- | --- |"]
    parts += [f"| `{name}` | {value} |" for name, value in VARIABLES.items()]
    return "\n".join(parts)


def job_rows() -> list[tuple[str, str, str]]:
    """Rows of a job: everything beside the toolkits, then each toolkit, and keys of older versions."""
    document = {"$schema": "https://BatchAI/job.json", "properties": _JOB}
    first = {**_JOB, "pyTorchSettings": _TOOLKITS["pyTorchSettings"]}
    rows = rows_of({"cluster.json": _cluster(), "job.json": {**document, "properties": first}})
    for name, settings in _TOOLKITS.items():
        job = {"nodeCount": 2, name: settings}
        rows += [
            row
            for row in rows_of({"job.json": {"properties": job}})
            if row[0].startswith(f"{name}.")
        ]
    older = {"priority": 5, "toolType": "pytorch", "pyTorchSettings": {**_PYTHON}}
    older["pyTorchSettings"] = {**_PYTHON, "numberOfProcesses": 2}
    older["nodeCount"] = 2
    rows += rows_of({"job.json": {"properties": older}})
    return list(dict.fromkeys(rows))


def cluster_rows() -> list[tuple[str, str, str]]:
    """Rows of a cluster, with both kinds of scaling."""
    manual = {**_CLUSTER, "scaleSettings": _MANUAL}
    rows = rows_of({"cluster.json": _cluster()}, "cluster.json")
    return list(
        dict.fromkeys(rows + rows_of({"cluster.json": {"properties": manual}}, "cluster.json"))
    )


def _cluster() -> dict[str, Any]:
    return {"$schema": "https://BatchAI/cluster.json", "properties": _CLUSTER}


def _with_project() -> dict[str, Any]:
    job = {"nodeCount": 1, "pyTorchSettings": _PYTHON}
    return {"cluster.json": _cluster(), "job.json": {"properties": job}, "project.json": _PROJECT}


def command_rows() -> list[tuple[str, str, str]]:
    """Rows of the options of command lines; what a file has that they name is in the other tables."""
    cluster = {"virtualMachineConfiguration": {"imageReference": {"offer": "o"}}}
    job = {"nodeCount": 1, "pyTorchSettings": _PYTHON}
    documents = {"submit.sh": SCRIPT, "cluster.json": cluster, "job.json": {"properties": job}}
    return [
        (key, outcome, re.sub(r"line [0-9]+ ", "its line ", how))
        for key, outcome, how in rows_of(documents, "submit.sh")
    ]


def task_rows(name: str) -> list[tuple[str, str, str]]:
    """Rows of a task file of another tool."""
    return rows_of({name: TASKS[name], "train.py": "", "src/train.py": ""}, name)


def rows_of(documents: dict[str, Any], file: str = "job.json") -> list[tuple[str, str, str]]:
    """Import the documents together; give the key, outcome and way of each leaf of one of them."""
    with tempfile.TemporaryDirectory() as folder:
        for name, document in documents.items():
            text = document if isinstance(document, str) else json.dumps(document)
            Path(folder, name).parent.mkdir(exist_ok=True)
            Path(folder, name).write_text(text, encoding="utf-8")
        told = import_documents([Path(folder)], Path(folder, "made"), Choices()).told
    return list(dict.fromkeys(_rows(told, file)))


def _rows(told: tuple[Told, ...], file: str) -> Iterator[tuple[str, str, str]]:
    for each in told:
        if Path(each.file).name == file:
            key = re.sub(r"\[\d+\]", "[]", each.key.removeprefix("properties."))
            yield key, each.outcome, (each.reason or each.became or "").replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
