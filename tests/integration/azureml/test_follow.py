"""`launch` follows runs on the stand-in Azure: logs, ends, retries, results, whatever goes wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure, JobTrouble, broken, firewall, throttled

# Twelve lines a rank, over a third of a second; rank 1 ends with the code it is given. At step 5 the
# ranks wait for the gate, where there is one: what is to happen then happens, however busy all are.
PROGRAM = """
import os, pathlib, sys, time
rank, code, gate = int(os.environ["RANK"]), int(sys.argv[1]), pathlib.Path(sys.argv[2])
for step in range(12):
    print(f"step {step} of {rank}", flush=True)
    time.sleep(0.03)
    while step == 5 and not gate.exists():
        time.sleep(0.02)
pathlib.Path("outputs").mkdir(exist_ok=True)
if rank == 0:
    pathlib.Path("outputs/model.bin").write_bytes(b"m" * 1000)
sys.exit(code if rank == 1 else 0)
"""
STEPS = [f"[{rank}] step {step} of {rank}" for rank in (0, 1) for step in range(12)]


@pytest.fixture
def launch(azure: FakeAzure, tmp_path: Path) -> Iterator[AzureLaunch]:
    yield AzureLaunch(azure, tmp_path)
    azure.records.is_workspace_deleted = False


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Closed."""
    return tmp_path / "gate"


def write_job(
    launch: AzureLaunch, *, code: int = 0, retries: int = 0, gate: Path | None = None
) -> Path:
    command = ["python", "train.py", str(code), str(gate or launch.folder)]
    return launch.write_job(
        PROGRAM,
        script=None,
        command=command,
        code=".",
        launcher="torch",
        nodes=2,
        retry={"max": retries},
    )


def jobs_of(launch: AzureLaunch, run: str) -> set[str]:
    return {name for name in launch.azure.records.jobs if name.startswith(run)}


def steps(text: str) -> list[str]:
    return sorted(re.findall(r"\[\d\] step \d+ of \d", text), key=STEPS.index)


def test_a_run_is_seen_through_and_comes_home(launch: AzureLaunch) -> None:
    # None of these may be noticed.
    launch.azure.script(throttled(path="*/details", retry_after_s=0), broken(path="*/details"))
    typed = launch.type("run", write_job(launch), "-y")
    assert typed.code == 0, typed.err
    run, *_ = typed.out.split()
    assert steps(typed.out) == STEPS
    assert f"{run} completed after" in typed.err
    home = launch.folder / run
    assert (home / "outputs" / "model.bin").read_bytes() == b"m" * 1000
    log = (home / "logs" / "rank-00001.log").read_text()
    assert log.splitlines()[-1].endswith("Z step 11 of 1")
    shown = json.loads(launch.type("show", run, "--json").out)
    assert (shown["state"], shown["exit_code"]) == ("completed", 0)
    assert shown["places"]["studio"].startswith(f"https://ml.azure.com/runs/{run}?wsid=/")
    assert shown["places"]["container"].endswith(f"/runs/{run}/")
    pinned = f"image       registry.azurecr.io/python@sha256:{'a' * 64}\n"
    assert pinned in launch.type("show", run).out
    assert launch.type("logs", run, "--tail", "1", "--rank", "1").out == "[1] step 11 of 1\n"


def test_a_run_ends_with_its_figures_and_is_found_by_its_tag(launch: AzureLaunch) -> None:
    line = {"step": 1, "split": "val", "name": "bleu", "value": 0.5}
    program = f"""
import os
with open(os.environ["TRAINYARD_RUN_DIR"] + "/metrics.jsonl", "w") as file:
    print({json.dumps(line)!r}, file=file)
"""
    job = launch.write_job(
        program,
        script=None,
        command=["python", "train.py"],
        code=".",
        outputs={"model": {}},
        tags={"team": "vision"},
        experiment="sweep",
    )
    typed = launch.type("run", job, "-y", "--no-fetch")
    assert typed.code == 0, typed.err
    run, *_ = typed.out.split()
    shown = json.loads(launch.type("show", run, "--json").out)
    place = f"{shown['places']['outputs']}model"
    told = [["val bleu", "0.5000"], ["model", place]]
    for err in (typed.err, launch.type("wait", run).err):
        said = [line.split("  ", 1) for line in err.splitlines()]
        pairs = [[key, value.strip()] for key, value in (each for each in said if len(each) == 2)]
        assert [each for each in pairs if each in told] == told

    def listed(*words: str) -> list[str]:
        return [each["id"] for each in json.loads(launch.type("ls", "--json", *words).out)]

    chosen = ("--state", "completed", "--since", "1h", "--experiment", "sweep")
    assert listed("--tag", "team=vision", *chosen) == [run]
    assert listed("--tag", "team=audio") == listed("--state", "failed", "--tag", "team") == []
    (report,) = json.loads(launch.type("report", run, "--json").out)["runs"]
    assert (report["figures"]["main"]["last"], report["tags"]) == (0.5, {"team": "vision"})


