"""`launch` starts light: what it must not load, it does not load."""

import json
import subprocess
import sys

import pytest

from tests.fakes.cloud_stack import make_cloud_environment

HEAVY = {
    *("azure", "azureml", "matplotlib", "numpy", "pathspec", "pulumi", "pydantic", "rich"),
    *("tensorflow", "torch", "yaml"),
    # Costs milliseconds, and neither a help nor a listing needs it.
    "importlib.metadata",
}
# What asks Azure, and what that brings along.
AZURE = {"azure", "azureml", "msal", "msrest", "requests", "urllib3", "cryptography", "pulumi"}
# What a verb loads and the help does not.
CONTRACTS = {"msgspec", "jobs.contracts.spec", "jobs.commands.options"}
PROGRAM = """
import json, sys
from jobs.cli import main
code = main(json.loads(sys.argv[1]))
print("\\0" + json.dumps([code, sorted(sys.modules)]))
"""


def loaded_by(launching, *words):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(words)],
        capture_output=True,
        text=True,
        cwd=launching.folder,
        check=True,
    )
    code, modules = json.loads(done.stdout.rpartition("\0")[2])
    assert code == 0, done.stderr
    return set(modules)


def test_the_help_loads_nothing_heavy(launching):
    assert loaded_by(launching, "--help") & (HEAVY | CONTRACTS) == set()


def test_listing_runs_loads_nothing_heavy(launching):
    launching.add_run()
    assert loaded_by(launching, "ls", "--env", str(launching.env_file)) & HEAVY == set()


def test_showing_a_local_run_loads_nothing_that_prices_are_kept_with(launching):
    launching.add_run()
    loaded = loaded_by(launching, "show", "last", "--env", str(launching.env_file))
    assert loaded & {"hashlib", "jobs.host.cache"} == set()


def test_importing_loads_nothing_of_azure_and_no_framework(launching):
    document = {"properties": {"nodeCount": 1, "customToolkitSettings": {"commandLine": "true"}}}
    (launching.folder / "job.json").write_text(json.dumps(document))
    loaded = loaded_by(launching, "import", "job.json")
    assert loaded & (HEAVY - {"yaml"} | AZURE) == set()


@pytest.mark.parametrize("engine", ["azureml", "azureml_v1"])
def test_planning_on_azure_loads_nothing_of_azure(launching, engine):
    launching.write_environment(make_cloud_environment(engine=engine))
    job = launching.write_job(
        "name: x\nimage: pytorch\ncommand: [python, train.py]\ncode: .\nretry: {max: 1}\n"
        "env: {A: b}\noutputs: {model: {}}\nlimits: {wall_clock: 1h}\n"
    )
    words = ("plan", job, "--env", str(launching.env_file))
    for loaded in (loaded_by(launching, *words), loaded_by(launching, *words, "--json")):
        # What asks, whoever's it is, is not there either.
        assert (
            loaded & {*AZURE, "jobs.engines.azure_ml.client", "ssl", "http.client", "asyncio"}
            == set()
        )
        assert "jobs.engines.azure_ml.request" in loaded


def test_a_verb_loads_no_other_verb(launching):
    program = "import sys; from jobs.cli import main; main(['show', '--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name for name in done.stdout.split() if name.startswith("jobs.commands.")}
    assert loaded == {
        f"jobs.commands.{each}" for each in ("completers", "options", "show", "usage")
    }


POSIX = ("fcntl", "pty", "termios", "resource", "grp", "pwd")


@pytest.mark.parametrize("missing", [POSIX, *((each,) for each in POSIX)], ids=["all", *POSIX])
def test_every_verb_loads_where_posix_modules_are_missing(missing):
    # As on Windows, which has none: the help of every verb needs every module of the command line.
    program = f"""
import sys
sys.modules |= dict.fromkeys({missing!r})
from importlib import import_module
from typer.main import get_command
from jobs.cli import VERBS, module_of
for verb in VERBS:
    get_command(import_module(module_of(verb)).app)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
