"""What an Azure ML job carries for its ranks: the command, the variables, one file."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

from msgspec import structs

from jobs.contracts.spec import DatasetVersion, Environment, InputSpec, KeyVault, Storage
from jobs.engines.azure_ml.node_job import (
    SNAPSHOT_FILE,
    environment_variables,
    node_command,
    snapshot_file,
)
from jobs.rank.settings import read_settings
from tests.fakes.gangs import make_environment, make_spec

DIGITS = DatasetVersion(name="digits", version=3, digest="d" * 64, files=2, bytes=9)
NOT_STDLIB = """
import sys
sys.argv = ["rank.pyz", "nothing"]
sys.path.insert(0, {path!r})
import jobs.rank.azure_main, jobs.rank.chief, jobs.rank.streams, jobs.rank.uploads
tops = {{name.partition(".")[0] for name in sys.modules}} - {{"__main__", "jobs"}}
print(*sorted(tops - sys.stdlib_module_names))
"""


def environment() -> Environment:
    made = make_environment(Path("/nowhere"))
    storage = structs.replace(made.storage, blob_endpoint="https://data.blob.core.windows.net/")
    assert isinstance(storage, Storage)
    vault = KeyVault(uri="https://vault.vault.azure.net/")
    return structs.replace(made, engine="azureml", storage=storage, key_vault=vault)


def test_command_has_a_place_for_each_input_that_azure_ml_gives() -> None:
    given = {
        "train": InputSpec(dataset=DIGITS, mode="mount"),
        "val": InputSpec(dataset=DIGITS, mode="download"),
        "more": InputSpec(dataset=DIGITS, mode="stream"),
    }
    command = node_command(make_spec(["python", "train.py"], inputs=given), "trainyard-0")
    program, *words = shlex.split(command)[4:]
    assert not set('"$`\\!{}') & set(program)
    assert command == (
        f'python -I -S -c "{program}" "trainyard-0" '
        '"checkpoints=${{outputs.trainyard_checkpoints}}" '
        '"input.train=${{inputs.train}}" "input.val=${{inputs.val}}"'
    )
    assert words[0] == "trainyard-0"


def test_a_placeholder_is_filled_on_the_node_and_no_variable_before() -> None:
    spec = make_spec(["python", "train.py"], env={"A": "b", "PART": "part-${rank}"})
    variables = environment_variables(spec, environment(), run="20261121-0000", attempt=1)
    told = json.loads(base64.urlsafe_b64decode(variables["TRAINYARD_JOB"]))
    assert (variables["A"], "PART" in variables) == ("b", False)
    assert told["env"] == {"PART": "part-${rank}"}


def test_variables_are_the_jobs_the_launchers_and_what_the_ranks_must_know() -> None:
    spec = make_spec(
        ["python", "train.py", "--epochs", "2"],
        launcher="horovod",
        setup=("make",),
        env={"A": "b"},
        secrets={"KEY": "the-key"},
        outputs=("model",),
        inputs={"digits": InputSpec(dataset=DIGITS, mode="stream")},
    )
    variables = environment_variables(spec, environment(), run="20261121-0000", attempt=2)
    told = variables.pop("TRAINYARD_JOB")
    assert re.fullmatch("[A-Za-z0-9_=-]+", told)
    assert json.loads(base64.urlsafe_b64decode(told)) == {
        "command": ["python", "train.py", "--epochs", "2"],
        "setup": ["make"],
        "chief": False,
        "outputs": ["model"],
        "secrets": {"KEY": "the-key"},
        "vault": "https://vault.vault.azure.net/",
        "store": "https://data.blob.core.windows.net",
        "data": "data",
        "runs": "runs",
        "streams": {
            "digits": {
                "files": f"_datasets/digits/{'d' * 64}.files.jsonl",
                "prefix": f"digits/{'d' * 64}/",
            }
        },
        "hang_s": 600.0,
    }
    assert variables == {
        "A": "b",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "660",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "720",
        "TRAINYARD_NODE_SIZE": "local",
        "TRAINYARD_RUN": "20261121-0000",
        "TRAINYARD_ATTEMPT": "2",
    }


def test_a_node_reads_what_was_told_whatever_the_command_holds() -> None:
    command = ["sh", "-c", "echo \"${{inputs.x}}; $HOME\" 'ü'\n% , = \\"]
    variables = environment_variables(make_spec(command), environment(), run="a", attempt=3)
    told = read_settings(variables)
    assert (told.command, told.run, told.attempt) == (command, "a", 3)


def test_torch_is_told_what_torchrun_tells_but_rank_0_serves_the_store() -> None:
    spec = make_spec(["python"], launcher="torch", nodes=2)
    variables = environment_variables(spec, environment(), run="20261121-0000", attempt=2)
    assert {name: value for name, value in variables.items() if "TRAINYARD" not in name} == {
        "ROLE_NAME": "default",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "20261121-0000",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def test_tensorflow_has_a_thread_for_each_process_that_another_one_may_call() -> None:
    spec = make_spec(["python"], launcher="tensorflow", nodes=40, parameter_servers=2)
    variables = environment_variables(spec, environment(), run="a", attempt=1)
    assert variables["TF_NUM_INTEROP_THREADS"] == "83"


def test_the_file_is_the_same_each_time_and_names_no_machine() -> None:
    first = snapshot_file()
    assert first == snapshot_file()
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        infos = archive.infolist()
    assert {(info.date_time, info.create_system) for info in infos} == {((1980, 1, 1, 0, 0, 0), 3)}
    assert SNAPSHOT_FILE == ".trainyard/rank.pyz"


def test_what_travels_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    path = tmp_path / "rank.pyz"
    path.write_bytes(snapshot_file())
    program = NOT_STDLIB.format(path=str(path))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_a_python_that_is_too_old_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rank.pyz"
    path.write_bytes(snapshot_file())
    pretend = f"import runpy, sys; sys.version_info = (3, 8, 1); runpy.run_path({str(path)!r}, "
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", pretend + 'run_name="__main__")'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "error: the image's `python` is 3.8 and the ranks need 3.9 or newer "
        "(hint: put a newer one first on PATH in the image)\n",
    )
