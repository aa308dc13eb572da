"""Task files of Azure ML, SkyPilot, dstack and TorchX become jobs that each engine plans."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from jobs.contracts.errors import LaunchError
from jobs.engines import load_engine
from jobs.jobfile.read import load_job
from jobs.launching.imports.draft import Choices
from jobs.launching.imports.importing import Imported, import_documents, write_files
from jobs.launching.plan import plan_on
from tests import seeds
from tests.documents.import_tasks import TASKS
from tests.jobs.launching.imports.generated import leaf_keys
from tests.jobs.launching.imports.test_recipes import environments

REMOTE = "ghcr.io/team/train:1"
EXPECTED: dict[str, dict[str, Any]] = {
    "aml.yaml": {
        "name": "digits",
        "image": "pytorch",
        "launcher": "torch",
        "code": "../src",
        "nodes": 2,
        "processes_per_node": 2,
        "inputs": {"digits": {"path": "./data/digits"}},
        "outputs": {"model": {}},
        "env": {"EPOCHS": "3"},
        "secrets": {"HF_TOKEN": "hf-token"},
        "limits": {"wall_clock": "1h"},
        "shm_size": "8g",
        "experiment": "tries",
        "tags": {"team": "vision"},
    },
    "train.runconfig": {
        "name": "train",
        "image": "pytorch",
        "launcher": "torch",
        "code": "..",
        "nodes": 2,
        "processes_per_node": 2,
        "env": {"EPOCHS": "3"},
        "limits": {"wall_clock": "10m"},
        "shm_size": "2g",
    },
    "sky.yaml": {
        "name": "sky",
        "image": REMOTE,
        "launcher": "torch",
        "code": "..",
        "nodes": 2,
        "processes_per_node": 1,
        "setup": ["bash -c 'pip install x\n'\n"],
        "env": {"EPOCHS": "3"},
        "secrets": {"WANDB_API_KEY": "wandb-api-key"},
    },
    "dstack.yml": {
        "name": "ds",
        "image": REMOTE,
        "launcher": "torch",
        "code": "..",
        "nodes": 2,
        "processes_per_node": 1,
        "env": {"EPOCHS": "3"},
        "limits": {"wall_clock": "2h"},
    },
    "appdef.yaml": {
        "name": "app-trainer",
        "image": REMOTE,
        "launcher": "torch",
        "code": "..",
        "nodes": 2,
        "processes_per_node": 1,
        "env": {"EPOCHS": "3"},
        "retry": {"max": 1},
    },
}
LAST_LINES = {
    "aml.yaml": "python train.py --data ${inputs.digits} --lr 0.1 --out ${outputs.model}",
    "train.runconfig": 'python "train.py" "--lr" "0.1"',
    "sky.yaml": "python train.py --node $SKYPILOT_NODE_RANK",
    "dstack.yml": "python train.py",
    "appdef.yaml": "python train.py --rank \"${RANK}\" --note 'a b'",
}


def imported(folder: Path, name: str, document: Any) -> Imported:
    (folder / "src").mkdir(exist_ok=True)
    for script in (folder / "train.py", folder / "src" / "train.py"):
        script.write_text("print(1)\n", encoding="utf-8")
    (folder / name).write_text(yaml.safe_dump(document), encoding="utf-8")
    return import_documents([folder / name], folder / "made", Choices())


@pytest.mark.parametrize("name", TASKS)
def test_a_task_becomes_a_job_that_each_engine_plans(tmp_path: Path, name: str) -> None:
    made = imported(tmp_path, name, TASKS[name])
    assert sorted(each.key for each in made.told) == sorted(leaf_keys(TASKS[name]))
    write_files(made, tmp_path / "made")
    file = f"{EXPECTED[name]['name']}.yaml"
    job = yaml.safe_load(made.files[file])
    command = job.pop("command")
    assert job == EXPECTED[name]
    assert command[:2] == ["bash", "-c"]
    assert command[2].strip().splitlines()[-1] == LAST_LINES[name]
    loaded = load_job(str(tmp_path / "made" / file))
    for environment in environments(tmp_path / "workspace"):
        plain = structs.replace(loaded.job, inputs={}, image="pytorch", secrets={})
        text = command[2].replace("${inputs.digits}", "x")
        plain = structs.replace(plain, command=("bash", "-c", text))
        plan = plan_on(plain, loaded.code, load_engine(environment))
        assert (plan.spec.nodes, plan.spec.launcher) == (2, "torch")


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("train.runconfig", TASKS["train.runconfig"] | {"arguments": ["--password", "Qz7 secret"]}),
        (
            "appdef.yaml",
            {
                "name": "app",
                "roles": [
                    {
                        "name": "x",
                        "image": "example.com/x:1",
                        "entrypoint": "python",
                        "args": [
                            "train.py",
                            "--api_key",
                            "Qz7 secret",
                            "--sort-key",
                            "document_id",
                        ],
                    }
                ],
            },
        ),
    ],
)
def test_a_secret_that_is_a_word_of_a_list_becomes_a_variable(
    tmp_path: Path, name: str, document: Any
) -> None:
    made = imported(tmp_path, name, document)
    (job,) = (yaml.safe_load(text) for file, text in made.files.items() if file != "README.md")
    assert list(job["secrets"]) == ["ARGUMENT_SECRET"]
    assert "${ARGUMENT_SECRET}" in job["command"][2]
    assert not any("Qz7" in text for text in (*made.files.values(), repr(made.told)))
    assert ("document_id" in job["command"][2]) is (name == "appdef.yaml")


def test_a_variable_without_a_value_is_a_secret_to_be_or_told_of(tmp_path: Path) -> None:
    task = {
        "name": "s",
        "num_nodes": 1,
        "envs": {"HF_TOKEN": None, "EPOCHS": 3},
        "secrets": {"WANDB_API_KEY": None, "RANK": None},
        "run": "python train.py",
    }
    made = imported(tmp_path, "s.yaml", task)
    job = yaml.safe_load(made.files["s.yaml"])
    assert (job["env"], job["secrets"]) == ({"EPOCHS": "3"}, {"WANDB_API_KEY": "wandb-api-key"})
    end = "has no value in the file: set it in `env`, or in `secrets`"
    assert made.remarks == tuple(
        f"{tmp_path / 's.yaml'}: `{key}` {end}" for key in ("envs.HF_TOKEN", "secrets.RANK")
    )
    assert "Put the secret of `WANDB_API_KEY` (s) into the vault" in made.files["README.md"]


@pytest.mark.parametrize("start", ["docker:", "docker://"])
def test_an_image_of_skypilot_is_kept_with_either_prefix(tmp_path: Path, start: str) -> None:
    task = TASKS["sky.yaml"] | {"resources": {"image_id": f"{start}{REMOTE}"}}
    made = imported(tmp_path, "sky.yaml", task)
    assert yaml.safe_load(made.files["sky.yaml"])["image"] == REMOTE
    assert [each.reason for each in made.told if each.key == "resources.image_id"] == [None]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("azureml://datastores/w/paths/a/b.csv", "${inputs.table}/b.csv"),
        ("b.csv", "${inputs.table}/b.csv"),
        ("azureml:table:1", "${inputs.table}"),
        ("https://example.com/b.csv?x=1", "${inputs.table}"),
        ("data/", "${inputs.table}"),
    ],
)
def test_a_program_is_given_the_file_of_an_input_that_is_one(
    tmp_path: Path, path: str, shown: str
) -> None:
    inputs = {"table": {"type": "uri_file", "path": path}, "rest": {"type": "uri_folder"}}
    inputs["rest"] |= {"path": "azureml://datastores/w/paths/a/b.csv"}
    command = "python train.py ${{inputs.table}} ${{inputs.rest}}"
    made = imported(
        tmp_path, "aml.yaml", TASKS["aml.yaml"] | {"command": command, "inputs": inputs}
    )
    job = yaml.safe_load(made.files["digits.yaml"])
    assert job["command"][2].strip() == f"python train.py {shown} ${{inputs.rest}}"
    reasons = {each.key: each.reason for each in made.told if each.key.endswith(".type")}
    folder = "the program gets the folder: add the file's name behind the input in `command`"
    expected = None if shown.endswith("b.csv") else folder
    assert reasons["inputs.table.type"] == expected
    assert reasons["inputs.rest.type"] is None


def words_of(folder: Path, entry: str, args: list[str]) -> tuple[str, list[str]]:
    """The command of an application of TorchX, and the reasons of what was refused."""
    role: dict[str, Any] = {"name": "app", "entrypoint": entry, "args": args, "num_replicas": 2}
    made = imported(folder, "app.yaml", {"name": "app", "roles": [role]})
    reasons = [each.reason for each in made.told if each.reason]
    return yaml.safe_load(made.files["app.yaml"])["command"][2].strip(), reasons


def test_macros_of_torchx_are_filled_and_nothing_else_is(tmp_path: Path) -> None:
    program = (
        "echo $${${rank0_env}:=localhost}:29500 --rdzv_id '${app_id}' --node_rank ${replica_id} "
        "--role '' $HOME $$HOME $$$$ ${rank}"
    )
    command, reasons = words_of(tmp_path, "bash", ["-c", program])
    assert reasons == []
    environment = {"MASTER_ADDR": "10.0.0.4", "RANK": "1", "HOME": "/h", "rank": "3"}
    environment |= {"TRAINYARD_RUN_DIR": "/runs/app-7", "PATH": os.environ["PATH"]}
    said = run_bash(command.replace("$${rank}", "${rank}"), environment)
    assert said.startswith("10.0.0.4:29500 --rdzv_id app-7 --node_rank 1 --role  /h /h ")
    assert said.endswith(" 3\n")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("${replica_id}", "1"),
        ("$replica_id-$$-$", "1-$-$"),
        ("it's ${replica_id}'", "it's 1'"),
        ("$HOME `id` $(id) ${unknown} \\", "$HOME `id` $(id) ${unknown} \\"),
        ("", ""),
    ],
)
def test_a_word_of_torchx_is_no_text_of_a_shell(tmp_path: Path, word: str, expected: str) -> None:
    command, reasons = words_of(tmp_path, "printf", ["[%s]", word])
    assert reasons == []
    environment = {"RANK": "1", "HOME": "/h", "PATH": os.environ["PATH"]}
    assert run_bash(command, environment) == f"[{expected}]"


def run_bash(text: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_secret_with_a_dollar_is_found_as_it_is_written(tmp_path: Path) -> None:
    command, _ = words_of(tmp_path, "python", ["train.py", "--token", "a$$bcdefgh1"])
    assert "bcdefgh1" not in command
    assert '"${ARGUMENT_SECRET}"' in command


@pytest.mark.parametrize("word", ["${img_root}/x", "$base_img_root"])
def test_the_folder_of_an_image_is_refused(tmp_path: Path, word: str) -> None:
    command, reasons = words_of(tmp_path, "python", ["train.py", word])
    assert command == "python train.py"
    assert reasons == ["it names the image's folder, in which the run is: write the path itself"]


def test_values_of_wrong_types_end_in_one_error_or_a_job(tmp_path: Path) -> None:
    made = seeds.dice(7)
    odd: list[Any] = [
        None,
        -1,
        10**30,
        1.5,
        True,
        "",
        "two",
        ["x"],
        [["x"]],
        {"a": {"b": 1}},
        "\t'",
    ]
    for number in range(150):
        name = made.choice(list(TASKS))
        document = dict(TASKS[name])
        document[made.choice(list(document))] = made.choice(odd)
        folder = tmp_path / str(number)
        folder.mkdir()
        problem, keys = tried(folder, name, document)
        assert keys == sorted(leaf_keys(document)) or str(folder / name) in problem


def tried(folder: Path, name: str, document: Any) -> tuple[str, list[str]]:
    """Import a document that may be broken: the error's message, or the keys that were told of."""
    try:
        return "", sorted(each.key for each in imported(folder, name, document).told)
    except LaunchError as error:
        return error.message, []


@pytest.mark.parametrize(
    "text",
    [
        "services: {web: {image: x}}",
        "name: x\nimage: pytorch\nlauncher: torch\nscript: train.py\n",
        "image: pytorch\ncommand: [x]\nenvironment: y\n",
        "type: service\ncommands: [x]\nport: 1",
        "type: pipeline\njobs: {a: {command: x, environment: y}}",
        "run-name: x\non: push\njobs: {a: {runs-on: x}}",
        "- a\n- b",
    ],
)
def test_files_of_other_tools_are_passed_over_in_a_folder(launching: Any, text: str) -> None:
    (launching.folder / "other.yaml").write_text(text)
    (launching.folder / "broken.yml").write_text("{{ template }}: [")
    (launching.folder / "job.json").write_text(
        '{"properties": {"customToolkitSettings": {"commandLine": "true"}}}'
    )
    typed = launching.type_bare("import", ".", "--into", "made")
    assert typed.code == 0, typed.err
    for name in ("other.yaml", "broken.yml"):
        typed = launching.type_bare("import", name, "--into", "made2")
        assert (typed.code, typed.out, typed.err.count("error:")) == (2, "", 1)
        assert typed.err.startswith(f"error: {name}:1:")
