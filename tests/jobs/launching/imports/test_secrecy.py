"""No secret of a document is written or printed, wherever it stands; the report names its place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from jobs.launching.imports.secrecy import Vault, find_in_text, is_secret, names_a_secret
from tests.secret_shapes import find_secrets

KEY = "Zm9vYmFyYmF6cXV4" * 5 + "Zm9vYm=="
SECRETS = {
    "account key": KEY,
    "SAS": "?sv=2018-03-28&ss=b&srt=sco&sp=rwdlac&sig=" + "aB3%2F" * 8 + "%3D",
    "connection string": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY};",
    "token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+IBAAKCAQEA7\n-----END RSA PRIVATE KEY-----",
    "hub token": "ghp_" + "a1B2" * 9,
    "client secret": "abc8Q~" + "x1Y2" * 9,
    "login in a URL": "https://bob:s3cr3t-Pa55@git.example.com/r.git",
}
# What of each is the secret itself.
PARTS = {
    "SAS": "aB3%2F" * 8,
    "connection string": KEY,
    "login in a URL": "s3cr3t-Pa55",
    "private key": "MIIEow+IBAAKCAQEA7",
}
DOCUMENT: dict[str, Any] = {
    "properties": {
        "nodeCount": 1,
        "pyTorchSettings": {"pythonScriptFilePath": "/opt/train.py", "commandLineArgs": "--a 1"},
        "jobPreparation": {"commandLine": "true"},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs",
        "environmentVariables": [{"name": "PLAIN", "value": "x"}],
        "secrets": [{"name": "HIDDEN", "value": "y"}],
        "inputDirectories": [{"id": "DATA", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/in"}],
        "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs"}],
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
                    "credentialsInfo": {"accountKey": "k"},
                }
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
        "experimentName": "tries",
        "unknown": {"deep": ["x"]},
    }
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a text in the document."""
    if isinstance(value, dict):
        return [found for key, each in value.items() for found in places(each, (*path, key))]
    if isinstance(value, list):
        return [
            found for number, each in enumerate(value) for found in places(each, (*path, number))
        ]
    return [path] if isinstance(value, str) else []


def planted(path: tuple[Any, ...], text: str) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = text
    return document


def everything(launching: Any, document: dict[str, Any], *words: str) -> str:
    """All that an import of the document writes and prints."""
    (launching.folder / "job.json").write_text(json.dumps(document))
    typed = launching.type_bare("import", "job.json", "--into", "made", *words)
    assert typed.code in (0, 2, 3), typed.err
    texts = [typed.out, typed.err]
    for file in [each for each in (launching.folder / "made").rglob("*") if each.is_file()]:
        texts += [file.name, file.read_text()]
        file.unlink()
    return "\n".join(texts)


def check_that_none_is_told(
    launching: Any, kind: str, path: tuple[Any, ...], *, is_alone: bool
) -> None:
    """Plant a secret of a kind at a place, alone or within a command; nothing tells it."""
    secret, part = SECRETS[kind], PARTS.get(kind, SECRETS[kind])
    text, words = (secret, ["--json"]) if is_alone else (f"--x '{secret}' --y 1; true", [])
    told = everything(launching, planted(path, text), *words)
    assert part not in told, path
    assert find_secrets(told) == [], (path, text)


@pytest.mark.parametrize("kind", SECRETS)
def test_no_place_lets_a_secret_through(launching: Any, kind: str) -> None:
    """Each place gets each kind, half of them alone."""
    number = [*SECRETS].index(kind)
    for at, path in enumerate(places(DOCUMENT)):
        check_that_none_is_told(launching, kind, path, is_alone=(at + number) % 2 == 0)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_of_each_kind_is_found_alone_and_in_a_command(kind: str) -> None:
    secret, part = SECRETS[kind], PARTS.get(kind, SECRETS[kind])
    for text in (secret, f"--x '{secret}' --y 1; true"):
        assert is_secret("X", text)
        left = text
        for each in reversed(find_in_text(text)):
            left = left[: each.start] + left[each.end :]
        assert part not in left, left
        assert find_secrets(left) == [], left


