"""What a submit costs its client, and a plan: `launch` against azure-ai-ml, at the stand-in Azure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.bench.pairs import Command, median_cpu_s, median_wall_s, time_in_turn, time_once
from tests.bench.table import Row
from tests.bench.workspace import launch_program
from tests.environments.laying import lay_environment
from tests.fakes.azureml import FakeAzure, JobTrouble
from tests.fakes.azureml.ranks import lay_code
from tools.local_stack import write_wrapper
from tools.project import Project

SDK = "tests/integration/azureml/azure_ai_ml_submit.py"
IMAGE = f"registry.azurecr.io/python@sha256:{'a' * 64}"
NUM_FILES = 20


def submit_rows(project: Path, rounds: int) -> list[Row]:
    """Submit the same folder by both in turn; the first time each sends it, then nobody does."""
    lock = project / "tests/environments/azure_ai_ml.txt"
    python = lay_environment(lock, project, what="azure-ai-ml") / "bin" / "python"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runtimes = {"python": Path(sys.executable)}
        with FakeAzure(folder / "azure", runtimes=runtimes) as azure:
            azure.script(JobTrouble(what="queued for ever", times=None))
            ours, theirs = _commands(project, folder, azure, python)
            firsts = [_requests_of(azure, each) for each in (ours, theirs)]
            timings = time_in_turn([ours, theirs], rounds=rounds)
            agains = [_requests_of(azure, each) for each in (ours, theirs)]
        planned, peer = _plan_commands(project, folder, azure.environment(), python)
        plans = time_in_turn([planned, *peer], rounds=rounds)
    our_s, their_s = (median_cpu_s(timings[each.name]) for each in (ours, theirs))
    plan_s = median_wall_s(plans[planned.name])
    peer_s = sum(median_wall_s(plans[each.name]) for each in peer)
    return [
        Row(
            goal="CPU of a client that submits a job",
            ours=f"{our_s:.2f} s",
            peer=f"`MLClient.jobs.create_or_update` {their_s:.2f} s",
            ratio=our_s / their_s,
            at_most=0.5,
        ),
        *(
            Row(
                goal=f"requests of a submit, {when}",
                ours=str(our_number),
                peer=str(their_number),
                ratio=our_number / their_number,
                at_most=0.99,
            )
            for when, (our_number, their_number) in (
                (f"first of {NUM_FILES} files", firsts),
                ("again", agains),
            )
        ),
        Row(
            goal="`launch plan -s dev`",
            ours=f"{plan_s:.2f} s",
            peer=f"`pulumi stack output` and `import azure.ai.ml` {peer_s:.2f} s",
            ratio=plan_s / peer_s,
            at_most=0.2,
        ),
    ]


def _commands(
    project: Path, folder: Path, azure: FakeAzure, python: Path
) -> tuple[Command, Command]:
    code = folder / "code"
    code.mkdir()
    for number in range(NUM_FILES - 2):
        (code / f"part{number}.py").write_text(f"# {number}\n" * 100)
    (code / "train.py").write_text("print('hello')\n")
    job = {"name": "job", "image": "python", "script": "train.py"}
    (code / "job.yaml").write_text(json.dumps(job))
    # The same job has what starts its ranks, too; our own listing leaves it out and adds it.
    lay_code(code)
    environment = folder / "dev.json"
    environment.write_text(json.dumps(azure.environment(images={"python": IMAGE})))
    sdk_job = {
        "type": "command",
        "command": "python train.py",
        "code": str(code),
        "environment": {"image": IMAGE},
        "compute": "azureml:cpu-1a2b3c",
        "experiment_name": "job",
    }
    yaml = folder / "sdk.yaml"
    yaml.write_text(json.dumps(sdk_job))
    env = {**azure.environ, "XDG_STATE_HOME": str(folder / "state")}
    launch = str(launch_program(project))
    words = ["run", str(code / "job.yaml"), "-d", "-y", "--env", str(environment)]
    program = str(project / SDK)
    theirs = [str(python), "-W", "ignore", program, azure.place.workspace_id, str(yaml)]
    return (
        Command(name="launch run -d", argv=[launch, *words], env=env, cwd=folder),
        Command(name="create_or_update", argv=theirs, env=env, cwd=folder),
    )


def _requests_of(azure: FakeAzure, command: Command) -> int:
    """How many it sends; without logins, and prices and quotas, which the peer never asks."""
    before = len(azure.requests())
    time_once(command)
    sent = azure.requests()[before:]
    left_out = ("login.", "prices.")
    return sum(
        not (each.host.startswith(left_out) or each.path.endswith("/usages")) for each in sent
    )


def _plan_commands(
    project: Path, folder: Path, environment: Mapping[str, object], python: Path
) -> tuple[Command, list[Command]]:
    """Of a stack that holds nothing but its output."""
    clone = folder / "clone"
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / "Pulumi.yaml").write_text("name: trainyard\nruntime: python\n")
    tools = json.loads((project / ".trainyard/tools.json").read_text())
    wrapper = write_wrapper(
        Project(root=clone, cache=clone / "cache"), Path(tools["pulumi"]).parent
    )
    env = {
        "PULUMI_BACKEND_URL": f"file://{folder / 'backend'}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        "XDG_STATE_HOME": str(folder / "state"),
    }
    (folder / "backend").mkdir()
    outputs = {"environment": {**environment, "images": {"python": IMAGE}}}
    urn = "urn:pulumi:dev::trainyard::pulumi:pulumi:Stack::trainyard-dev"
    stack = {"urn": urn, "custom": False, "type": "pulumi:pulumi:Stack", "outputs": outputs}
    deployment = {"manifest": {"time": "2026-01-01T00:00:00Z"}, "resources": [stack]}
    for words, given in (
        (("stack", "init", "dev"), None),
        (("stack", "import", "-s", "dev"), json.dumps({"version": 3, "deployment": deployment})),
    ):
        subprocess.run(
            [str(wrapper), *words, "--non-interactive"],
            cwd=clone,
            env={**os.environ, **env},
            input=given,
            text=True,
            check=True,
            capture_output=True,
        )
    words = ["plan", str(folder / "code" / "job.yaml"), "-s", "dev"]
    output = [str(wrapper), "stack", "output", "--json", "-s", "dev"]
    return (
        Command(
            name="launch plan", argv=[str(launch_program(project)), *words], env=env, cwd=clone
        ),
        [
            Command(name="pulumi stack output", argv=output, env=env, cwd=clone),
            Command(name="import", argv=[str(python), "-c", "import azure.ai.ml"], cwd=clone),
        ],
    )
