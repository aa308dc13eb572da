"""A proof that is cut off goes on; what it made is destroyed, or left where it says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.busy import wait_until
from tests.fakes.azureml import Deviation
from tests.fakes.one_azure.proof import OPTIONS, Proof
from tests.pulumi_project import REPO
from tools.prove_azure.record import read_record


def test_a_private_stack_is_left_up_outside_of_its_network_and_proved_inside(
    private_proof: Proof, capfd: pytest.CaptureFixture[str]
) -> None:
    account = private_proof.azure.place.data_account
    private_proof.azure.close(account)
    steps = ("--private", "--only", "ask", "up", "inside", "hello", "destroy")
    assert private_proof.prove(*steps) == 1
    assert private_proof.steps() == {"ask": "done", "up": "done", "inside": "failed"}
    assert private_proof.azure.live() != set()
    said = capfd.readouterr().err
    assert "stack test-prove stays up and costs 0.20 USD an hour" in said
    assert 'PROVE="--private --clean --name prove --location swedencentral"' in said

    private_proof.azure.open()
    assert private_proof.prove(*steps) == 0
    assert private_proof.steps()["hello"] == "done"
    assert private_proof.azure.live() == set()


@pytest.mark.faults
def test_a_private_stack_that_did_not_come_up_is_destroyed(private_proof: Proof) -> None:
    private_proof.azure.deviate(Deviation.SIZE_RESTRICTED)
    assert private_proof.prove("--private", "--only", "ask", "up", "inside") == 1
    assert private_proof.steps() == {"ask": "done", "up": "failed", "inside": "left out"}
    assert private_proof.azure.live() == set()


def test_what_was_killed_goes_on_and_ctrl_c_destroys(up: Proof, tmp_path: Path) -> None:
    child = begin(up, tmp_path, "--only", "hello", "logs", "destroy")
    wait_for_step(up, "hello")
    child.kill()
    child.wait()
    assert up.azure.live() != set()

    child = begin(up, tmp_path, "--only", "hello", "logs", "destroy")
    wait_for_typed(up, "-d -s")  # the run of `logs` is on its way
    child.send_signal(signal.SIGINT)
    assert child.wait(300) == 130
    assert up.azure.live() == set()
    record = read_record(up.folder / "record.json", up.stack, "swedencentral")
    assert (record.up_since_s, record.is_done("hello"), record.is_done("logs")) == (
        None,
        True,
        False,
    )
    assert (up.folder / "log.txt").read_text().count("hello.yaml") == 1


def begin(proof: Proof, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """The proof as a process of its own."""
    argv = [*OPTIONS, *words]
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tools.project import Project\n"
        "from tools.prove_azure.__main__ import main\n"
        "from tests.fakes.one_azure.proof import PATIENCE\n"
        f"project = Project(root=Path({str(proof.clone)!r}), cache=Path({str(folder)!r}))\n"
        f"sys.exit(main({argv!r}, project=project, patience=PATIENCE))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPO,
        env={**os.environ, **proof.environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_step(proof: Proof, name: str) -> None:
    wait_until(lambda: name in json.loads((proof.folder / "record.json").read_text())["steps"], 200)


def wait_for_typed(proof: Proof, words: str) -> None:
    wait_until(lambda: words in (proof.folder / "log.txt").read_text(), 200)