@pytest.mark.faults
@pytest.mark.parametrize("kind", SECRETS)
def test_no_place_lets_a_secret_through_alone_or_within_a_command(
    launching: Any, kind: str
) -> None:
    for path in places(DOCUMENT):
        for is_alone in (True, False):
            check_that_none_is_told(launching, kind, path, is_alone=is_alone)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--api-key abc123xyz --lr 1", '--api-key "${API_KEY}" --lr 1'),
        ("--password='p q'", None),
        ("export WANDB_API_KEY=0123abcd", 'export WANDB_API_KEY="${WANDB_API_KEY}"'),
        ("curl -u bob:hunter22 https://x", 'curl -u bob:"${ARGUMENT_SECRET_1}" https://x'),
        ("git clone https://u:tok3n99@h/r", 'git clone https://u:"${ARGUMENT_SECRET_1}"@h/r'),
        (
            '-H "Authorization: Bearer abcdef12345"',
            '-H "Authorization: Bearer ${ARGUMENT_SECRET_1}"',
        ),
        (
            "--tokens 512 --tokenizer bert --pass-through x",
            "--tokens 512 --tokenizer bert --pass-through x",
        ),
        (
            "--max_tokens=512 --key-file /k --seed 1234",
            "--max_tokens=512 --key-file /k --seed 1234",
        ),
        ("--password $PASSWORD", "--password $PASSWORD"),
    ],
)
def test_arguments_get_variables_in_place_of_secrets(
    launching: Any, text: str, shown: str | None
) -> None:
    document = planted(("properties", "pyTorchSettings", "commandLineArgs"), text)
    (launching.folder / "job.json").write_text(json.dumps(document))
    launching.type_bare("import", "job.json", "--into", "made")
    written = (launching.folder / "made" / "job.yaml").read_text()
    if shown is None:
        assert "'p q'" not in written
    else:
        assert f'python "/opt/train.py" {shown}\n' in written


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(
            (name, True)
            for name in ("PASSWORD", "storageKey", "db_passwd", "AZURE_STORAGE_KEY", "SAS")
        ),
        *(
            (name, True)
            for name in ("HF_TOKEN", "client-secret", "accountKey", "CONNECTION_STRING")
        ),
        *((name, False) for name in ("KEYBOARD", "MAX_TOKENS", "sshPublicKey", "PATH", "BYPASS")),
        *((name, False) for name in ("tokenizer", "key_file", "secretUrl", "SASSY", "MONKEY")),
    ],
)
def test_names_tell_a_secret(name: str, expected: bool) -> None:
    assert names_a_secret(name) is expected


@pytest.mark.parametrize(
    "text",
    [
        "az login --service-principal -u x -p 'Qz7!secret' --tenant t",
        "docker login example.com -u x -pQz7!secret",
        "echo Qz7!secret | docker login -u x --password-stdin",
        "echo 'Qz7!secret' | sudo -S ls",
        "wandb login --relogin Qz7secret0123456789abcdef",
        "curl -H 'Authorization: token Qz7!secret' https://example.com",
        "smbclient //server/share -U joe%Qz7!secret",
        "azcopy --source-key Qz7!secret --recursive",
        "COSMOS_KEY=Qz7!secret python x.py",
        "SECRET_KEY: 'Qz7!secret'",
        "kaggle config set -n key -v Qz7!secret",
        "smbclient //server/share Qz7!secret",
        "htpasswd -bc users joe 'Qz7!secret'",
        "ssh-keygen -t rsa -N 'Qz7!secret' -f id",
        '{"password": "Qz7!secret", "user": "x"}',
        r'echo "{\"api_key\": \"Qz7!secret\"}" > settings.json',
    ],
)
def test_a_secret_in_a_line_is_found(text: str) -> None:
    found = [text[each.start : each.end] for each in find_in_text(text)]
    assert [each[:4] for each in found] == ["Qz7s" if "wandb" in text else "Qz7!"]
    assert all("user" not in each and "tenant" not in each for each in found)


@pytest.mark.parametrize(
    "text",
    [
        "python x.py --sort_key=name --key-file k.txt --max-tokens 512 --token_type bert --passes 3",
        "bash --login -p 22 && echo done | sudo tee log",
        '{"tokenizer": "bert", "public_key_file": "/k"}',
    ],
)
def test_lines_without_a_secret_have_none(text: str) -> None:
    assert find_in_text(text) == []


def test_a_vault_strikes_values_and_leaves_words() -> None:
    vault = Vault()
    for value in ("python", "2018", "s3cret", "correct horse battery", "horse battery"):
        vault.learn(value)
    assert vault.strike("python 2018 s3cret correct horse battery") == "python 2018 *** ***"
    assert is_secret("X", "plain") is False


def test_a_value_that_has_a_variable_is_that_variable_everywhere(launching: Any) -> None:
    document = copy.deepcopy(DOCUMENT)
    properties = document["properties"]
    properties["secrets"] = [{"name": "PIN", "value": "tango-7-foxtrot"}]
    properties["environmentVariables"] = [{"name": "DB_PASSWORD", "value": "sierra-9-oscar"}]
    arguments = "--pin tango-7-foxtrot --password sierra-9-oscar"
    properties["pyTorchSettings"]["commandLineArgs"] = arguments
    (launching.folder / "job.json").write_text(json.dumps(document))
    typed = launching.type_bare("import", "job.json", "--into", "made", "--json")
    written = (launching.folder / "made" / "job.yaml").read_text()
    assert '--pin "${PIN}" --password "${DB_PASSWORD}"\n' in written
    assert "secrets:\n  PIN: pin\n  DB_PASSWORD: db-password\n" in written
    outcomes = {each["key"]: each["outcome"] for each in json.loads(typed.out)["entries"]}
    for key in ("environmentVariables[0].value", "secrets[0].value"):
        assert outcomes[f"properties.{key}"] == "converted"
