"""`launch run` against the stand-in Azure: what is sent, what goes wrong, what a crash leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.engines.azure_ml.intents import INTENT
from tests.busy import wait_until
from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import (
    FakeAzure,
    JobTrouble,
    Request,
    RequestTrouble,
    broken,
    conflict,
    firewall,
    forbidden,
    lost_reply,
    lost_request,
    throttled,
)
from tests.fakes.forked_launch import CRASHES, Crash

DETACHED = ("-d", "-y")
PUT_JOB = "*/jobs/*"


@pytest.fixture
def launch(azure: FakeAzure, tmp_path: Path) -> Iterator[AzureLaunch]:
    yield AzureLaunch(azure, tmp_path)
    azure.records.is_workspace_deleted = False


def jobs_of(azure: FakeAzure) -> set[str]:
    return set(azure.records.jobs)


def shortened(requests: list[Request]) -> list[str]:
    """Requests of a submit: method and end of path.

    Left out are logins, prices, quotas, nodes, and what others share, which comes when it comes.
    """
    found: list[str] = []
    for each in requests:
        if each.host.startswith(("login.", "prices.", "127.")) or each.path.endswith("/usages"):
            continue
        if (each.method, each.path) == ("GET", "/runs"):
            continue
        _, is_workspace, inside = each.path.rpartition("/workspaces/")
        path = inside.partition("/")[2] if is_workspace else each.path
        path = re.sub(r"trainyard-[0-9a-f]{40}", "CODE", path)
        path = re.sub(r"(trainyard-python/versions)/\w+", r"\1/VERSION", path)
        path = re.sub(r"\d{8}-\d{6}-\w{4}", "RUN", path)
        path = re.sub(r"^/[0-9a-f]{8}-[0-9a-f-]{36}/", "/CONTAINER/", path)
        found.append(f"{each.method} {path}")
    # Files go up side by side.
    files = sorted(each for each in found if "/CONTAINER/" in each)
    return [files.pop(0) if "/CONTAINER/" in each else each for each in found]


def test_a_submit_sends_little_and_the_next_one_less(launch: AzureLaunch):
    job = launch.write_job()
    seen = len(launch.azure.requests())
    typed = launch.type("run", job, *DETACHED)
    assert typed.code == 0, typed.err
    run = typed.out.strip()
    sent = shortened(launch.azure.requests()[seen:])
    assert sent[: sent.index("PUT jobs/RUN") + 1] == [
        "GET codes/CODE/versions/1",
        "POST codes/CODE/versions/1/startPendingUpload",
        "PUT /CONTAINER/.trainyard/files.json",
        "PUT /CONTAINER/.trainyard/rank.pyz",
        "PUT /CONTAINER/job.yaml",
        "PUT /CONTAINER/train.py",
        "PUT codes/CODE/versions/1",
        "PUT environments/trainyard-python/versions/VERSION",
        "PUT /runs/RUN/run.json",
        "PUT jobs/RUN",
    ]
    assert launch.azure.wait(run).state == "Completed"
    seen = len(launch.azure.requests())
    again = launch.type("run", job, *DETACHED).out.strip()
    sent = shortened(launch.azure.requests()[seen:])
    assert sent[: sent.index("PUT jobs/RUN") + 1] == ["PUT /runs/RUN/run.json", "PUT jobs/RUN"]
    assert again != run
    assert launch.azure.wait(again).state == "Completed"


def test_what_is_sent_is_what_the_plan_says(launch: AzureLaunch):
    job = launch.write_job()
    planned = json.loads(launch.type("plan", job, "--json").out)["request"]
    assert [each["name"] for each in planned["code"]["files"]] == [
        *("job.yaml", "train.py", ".trainyard/rank.pyz", ".trainyard/files.json")
    ]
    assert planned["node_job"]["command"] == ["python", "train.py"]
    run = launch.type("run", job, *DETACHED).out.strip()
    (request,) = launch.azure.requests(method="PUT", path=f"/jobs/{run}")
    text = json.dumps(planned["job"]["body"])
    text = text.replace("<RUN>", run).replace("<CODE>", planned["code"]["name"])
    assert request.json == json.loads(text)
    (run_dir,) = launch.run_dirs()
    recorded = json.loads((run_dir / "run.json").read_text())
    assert recorded["plan"]["request"]["job"]["body"] == request.json
    assert (run_dir / "code" / "train.py").read_text() == "print('hello')"


@pytest.mark.parametrize(
    "trouble",
    [
        throttled(retry_after_s=1, path=PUT_JOB, method="PUT"),
        broken(path=PUT_JOB, method="PUT"),
        conflict(path=PUT_JOB),
        lost_reply(path=PUT_JOB),
        lost_request(path=PUT_JOB),
        lost_reply(path="*/startpendingupload", method="POST"),
        broken(path="*/environments/*", method="PUT"),
    ],
    ids=[
        *("throttled", "broken", "conflict", "reply-lost", "request-lost", "upload-reply-lost"),
        "image-broken",
    ],
)
def test_what_passes_is_tried_again_and_starts_one_run_as_the_stand_in_says(
    launch: AzureLaunch, trouble: RequestTrouble
):
    before = jobs_of(launch.azure)
    launch.azure.script(trouble, JobTrouble(what="queued for ever"))
    typed = launch.type("run", launch.write_job(), *DETACHED)
    assert typed.code == 0, typed.err
    assert jobs_of(launch.azure) - before == {typed.out.strip()}


def test_a_refused_run_leaves_nothing_and_says_which_role_it_needs(launch: AzureLaunch):
    before = jobs_of(launch.azure)
    launch.azure.script(forbidden(path=PUT_JOB, times=1))
    typed = launch.type("run", launch.write_job(), *DETACHED)
    assert (typed.code, typed.out) == (1, "")
    assert (
        "our roles do not allow us to do `Microsoft.MachineLearningServices/workspaces/jobs/write`"
        in (typed.err)
    )
    assert '--role "AzureML Data Scientist"' in typed.err
    assert launch.run_dirs() == []
    assert jobs_of(launch.azure) == before


def test_a_firewall_is_named_and_nothing_started(launch: AzureLaunch):
    before = jobs_of(launch.azure)
    launch.azure.script(firewall(account=launch.azure.place.data_account))
    typed = launch.type("run", launch.write_job(), *DETACHED)
    assert typed.code == 1
    assert "blocks this machine's address" in typed.err
    assert "`allowed_ips`" in typed.err
    assert launch.run_dirs() == []
    assert jobs_of(launch.azure) == before


def test_a_workspace_that_is_gone_is_named(launch: AzureLaunch):
    launch.azure.delete_workspace()
    typed = launch.type("run", launch.write_job(), *DETACHED)
    assert typed.code == 1
    assert "there is no workspace `mlw-trainyard-dev` any more" in typed.err
    assert "pulumi up -s dev" in typed.err


def test_who_is_not_logged_in_is_told_how(launch: AzureLaunch):
    launch.environ["AZURE_CLIENT_SECRET"] = "wrong"
    typed = launch.type("run", launch.write_job(), *DETACHED)
    assert typed.code == 1
    assert "error: not logged in to Azure: " in typed.err
    assert "AADSTS7000215" in typed.err
    assert typed.err.endswith("hint: az login, then type the same again\n")


def test_what_was_known_and_is_gone_is_sent_again(launch: AzureLaunch):
    job = launch.write_job("print('gone')")
    assert launch.type("run", job, *DETACHED).code == 0
    launch.azure.records.codes.clear()
    launch.azure.records.environments.clear()
    typed = launch.type("run", job, *DETACHED)
    assert typed.code == 0, typed.err
    assert "sending the code: 4 files" in typed.err
    assert launch.azure.wait(typed.out.strip()).state == "Completed"


def test_a_dev_workspace_builds_an_image_that_its_stack_does_not_pin(
    azure: FakeAzure, tmp_path: Path
):
    launch = AzureLaunch(azure, tmp_path)
    job = launch.write_job(image="tensorflow")
    azure.script(JobTrouble(what="queued for ever", times=2))
    first = launch.type("run", job, *DETACHED)
    assert first.code == 0, first.err
    assert "sending images/tensorflow: " in first.err
    (put,) = azure.requests(method="PUT", path="/environments/trainyard-tensorflow/versions/cpu-")
    build = put.json["properties"]["build"]
    assert build["dockerfilePath"] == "images/tensorflow/Dockerfile"
    account, _, container = build["contextUri"].removeprefix("https://").partition("/")
    blobs = azure.blobs.container(account.partition(".")[0], container)
    names = {each.name for each in blobs.list_blobs()}
    assert {"images/tensorflow/requirements.txt", "trainer/common/world.py"} <= names
    dockerfile = blobs.download_blob(build["dockerfilePath"]).readall()
    assert b"--mount" not in dockerfile
    seen = len(azure.requests())
    again = launch.type("run", job, *DETACHED)
    assert again.code == 0, again.err
    sent = shortened(azure.requests()[seen:])
    assert sent[: sent.index("PUT jobs/RUN") + 1] == ["PUT /runs/RUN/run.json", "PUT jobs/RUN"]


def test_azure_silent_about_a_job_is_said_and_the_same_again_goes_on(launch: AzureLaunch):
    """Whether it has the job nobody can tell; the next try finds out by the name."""
    before = jobs_of(launch.azure)
    job = launch.write_job()
    launch.azure.script(
        RequestTrouble(method="PUT", path=PUT_JOB, drop="after", times=1),
        RequestTrouble(
            path=PUT_JOB,
            status=503,
            code="Down",
            message="Down.",
            headers={"Retry-After": "0.1"},
            times=None,
        ),
    )
    typed = launch.type("run", job, *DETACHED)
    assert typed.code == 1
    assert re.search(r"it is unknown whether Azure ML has \d{8}-\d{6}-\w{4}", typed.err)
    launch.azure.troubles.clear()
    again = launch.type("run", job, *DETACHED)
    assert again.code == 0, again.err
    assert f"going on with {again.out.strip()}" in again.err
    assert jobs_of(launch.azure) - before == {again.out.strip()}
    (run_dir,) = launch.run_dirs()
    assert run_dir.name == again.out.strip()


def test_ctrl_c_while_the_job_is_sent_says_that_it_may_be_on(launch: AzureLaunch):
    before = jobs_of(launch.azure)
    job = launch.write_job()
    seen = len(launch.azure.requests(method="PUT", path="/jobs/"))
    launch.azure.script(
        RequestTrouble(method="PUT", path=PUT_JOB, delay_s=10),
        JobTrouble(what="queued for ever"),
    )
    typed = launch.begin("run", job, *DETACHED)
    typed.wait_for(lambda _: len(launch.azure.requests(method="PUT", path="/jobs/")) > seen)
    typed.interrupt()
    ended = typed.end()
    (run_dir,) = launch.run_dirs()
    run = run_dir.name
    assert (ended.code, ended.out) == (130, "")
    assert (
        f"interrupted: it is unknown whether Azure ML has {run}; type the same again " in ended.err
    )
    assert f"launch cancel {run} ends it" in ended.err
    again = launch.type("run", job, *DETACHED)
    assert (again.code, again.out) == (0, f"{run}\n")
    assert jobs_of(launch.azure) - before == {run}


def test_ctrl_c_before_the_job_is_sent_leaves_no_record(launch: AzureLaunch):
    runs = launch.azure.blobs.open(launch.azure.place.data_account, "runs")
    before = [each.name for each in runs.list_blobs()]
    seen = len(launch.azure.requests(method="PUT", path="/runs/"))
    record = {"method": "PUT", "path": "/runs/*/run.json"}
    launch.azure.script(
        RequestTrouble(**record, drop="after"),
        RequestTrouble(**record, status=503, code="ServerBusy", times=None),
    )
    typed = launch.begin("run", launch.write_job(), *DETACHED)
    typed.wait_for(lambda _: len(launch.azure.requests(method="PUT", path="/runs/")) > seen + 1)
    typed.interrupt()
    ended = typed.end()
    assert (ended.code, ended.out, launch.run_dirs()) == (130, "", [])
    assert [each.name for each in runs.list_blobs()] == before


def crash_and_go_on(launch: AzureLaunch, crash: Crash) -> None:
    """Kill a launch at a point, type the same again: one run, known to both sides."""
    before = jobs_of(launch.azure)
    job = launch.write_job()
    launch.azure.script(JobTrouble(what="queued for ever"))
    if crash == "while the job is sent":
        slow = RequestTrouble(method="PUT", path=PUT_JOB, delay_s=0.5)
        launch.azure.script(slow)
    killed = launch.type("run", job, *DETACHED, crash=crash)
    assert (killed.code, killed.out) == (-9, "")
    again = launch.type("run", job, *DETACHED)
    assert again.code == 0, again.err
    run = again.out.strip()
    assert jobs_of(launch.azure) - before == {run}
    listed = json.loads(launch.type("ls", "--json", "--all").out)
    mine = [each["id"] for each in listed if each["id"] not in before]
    assert mine == [run]
    assert [each for each in launch.run_dirs() if (each / INTENT).exists()] == []


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_starts_no_run_twice_and_forgets_none_as_the_stand_in_says(
    launch: AzureLaunch, crash: Crash
):
    crash_and_go_on(launch, crash)


@pytest.mark.faults
@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("turn", range(20))
def test_no_crash_of_many_starts_a_run_twice_as_the_stand_in_says(
    launch: AzureLaunch, crash: Crash, turn: int
):
    crash_and_go_on(launch, crash)


@pytest.mark.parametrize(
    ("crash", "times"),
    [("after the reply", None), ("after the reply", 1), ("after the record", 1)],
    ids=["neither sent nor seen", "seen", "not there, so far as is seen"],
)
def test_a_refusal_of_what_may_be_on_withdraws_nothing(
    launch: AzureLaunch, crash: Crash, times: int | None
):
    before = jobs_of(launch.azure)
    job = launch.write_job()
    launch.azure.script(JobTrouble(what="queued for ever"))
    launch.type("run", job, *DETACHED, crash=crash)
    (run_dir,) = launch.run_dirs()
    refused = forbidden(path=PUT_JOB, times=times)
    launch.azure.script(refused)
    typed = launch.type("run", job, *DETACHED)
    if (crash, times) != ("after the reply", 1):
        assert typed.code == 1
        assert f"it is unknown whether Azure ML has {run_dir.name}: " in typed.err
        assert '--role "AzureML Data Scientist"' in typed.err
        launch.azure.troubles.clear()
        typed = launch.type("run", job, *DETACHED)
    assert (typed.code, typed.out) == (0, f"{run_dir.name}\n")
    assert jobs_of(launch.azure) - before == {run_dir.name}
    assert launch.type("cancel", run_dir.name).code == 0


def test_a_price_that_changes_after_a_crash_starts_no_other_run_as_the_stand_in_says(
    launch: AzureLaunch,
):
    before = jobs_of(launch.azure)
    job = launch.write_job(limits={"cost": 5})
    launch.azure.script(JobTrouble(what="queued for ever"))
    environment = json.loads(launch.env_file.read_text())
    crashes: tuple[Crash, ...] = ("after the reply", "")
    for price, crash in zip((0.272, 0.270), crashes, strict=True):
        for cluster in environment["clusters"].values():
            cluster["price_per_node_hour"] = price
        launch.env_file.write_text(json.dumps(environment))
        again = launch.type("run", job, *DETACHED, crash=crash)
    assert again.code == 0, again.err
    assert jobs_of(launch.azure) - before == {again.out.strip()}


def test_a_run_that_azure_never_got_is_ended_and_the_same_again_is_another(launch: AzureLaunch):
    before = jobs_of(launch.azure)
    job = launch.write_job()
    launch.type("run", job, *DETACHED, crash="after the record")
    (run_dir,) = launch.run_dirs()
    ended = launch.type("cancel", run_dir.name)
    reason = "Azure ML never received it: its submission was interrupted or refused"
    assert (ended.code, ended.err) == (0, f"{run_dir.name} lost: {reason}\n")
    again = launch.type("run", job, *DETACHED)
    assert again.code == 0, again.err
    assert again.out.strip() != run_dir.name
    assert jobs_of(launch.azure) - before == {again.out.strip()}


@pytest.mark.parametrize("crash", ["while the job is sent", "after the reply"])
def test_a_job_whose_launch_died_is_listed_though_nobody_types_it_again(
    launch: AzureLaunch, crash: Crash
):
    before = jobs_of(launch.azure)
    if crash == "while the job is sent":
        slow = RequestTrouble(method="PUT", path=PUT_JOB, delay_s=0.5)
        launch.azure.script(slow)
    launch.type("run", launch.write_job(), *DETACHED, crash=crash)
    (run_dir,) = launch.run_dirs()
    listed = json.loads(launch.type("show", run_dir.name, "--json").out)
    assert listed["id"] == run_dir.name
    wait_until(lambda: jobs_of(launch.azure) - before, 200)
    assert jobs_of(launch.azure) - before == {run_dir.name}
