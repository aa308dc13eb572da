"""Each secret of an import has a variable, and a name in the key vault, that stand for nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.contracts.errors import LaunchError
from jobs.launching.imports.draft import Choices, Draft
from jobs.launching.imports.importing import import_documents
from jobs.launching.imports.job_yaml import write_job
from jobs.launching.imports.secrecy import Vault

HEAD = "python /opt/train.py"


def import_all(folder: Path, documents: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The job files that come of documents, by their names."""
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    paths = [folder / name for name in documents]
    made = import_documents(paths, folder / "made", Choices())
    return {
        name.removesuffix(".yaml"): yaml.safe_load(text)
        for name, text in made.files.items()
        if name.endswith(".yaml")
    }


def batchai(command: str, **body: Any) -> dict[str, Any]:
    return {"properties": {"customToolkitSettings": {"commandLine": command}, **body}}


def last_lines(job: dict[str, Any], number: int = 1) -> list[str]:
    return job["command"][2].strip().splitlines()[-number:]


def test_secrets_of_several_texts_have_variables_of_their_own(tmp_path: Path) -> None:
    commands = [
        "git clone https://me:abcdefgh1234@github.com/org/a",
        "git clone https://me:zyxwvuts9876@gitlab.com/org/b",
        "python train.py --password=first-One1",
        "python again.py --password=first-One1 --lr 1",
    ]
    task = {"type": "task", "name": "t", "commands": commands}
    job = import_all(tmp_path, {"t.dstack.yml": task})["t"]
    assert last_lines(job, 4) == [
        'git clone https://me:"${ARGUMENT_SECRET_1}"@github.com/org/a',
        'git clone https://me:"${ARGUMENT_SECRET_2}"@gitlab.com/org/b',
        'python train.py --password="${ARGUMENT_SECRET_3}"',
        'python again.py --password="${ARGUMENT_SECRET_3}" --lr 1',
    ]
    assert job["secrets"] == {
        f"ARGUMENT_SECRET_{number}": f"argument-secret-{number}" for number in (1, 2, 3)
    }


def test_secrets_of_one_name_in_one_text_have_variables_of_their_own(tmp_path: Path) -> None:
    command = "get --account-key AAAAbbbb1111== && get --account-key CCCCdddd2222=="
    job = import_all(tmp_path, {"job.json": batchai(command)})["job"]
    assert last_lines(job) == [
        'get --account-key "${ACCOUNT_KEY}" && get --account-key "${ACCOUNT_KEY_2}"'
    ]
    assert job["secrets"] == {"ACCOUNT_KEY": "account-key", "ACCOUNT_KEY_2": "account-key-2"}


def test_three_sets_of_arguments_have_variables_of_their_own(tmp_path: Path) -> None:
    settings = {
        "pythonScriptFilePath": "/opt/train.py",
        "workerCount": 2,
        **{
            f"{name}CommandLineArgs": f"--from https://me:{name}-5ecret@example.com"
            for name in ("master", "worker", "parameterServer")
        },
    }
    document = {"properties": {"nodeCount": 2, "tensorFlowSettings": settings}}
    job = import_all(tmp_path, {"job.json": document})["job"]
    assert [f"ARGUMENT_SECRET_{number}" for number in (1, 2, 3)] == list(job["secrets"])
    places = [f'me:"${{{variable}}}"@example.com' for variable in job["secrets"]]
    assert [job["command"][2].count(place) for place in places] == [1] * 3


def test_a_variable_that_the_job_declares_stands_for_its_own_value_only(tmp_path: Path) -> None:
    job = import_all(
        tmp_path,
        {
            "job.json": batchai(
                f"{HEAD} --db-password in-the-1ine --api-key in-the-1ine-2",
                environmentVariables=[{"name": "API_KEY", "value": "none"}],
                secrets=[{"name": "DB_PASSWORD", "value": "dec1ared-one"}],
            )
        },
    )["job"]
    assert last_lines(job) == [
        f'{HEAD} --db-password "${{DB_PASSWORD_2}}" --api-key "${{API_KEY_2}}"'
    ]
    assert job["env"] == {"API_KEY": "none"}
    assert job["secrets"] == {
        "DB_PASSWORD": "db-password",
        "DB_PASSWORD_2": "db-password-2",
        "API_KEY_2": "api-key-2",
    }


def test_jobs_share_a_name_in_the_vault_where_they_share_the_secret(tmp_path: Path) -> None:
    values = {"a": "Secret-a-12345", "b": "Secret-b-12345", "c": "Secret-a-12345"}
    documents = {
        f"{name}.json": batchai(HEAD, secrets=[{"name": "DB_PASSWORD", "value": value}])
        for name, value in values.items()
    }
    documents["d.json"] = batchai(f"{HEAD} --db-password Secret-b-12345")
    made = import_all(tmp_path, documents)
    assert {name: job["secrets"] for name, job in made.items()} == {
        "a": {"DB_PASSWORD": "db-password"},
        "b": {"DB_PASSWORD": "db-password-2"},
        "c": {"DB_PASSWORD": "db-password"},
        "d": {"DB_PASSWORD": "db-password-2"},
    }


def test_a_plain_variable_with_a_known_secret_is_a_secret(tmp_path: Path) -> None:
    document = batchai(
        f"{HEAD} --password tango-7-foxtrot",
        environmentVariables=[{"name": "PLAIN", "value": "tango-7-foxtrot"}],
    )
    job = import_all(tmp_path, {"job.json": document})["job"]
    assert "env" not in job
    assert job["secrets"] == {"PASSWORD": "password", "PLAIN": "plain"}


def test_a_variable_of_any_name_that_a_shell_takes_can_be_a_secret(tmp_path: Path) -> None:
    task = {"name": "s", "num_nodes": 1, "secrets": {"_TOKEN_": "tango-7-foxtrot"}, "run": HEAD}
    job = import_all(tmp_path, {"s.yaml": task})["s"]
    assert job["secrets"] == {"_TOKEN_": "token"}


@pytest.mark.parametrize("value", ["PASSWORD", "password", "DB_PASSWORD", "YOUR-API-KEY"])
def test_a_placeholder_becomes_a_variable_and_spoils_no_name(tmp_path: Path, value: str) -> None:
    task = {"name": "s", "num_nodes": 1, "run": f"{HEAD} --password {value}"}
    job = import_all(tmp_path, {"s.yaml": task})["s"]
    assert last_lines(job) == [f'{HEAD} --password "${{PASSWORD}}"']
    assert job["secrets"] == {"PASSWORD": "password"}
    secrets = [{"name": "DB_PASSWORD", "value": value}]
    document = batchai(f"{HEAD} --user-password $DB_PASSWORD", secrets=secrets)
    job = import_all(tmp_path, {"job.json": document})["job"]
    assert last_lines(job) == [f"{HEAD} --user-password $DB_PASSWORD"]
    assert job["secrets"] == {"DB_PASSWORD": "db-password"}


def test_a_job_that_a_struck_secret_would_break_is_not_written(tmp_path: Path) -> None:
    draft, vault = Draft(name="s", file="s.yaml", text="true\n"), Vault()
    assert yaml.safe_load(write_job(draft, tmp_path, vault))["launcher"] == "none"
    vault.learn("launcher")
    with pytest.raises(LaunchError) as caught:
        write_job(draft, tmp_path, vault)
    assert caught.value.message == "s.yaml: the job cannot be written as YAML"
    hint = "remove unusual characters from its texts, and secrets that are words of a job file"
    assert caught.value.hint == hint
