"""A practitioner who has the wheel, an environment file and a login: no clone, no Pulumi."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.images.runtimes import PROJECT, find_uv, uv_environment
from tests.fakes.azureml import FakeAzure

PINNED = {"pytorch": f"registry.azurecr.io/pytorch@sha256:{'a' * 64}"}
PROGRAM = """
from pathlib import Path
Path("outputs").mkdir(exist_ok=True)
Path("outputs/model.bin").write_bytes(b"weights")
print("hello from the wheel")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `bin` of an environment that holds our wheel, built now, and what it asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    uv, venv, locked = find_uv(PROJECT), folder / "venv", folder / "locked.txt"
    export = ("export", "-q", "--frozen", "--no-default-groups", "--extra", "azure")
    install = ("pip", "install", "-q", "--python", venv / "bin" / "python", "--no-deps")
    for words in (
        ("build", "-q", "--wheel", "-o", folder, PROJECT),
        ("venv", "-q", "--python", sys.executable, venv),
        (*export, "--no-emit-project", "--project", PROJECT, "-o", locked),
        (*install, "-r", locked),
    ):
        subprocess.run([uv, *words], env=uv_environment(uv), cwd=folder, check=True)
    (wheel,) = folder.glob("trainyard-*.whl")
    subprocess.run([uv, *install, wheel], env=uv_environment(uv), cwd=folder, check=True)
    return venv / "bin"


@dataclass(frozen=True, kw_only=True)
class Practitioner:
    """Types the installed `launch` in a folder that belongs to no project."""

    launch: Path
    azure: FakeAzure
    folder: Path

    def type(
        self, *words: str, images: dict[str, str] | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        (self.folder / "dev.json").write_text(
            json.dumps(self.azure.environment(images=PINNED if images is None else images))
        )
        env = {
            **self.azure.environ,
            "PATH": os.defpath,
            "TRAINYARD_PRICES": "table",
            "XDG_STATE_HOME": str(self.folder / "state"),
            **variables,
        }
        command = [self.launch, *words, "--env", "dev.json"]
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )

    def read(self, *words: str) -> str:
        typed = self.type(*words)
        assert typed.returncode == 0, typed.stderr
        return typed.stdout


@pytest.fixture
def practitioner(installed: Path, azure: FakeAzure, tmp_path: Path) -> Practitioner:
    return Practitioner(launch=installed / "launch", azure=azure, folder=tmp_path)


def test_from_the_plan_to_the_fetched_model_without_a_clone_or_pulumi(
    practitioner: Practitioner, installed: Path
):
    packages = {each.name for each in installed.parent.glob("lib/python3*/site-packages/*")}
    assert {each for each in packages if each.startswith("pulumi")} == set()
    assert {"jobs", "trainer"} <= packages
    job = {"name": "own", "image": "pytorch", "script": "train.py"}
    (practitioner.folder / "job.yaml").write_text(json.dumps(job))
    (practitioner.folder / "train.py").write_text(PROGRAM)
    (cluster,) = json.loads(practitioner.read("cluster", "ls", "--json"))
    assert (cluster["name"], cluster["max_nodes"]) == ("cpu", 2)
    planned = json.loads(practitioner.read("plan", "job.yaml", "--json"))
    assert planned["request"]["job"]["body"]["properties"]["computeId"].endswith(cluster["compute"])
    attached = practitioner.type("run", "job.yaml", "-y")
    assert attached.returncode == 0, attached.stderr
    run, *lines = attached.stdout.splitlines()
    assert lines == ["[0] hello from the wheel"]
    azure = practitioner.azure
    (code,) = azure.requests(method="PUT", path="/codes/")
    container = code.json["properties"]["codeUri"].rpartition("/")[2]
    sent = azure.blobs.names(azure.place.workspace_account, container)
    assert sorted(sent) == sorted(each["name"] for each in planned["request"]["code"]["files"])
    assert practitioner.read("logs", run) == "[0] hello from the wheel\n"
    (listed,) = json.loads(practitioner.read("ls", "--json"))
    assert (listed["id"], listed["state"]) == (run, "completed")
    assert practitioner.read("fetch", run, "--into", "home").strip() == "home"
    assert (practitioner.folder / "home/outputs/model.bin").read_bytes() == b"weights"


def test_a_job_of_the_catalog_takes_the_wheels_own_programs_along(
    practitioner: Practitioner, installed: Path
):
    planned = json.loads(practitioner.read("plan", "mnist-synthetic", "--json"))
    listed = [each["name"] for each in planned["request"]["code"]["files"]]
    (packages,) = installed.parent.glob("lib/python3*/site-packages")
    programs = {
        each.relative_to(packages).as_posix()
        for each in packages.glob("trainer/**/*")
        if each.is_file() and "__pycache__" not in each.parts
    }
    assert "trainer/pytorch/mnist.py" in programs
    assert sorted(listed) == sorted([*programs, ".trainyard/rank.pyz", ".trainyard/files.json"])


def test_an_image_that_the_environment_lacks_cannot_be_built_from_a_wheel(
    practitioner: Practitioner,
):
    typed = practitioner.type("run", "mnist-synthetic", "-d", "-y", images={})
    assert (typed.returncode, typed.stdout) == (102, "")
    assert typed.stderr == (
        "error: image `pytorch` cannot be built here: this `launch` was installed without images/\n\n"
        "hint: use an image of a registry (REGISTRY/NAME@sha256:...), "
        "or the launch of a clone\n"
    )


def test_who_installed_the_wheel_without_azures_packages_is_told_how_to_get_them(
    practitioner: Practitioner,
):
    hidden = practitioner.folder / "hidden"
    (hidden / "azure").mkdir(parents=True)
    (hidden / "azure" / "__init__.py").touch()
    typed = practitioner.type("ls", PYTHONPATH=str(hidden))
    assert (typed.returncode, typed.stdout) == (1, "")
    assert "cannot be loaded: No module named 'azure." in typed.stderr
    assert "hint: pip install 'trainyard[azure]'" in typed.stderr