def test_a_failure_names_rank_and_exit_code(launch: AzureLaunch) -> None:
    typed = launch.type("run", write_job(launch, code=7), "-y", "--no-fetch")
    run, *_ = typed.out.split()
    assert typed.code == 100
    assert re.search(rf"{run} failed after .*: rank 1 on \S+: exit code 7: step 11 of 1", typed.err)
    assert launch.type("wait", run, "--passthrough").code == 7
    listed = json.loads(launch.type("ls", "--json", "--limit", "1").out)
    assert [(each["id"], each["state"], each["exit_code"]) for each in listed] == [
        (run, "failed", 7)
    ]


def test_what_azure_took_back_goes_on_as_the_same_run(launch: AzureLaunch, gate: Path) -> None:
    launch.azure.script(JobTrouble(what="preempted", when="step 5 of 0", then=gate.touch))
    typed = launch.type("run", write_job(launch, retries=2, gate=gate), "-y", "--no-fetch")
    run, *_ = typed.out.split()
    assert typed.code == 0, typed.err
    assert "attempt 2 of at most 3 is submitted" in typed.err
    assert jobs_of(launch, run) == {run, f"{run}_2"}
    # Of the first attempt all that was there before its end, and all of the second.
    of_rank_0 = [line for line in steps(typed.out) if line.startswith("[0]")]
    assert of_rank_0 == sorted([*STEPS[:6], *STEPS[:12]], key=STEPS.index)
    assert set(steps(typed.out)) == set(STEPS)
    shown = json.loads(launch.type("show", run, "--json").out)
    assert [each["name"] for each in shown["attempts"]] == [f"{run}.1", f"{run}.2"]


def test_a_wait_resumes_but_no_more_often_than_allowed_as_the_stand_in_says(
    launch: AzureLaunch, gate: Path
) -> None:
    """Nobody has quoted Azure's words for a lost node."""
    launch.azure.script(JobTrouble(what="node failure", when="step 5 of 0", times=2))
    job = write_job(launch, retries=1, gate=gate)
    run = launch.type("run", job, "-y", "-d").out.split()[0]
    waited = launch.type("wait", run)
    assert waited.code == 100
    assert "attempt 2 of at most 2 is submitted" in waited.err
    assert re.search(rf"{run} failed after .*: a node failed: JobNodeLost: Node", waited.err)
    assert jobs_of(launch, run) == {run, f"{run}_2"}
    assert launch.type("wait", run).code == 100


def test_what_was_cancelled_is_not_started_again_by_anybody(
    launch: AzureLaunch, gate: Path, tmp_path: Path
) -> None:
    launch.azure.script(JobTrouble(what="preempted", when="step 5 of 0"))
    job = write_job(launch, retries=2, gate=gate)
    run = launch.type("run", job, "-y", "-d").out.split()[0]
    assert launch.azure.wait(run).state == "Failed"
    read = launch.type("logs", "-f", run)
    assert (read.code, set(STEPS[:6]) - set(steps(read.out))) == (100, set())
    assert f"{run} preempted after" in read.err
    cancelled = launch.type("cancel", run)
    assert (cancelled.code, cancelled.err) == (0, f"{run} cancelled\n")
    (tmp_path / "colleague").mkdir()
    colleague = AzureLaunch(launch.azure, tmp_path / "colleague")
    listed = json.loads(colleague.type("ls", "--json", "--limit", "1").out)
    assert [(each["id"], each["state"]) for each in listed] == [(run, "cancelled")]
    for each in (colleague, launch):
        waited = each.type("wait", run)
        assert waited.code == 103
        assert f"{run} cancelled after" in waited.err
    again = launch.type("cancel", run)
    assert (again.code, again.err) == (0, f"{run} was over already (cancelled)\n")
    assert jobs_of(launch, run) == {run}


