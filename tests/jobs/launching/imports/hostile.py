"""Makes documents with a planted secret: each shape, in each place of each format, by a seed."""

from __future__ import annotations

import copy
import json
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests import seeds
from tests.documents.import_tasks import TASKS

JOB: dict[str, Any] = {
    "name": "train",
    "tags": {"team": "x"},
    "properties": {
        "nodeCount": 1,
        "cluster": {"id": "/clusters/nc6"},
        "experimentName": "tries",
        "customToolkitSettings": {"commandLine": "python /opt/train.py --lr 0.1"},
        "jobPreparation": {"commandLine": "pip install x"},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs",
        "environmentVariables": [{"name": "PLAIN", "value": "x"}],
        "secrets": [{"name": "HIDDEN", "value": "y"}],
        "inputDirectories": [{"id": "DATA", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/in"}],
        "outputDirectories": [
            {"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", "pathSuffix": "m"}
        ],
        "mountVolumes": {
            "azureFileShares": [
                {
                    "azureFileUrl": "https://a.file.core.windows.net/logs",
                    "relativeMountPath": "logs",
                    "credentials": {"accountKey": "k"},
                }
            ],
            "azureBlobFileSystems": [
                {
                    "accountName": "a",
                    "containerName": "c",
                    "relativeMountPath": "c",
                    "mountOptions": "-o ro",
                }
            ],
            "fileServers": [
                {"fileServer": {"id": "/nfs"}, "sourceDirectory": "d", "relativeMountPath": "n"}
            ],
            "unmanagedFileSystems": [{"mountCommand": "mount -t x", "relativeMountPath": "u"}],
        },
        "containerSettings": {
            "imageSourceRegistry": {
                "serverUrl": "r.example.com",
                "image": "team/train:1",
                "credentials": {"username": "u", "password": "p"},
            }
        },
        "unknown": {"deep": ["x"]},
    },
}
LINES = """NAME=nc6
export MORE="{secret}"
# a comment
az batchai cluster create -n $NAME -s Standard_NC6 --min 0 --max 2 -g g -w w -u u -i UbuntuLTS \\
  --setup-task 'pip install x' --setup-task-output /x --subnet s --custom-image i --nfs n \\
  --storage-account-name a --afs-name b --afs-mount-path c --bfs-name d --bfs-mount-path e
az batchai job create -n train -c nc6 -e tries -f job.json -l eastus --unknown x word
"""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Files of a project, where the secret stands in them, and its own part that nothing may show."""

    files: dict[str, str]
    place: str
    secret: str


def secret_of(made: random.Random) -> tuple[str, str]:
    """Make a secret of one of the shapes; gives its text, and the part that nothing may show."""

    def some(letters: str, number: int) -> str:
        return "".join(made.choice(letters) for _ in range(number))

    plain = string.ascii_letters + string.digits
    key = some(plain + "+/", 86) + "=="
    signature = some(plain, 30) + "%2F" + some(plain, 8) + "%3D"
    token = some(plain, 30)
    body = some(plain, 64)
    alone = made.choice(
        [
            f"ghp_{some(plain, 36)}",
            f"{some(plain, 3)}8Q~{some(plain, 34)}",
            f"AKIA{some(string.ascii_uppercase + string.digits, 16)}",
            f"hf_{some(plain, 34)}",
            f"sk-{some(plain, 40)}",
        ]
    )
    return made.choice(
        [
            (alone, alone),
            (key, key),
            (f"?sv=2018-03-28&sp=rwdl&sig={signature}", signature),
            (
                f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={key};EndpointSuffix=x",
                key,
            ),
            (f"eyJ{some(plain, 20)}.eyJ{some(plain, 40)}.{token}", token),
            (f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----", body),
            (f"Server=tcp:h;User=u;Password={token};", token),
        ]
    )


def named_secret_of(made: random.Random) -> str:
    """Make a password that only its name or its place tells."""
    letters = string.ascii_lowercase
    return "".join(made.choice(letters) for _ in range(8)) + str(made.randrange(100, 999))


def documents(seed: int, number: int) -> Iterator[Planted]:
    """Make projects of a job.json and a script, or of one task file, with one secret in one place."""
    made = seeds.dice(seed)
    for _ in range(number):
        if made.random() < 0.3:
            yield _named(made)
            continue
        text, part = secret_of(made)
        if made.random() < 0.3:
            yield _in_task(made, text, part)
        elif made.random() < 0.5:
            yield _in_script(made, text, part)
        else:
            yield _in_job(made, text, part)


def _in_job(made: random.Random, text: str, part: str) -> Planted:
    path = made.choice(list(_places(JOB)))
    shown = made.choice([text, f"--x '{text}' --y 1; true", f"https://u:{text}@h/r", f"{text}\n"])
    document = planted(JOB, path, shown)
    if made.random() < 0.1:
        document["properties"][text] = "a key"
    comment = f"// {text.replace(chr(10), ' ')}\n" if made.random() < 0.3 else ""
    return Planted(files={"job.json": comment + json.dumps(document)}, place=str(path), secret=part)


def _in_task(made: random.Random, text: str, part: str) -> Planted:
    name = made.choice(list(TASKS))
    path = made.choice(list(_places(TASKS[name])))
    shown = made.choice([text, f"--x '{text}' --y 1; true", f"https://u:{text}@h/r"])
    document = planted(TASKS[name], path, shown)
    if made.random() < 0.2:
        document[text] = {"unknown": text}
    comment = f"# {text.partition(chr(10))[0]}\n"
    return Planted(files={name: comment + yaml.safe_dump(document)}, place=str(path), secret=part)


def _in_script(made: random.Random, text: str, part: str) -> Planted:
    lines = LINES.replace("{secret}", text)
    words = ["u ", "UbuntuLTS ", "'pip install x'", " /x ", " s ", " i ", " word"]
    word = made.choice(
        [*words, "# a comment", "tries", "eastus", " a ", " b ", " c ", " d ", " e\n"]
    )
    put = f" {'# ' if word.startswith('#') else ''}'{text}' "
    lines = lines.replace(
        word, put if not word.startswith("#") else f"# {text.partition(chr(10))[0]}", 1
    )
    if made.random() < 0.3:
        lines = lines.replace("-u u", '-u u --password "$MORE"')
    files = {"submit.sh": lines, "job.json": json.dumps(JOB)}
    return Planted(files=files, place=word, secret=part)


def _named(made: random.Random) -> Planted:
    """Plant a password that no shape tells, by a name or a place that does."""
    secret = named_secret_of(made)
    properties = ("properties",)
    volumes = (*properties, "mountVolumes")
    text, path = made.choice(
        [
            (f"--password {secret}", (*properties, "customToolkitSettings", "commandLine")),
            (
                f"python x.py --api-key={secret} 1",
                (*properties, "customToolkitSettings", "commandLine"),
            ),
            (f"DB_PASSWORD={secret} python x.py", (*properties, "jobPreparation", "commandLine")),
            (f"export API_TOKEN='{secret}'; x", (*properties, "jobPreparation", "commandLine")),
            (f"mysql -u root -p{secret} -e x", (*properties, "jobPreparation", "commandLine")),
            (
                f"-o username=u,password={secret},vers=3.0",
                (*volumes, "azureBlobFileSystems", 0, "mountOptions"),
            ),
            (
                f"mount -t cifs //h/s /m -o user=u,pass={secret}",
                (*volumes, "unmanagedFileSystems", 0, "mountCommand"),
            ),
            (
                f"https://u:{secret}@a.file.core.windows.net/logs",
                (*volumes, "azureFileShares", 0, "azureFileUrl"),
            ),
            (secret, (*volumes, "azureFileShares", 0, "credentials", "accountKey")),
            (secret, (*properties, "secrets", 0, "value")),
            (
                secret,
                (
                    *properties,
                    "containerSettings",
                    "imageSourceRegistry",
                    "credentials",
                    "password",
                ),
            ),
        ]
    )
    document = planted(JOB, path, text)
    if made.random() < 0.5:
        return Planted(files={"job.json": json.dumps(document)}, place=str(path), secret=secret)
    options = made.choice(
        [
            "-p {}",
            "--password={}",
            "--passw {}",
            "--storage-account-key {}",
            "-p $P",
            "--password ${P}",
        ]
    )
    lines = f"P={secret}\nexport AZURE_BATCHAI_STORAGE_KEY={secret}\n" + LINES.replace(
        "-u u", "-u u " + options.replace("{}", secret)
    ).replace("{secret}", secret)
    return Planted(
        files={"submit.sh": lines, "job.json": json.dumps(JOB)}, place=options, secret=secret
    )


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _places(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _places(each, (*path, number))
    elif isinstance(value, str):
        yield path


def planted(document: dict[str, Any], path: tuple[Any, ...], text: str) -> dict[str, Any]:
    """Set a text at a place of a copy."""
    made = copy.deepcopy(document)
    inner: Any = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = text
    return made