def test_a_job_is_ended_whatever_of_its_run_is_out_of_reach(
    launch: AzureLaunch, tmp_path: Path
) -> None:
    place = launch.azure.place
    for out_of_reach in ("record", "store"):
        launch.azure.script(JobTrouble(what="queued for ever"))
        run = launch.type("run", write_job(launch), "-y", "-d").out.split()[0]
        (tmp_path / out_of_reach).mkdir()
        colleague = AzureLaunch(launch.azure, tmp_path / out_of_reach)
        if out_of_reach == "record":
            launch.azure.blobs.container(place.data_account, "runs").delete_blob(f"{run}/run.json")
        else:
            launch.azure.script(firewall(account=place.data_account))
        ended = colleague.type("cancel", run)
        assert f"{run} was told to end; whether it did is unknown" in ended.err
        assert (ended.code, launch.azure.wait(run).state) == (101, "Canceled")
        launch.azure.troubles.clear()


@pytest.mark.parametrize("what", ["log rotated", "log truncated", "preempted, restarted"])
def test_logs_that_azure_begins_anew_are_followed_as_the_stand_in_says(
    launch: AzureLaunch, gate: Path, what: str
) -> None:
    launch.azure.script(JobTrouble(what=what, when="step 5 of 0", then=gate.touch))
    typed = launch.type("run", write_job(launch, retries=2, gate=gate), "-y", "--no-fetch")
    run, *_ = typed.out.split()
    assert typed.code == 0, typed.err
    # It is begun again under the same name: ours must not be beside it.
    assert jobs_of(launch, run) == {run}
    seen = steps(typed.out)
    if what == "log rotated":
        assert seen == STEPS
    else:  # what was cut off before anybody could read it is gone
        assert set(seen) >= {*STEPS[6:12], *STEPS[18:]}


def test_a_run_that_cannot_begin_says_why(launch: AzureLaunch) -> None:
    launch.azure.script(JobTrouble(what="image pull"))
    typed = launch.type("run", write_job(launch), "-y", "--no-fetch")
    run, *_ = typed.out.split()
    assert typed.code == 100
    assert f"{run} failed: the image cannot be pulled: FailedPullingImage" in typed.err
    assert f"launch logs {run} --preparation" in typed.err
    assert "manifest unknown" in launch.type("logs", run, "--preparation").out


def test_a_run_that_waits_says_for_what_goes_on_after_ctrl_c_and_can_be_cancelled(
    launch: AzureLaunch,
) -> None:
    launch.azure.script(JobTrouble(what="quota"))
    attached = launch.begin("run", write_job(launch), "-y")
    quota = "the quota is used up: Operation results in exceeding quota"
    attached.wait_for(lambda said: quota in said)
    attached.interrupt()
    left = attached.end()
    run = left.out.strip()
    assert left.code == 130
    assert f"detached; {run} goes on (queued)\n" in left.err
    assert launch.type("wait", run, "--timeout", "0").code == 101
    assert launch.type("cancel", run).code == 0
    assert launch.type("wait", run).code == 103


def test_a_deleted_workspace_ends_what_is_followed(launch: AzureLaunch) -> None:
    run = launch.type("run", write_job(launch), "-y", "-d").out.split()[0]
    launch.azure.delete_workspace()
    followed = launch.type("logs", "-f", run)
    assert followed.code == 100
    assert f"{run} lost: the workspace `mlw-trainyard-dev` was deleted" in followed.err


def test_ten_thousand_runs_are_listed_by_the_page(launch: AzureLaunch) -> None:
    azure = launch.azure
    azure.records.add_past_jobs(10_000, compute="cpu-1a2b3c")
    for number in range(10_000):
        job = azure.records.jobs.pop(f"past-{number:05}")
        minutes, seconds = divmod(number, 60)
        job.name = f"20270101-{minutes // 60:02}{minutes % 60:02}{seconds:02}-0000"
        job.tags["trainyard"] = "1"
        azure.records.jobs[job.name] = job

    def listed() -> tuple[list[str], int, int]:
        seen = len(azure.requests())
        runs = json.loads(launch.type("ls", "--json").out)
        asked = [each.path for each in azure.requests()[seen:]]
        pages = sum(path.endswith("/jobs") for path in asked)
        return [each["id"] for each in runs], pages, sum("/details" in path for path in asked)

    newest = [f"20270101-0246{second:02}-0000" for second in range(39, 19, -1)]
    assert listed() == (newest, 1, 21)  # one more tells whether there are more
    # What is over is known by now.
    assert listed() == (newest, 1, 0)
