"""What rank/main.py does on the nodes of Azure ML: who the ranks are, what they find, what comes home."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.spec import DatasetVersion, InputSpec, RankError
from jobs.datasets.paths import DatasetFile
from jobs.runs.failure import RankReport, root_cause
from tests.fakes.azureml import FakeAzure, RequestTrouble, firewall
from tests.fakes.azureml.ranks import Ranks
from tests.fakes.packed_dataset import write_packed

ROOT = Path(__file__).parents[3]
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z .*")

# Says who it is, and writes what a program may write.
PROGRAM = """
import json, os
from pathlib import Path
world = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR")
print(json.dumps([os.environ[name] for name in world]))
print("the key is", os.environ["KEY"], "and the node's", os.environ["MSI_SECRET"])
rank, run = os.environ["RANK"], Path(os.environ["TRAINYARD_RUN_DIR"])
Path("outputs/same.txt").write_text(rank)
Path(os.environ["TRAINYARD_OUTPUT_MODEL"], rank).write_text("model")
if rank == "0":
    checkpoint = Path(os.environ["TRAINYARD_CHECKPOINT_DIR"], "step-000000001-aaaaaaaa")
    checkpoint.mkdir()
    (checkpoint / "manifest.json").write_text("{}")
    (run / "summary.json").write_text('{"accuracy": 1}')
    (run / "progress.json").write_text('{"done": 3, "total": 3}')
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write("{}\\n")
"""


@pytest.fixture
def ranks(azure: FakeAzure, tmp_path: Path) -> Ranks:
    return Ranks(azure, tmp_path)


@pytest.mark.parametrize(("launcher", "image"), [("mpi", "pytorch:1"), ("torch", "python:3")])
def test_ranks_on_two_nodes_find_the_contract_and_their_results_come_home(
    ranks: Ranks, launcher: str, image: str
) -> None:
    ranks.azure.vault.secrets["the-key"] = "hunter2-and-more"
    run, job = ranks.finish(
        PROGRAM,
        launcher=launcher,
        image=image,
        nodes=2,
        setup=("echo preparing",),
        outputs=("model",),
        secrets={"KEY": "the-key"},
    )
    assert job.state == "Completed", job.error
    for rank in (0, 1):
        name = f"std_log_process_{rank}.txt"
        stamped = ranks.client.log(run, f"user_logs/{name}").splitlines()
        assert all(map(STAMPED.fullmatch, stamped)), stamped
        # Told where node 0 had sent its own before.
        stays = "warning: outputs/same.txt stays on node 1: another node has one, too"
        assert [line for line in ranks.log(run, name) if line != stays] == [
            "preparing",
            json.dumps([str(rank), "2", "0", "1", str(rank), "127.0.0.1"]),
            "the key is *** and the node's ***",
        ]
    assert ranks.names(f"{run}/") == [
        f"{run}/alive/1",
        f"{run}/metrics.jsonl",
        f"{run}/outputs/model/0",
        f"{run}/outputs/model/1",
        f"{run}/outputs/same.txt",
        f"{run}/progress-history.jsonl",
        f"{run}/progress.json",
        f"{run}/ranks/1/00000.json",
        f"{run}/summary.json",
    ]
    assert ranks.blob(f"{run}/outputs/same.txt") == b"0"
    assert ranks.blob(f"{run}/summary.json") == b'{"accuracy": 1}'
    assert ranks.blob(f"{run}/progress.json") == b'{"done": 3, "total": 3}'
    places = map(json.loads, ranks.blob(f"{run}/progress-history.jsonl").splitlines())
    assert [each["done"] for each in places] == [None, 3]
    assert ranks.record(run)["exit_code"] == 0
    assert ranks.names(f"checkpoints/{run}/") == [
        f"checkpoints/{run}/step-000000001-aaaaaaaa/manifest.json"
    ]
    bodies = b"".join(each.body for each in ranks.azure.requests(method="PUT", path=f"/jobs/{run}"))
    assert b"hunter2" not in bodies
    # Only what the program wrote into its own outputs; the job's own folder stays as it was.
    assert not [name for name in ranks.artifacts(run) if "/outputs/" in name]


def test_a_job_that_acts_as_its_sender_reads_what_the_cluster_may_not(ranks: Ranks) -> None:
    """Its sender is this client."""
    ranks.azure.vault.secrets["the-key"] = "hunter2-and-more"
    ranks.azure.vault.readers = {ranks.azure.place.client_id}
    program = "import os; print(len(os.environ['KEY']), 'MSI_SECRET' in os.environ)"
    made = {"secrets": {"KEY": "the-key"}, "outputs": ("model",)}
    run, job = ranks.finish(program, identity="user", **made)
    assert job.state == "Completed", job.error
    assert ranks.log(run, "std_log.txt") == ["16 False"]
    assert ranks.record(run)["exit_code"] == 0
    run, job = ranks.finish(program, **made)
    assert job.state == "Failed"


def ends_in_setup(ranks: Ranks, run: str) -> list[tuple[str, int]]:
    """How the ranks that reported ended; either may have set up, and the other is ended with it."""
    there = [json.loads(ranks.blob(name)) for name in ranks.names(f"{run}/ranks/1/")]
    reports = [msgspec.convert(each, RankReport) for each in there]
    return [(report.stage, report.exit_code) for report in reports]


def test_setup_runs_once_on_a_node_of_two_ranks_and_its_failure_ends_both(ranks: Ranks) -> None:
    run, job = ranks.finish(
        "print('never')", launcher="torch", processes_per_node=2, setup=("echo once; exit 3",)
    )
    assert job.state == "Failed"
    lines = [line for rank in (0, 1) for line in ranks.log(run, f"std_log_process_{rank}.txt")]
    assert lines == ["once"]
    assert set(ends_in_setup(ranks, run)) == {("setup", 3)}


def test_requirements_that_cannot_be_installed_end_the_ranks_of_a_node_with_pips_words(
    ranks: Ranks,
) -> None:
    run, job = ranks.finish(
        # The only file of this code.
        "--no-index\nno-such-package\n",
        launcher="torch",
        processes_per_node=2,
        requirements="program.py",
    )
    assert job.state == "Failed"
    lines = [line for rank in (0, 1) for line in ranks.log(run, f"std_log_process_{rank}.txt")]
    assert lines.count("ERROR: No matching distribution found for no-such-package") == 1
    assert set(ends_in_setup(ranks, run)) == {("setup", 1)}


def test_code_has_the_links_modes_and_folders_that_a_store_of_blobs_forgets(ranks: Ranks) -> None:
    program = """
import os, subprocess
print(subprocess.run(["./program.py"], capture_output=True, text=True).returncode)
print(os.readlink("folder/link"), os.path.isfile("folder/link"), os.listdir("empty"))
print(sorted(os.listdir()))
"""
    shape = {
        "links": {"folder/link": "../program.py"},
        "executable": ["program.py"],
        "folders": ["empty"],
    }
    run, job = ranks.finish(f"#!/bin/true\n{program}", shape=shape)
    assert job.state == "Completed", job.error
    assert ranks.log(run, "std_log.txt") == [
        "0",
        "../program.py True []",
        "['empty', 'folder', 'outputs', 'program.py']",
    ]


SERVES = """
import json, os, signal, time
config = json.loads(os.environ["TF_CONFIG"])
print(config["task"]["type"], config["task"].get("index"), os.environ["RANK"], flush=True)
print(os.environ["WORLD_SIZE"], os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
if config["task"]["type"] == "ps" or ("chief" in config["cluster"] and os.environ["RANK"] != "0"):
    time.sleep(600)
"""


@pytest.mark.parametrize("chief", [False, True])
def test_tensorflows_workers_are_ranks_and_servers_come_after_them(
    ranks: Ranks, chief: bool
) -> None:
    run, job = ranks.finish(
        SERVES,
        launcher="tensorflow",
        processes_per_node=2,
        parameter_servers=1,
        chief=chief,
    )
    assert job.state == "Completed", job.error
    first, second = ("chief 0 0", "worker 0 1") if chief else ("worker 0 0", "worker 1 1")
    logs = [f"std_log_node_{name}.txt" for name in ("00_worker", "01_worker", "00_ps")]
    assert [ranks.log(run, name)[:2] for name in logs] == [
        [first, "2 None"],
        [second, "2 None"],
        ["ps 0 2", "2 -1"],
    ]


def test_a_rank_that_fails_gives_its_exit_code_and_leaves_its_traceback(ranks: Ranks) -> None:
    program = """
import os, sys, time
if os.environ["RANK"] == "1":
    def fail():
        raise SystemExit(7)
    sys.excepthook = lambda *_: None
    print("Traceback (most recent call last):\\n  there\\nValueError: no", flush=True)
    fail()
time.sleep(600)
"""
    run, job = ranks.finish(program, launcher="mpi", image="pytorch:1", processes_per_node=2)
    assert job.state == "Failed"
    report = msgspec.convert(ranks.record(run, rank=1), RankReport)
    assert root_cause([report], stopped_s=None) == RankError(
        rank=1,
        host=report.host,
        cause="exit code 7",
        message="ValueError: no",
        traceback="Traceback (most recent call last):\n  there\nValueError: no",
        exit_code=7,
    )
    # Of the world's clock: records of other nodes are compared with it.
    assert job.started.timestamp() < report.evidence_s < job.ended.timestamp()


def test_ranks_that_are_told_to_leave_bring_home_what_they_have(ranks: Ranks) -> None:
    program = """
import os, signal, sys, time
from pathlib import Path
def leave(*_):
    Path("outputs/left").write_text("x")
    print("preempted: SIGTERM", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""
    run = ranks.put(program, launcher="torch")
    ranks.wait_for_line(run, "ready")
    ranks.client.ask("POST", f"/jobs/{run}/cancel")
    assert ranks.azure.wait(run).state == "Canceled"
    assert ranks.record(run)["exit_code"] == 75
    assert ranks.blob(f"{run}/outputs/left") == b"x"


def test_an_attempt_goes_on_with_the_metrics_of_the_one_before(ranks: Ranks) -> None:
    program = """
import os
with open(os.environ["TRAINYARD_RUN_DIR"] + "/metrics.jsonl", "a") as metrics:
    metrics.write("one more\\n")
"""
    run, _ = ranks.finish(program)
    ranks.put(program, run=run, attempt=2)
    ranks.azure.wait(f"{run}_2")
    assert ranks.blob(f"{run}/metrics.jsonl") == b"one more\none more\n"
    assert ranks.record(run, attempt=2)["exit_code"] == 0
    path = f"/runs/{run}/metrics.jsonl"
    ranks.azure.script(RequestTrouble(method="GET", path=path, status=403, code="Forbidden"))
    ranks.put(program, run=run, attempt=3)
    ranks.azure.wait(f"{run}_3")
    assert ranks.blob(f"{run}/metrics.jsonl") == b"one more\n" * 3


def test_a_store_that_refuses_fails_no_training_and_is_told_once(ranks: Ranks) -> None:
    ranks.azure.script(firewall(account=ranks.azure.place.data_account))
    run, job = ranks.finish("open('outputs/x', 'w').write('x'); print('trained')")
    assert job.state == "Completed", job.error
    why = "403 AuthorizationFailure"
    mends = "the storage account's network rules must let the cluster's network in"
    assert sorted(ranks.log(run, "std_log.txt")) == [
        "trained",
        "warning: earlier metrics cannot be read: the store cannot deliver "
        f"`{run}/metrics.jsonl`: {why}",
        "warning: not all results reached the store: the rest is lost with this node",
        "warning: results do not reach the store: the store cannot deliver "
        f"`{run}/outputs/x`: {why} ({mends}); training goes on",
        f"warning: the record of this rank's end cannot be stored: {why}",
    ]


SECRETS = {
    "missing": (404, "SecretNotFound", "it has no secret of this name (az keyvault secret set "),
    "no role": (403, "Forbidden", "the cluster's identity may not (403) (name `the-key` under "),
    "firewall": (403, "ForbiddenByFirewall", "its firewall refuses the node (403) (the vault's "),
}


@pytest.mark.parametrize("how", SECRETS)
def test_a_secret_that_is_not_to_be_had_ends_the_rank_and_says_what_mends_it(
    ranks: Ranks, how: str
) -> None:
    status, code, said = SECRETS[how]
    ranks.azure.script(
        RequestTrouble(path="/secrets/*", status=status, code=code, message=code, times=None)
    )
    run, job = ranks.finish("print('never')", secrets={"KEY": "the-key"})
    assert job.state == "Failed"
    (line,) = ranks.log(run, "std_log.txt")
    vault = ranks.azure.place.key_vault
    told = f"error: secret `the-key` cannot be read from the key vault {vault}: {said}"
    assert line.startswith(told), line
    assert ranks.record(run)["stage"] == "secrets"


@pytest.mark.parametrize(
    "token_s", [3600.0, pytest.param(14.0, marks=pytest.mark.faults, id="ends meanwhile")]
)
def test_a_streamed_input_is_read_with_the_nodes_own_token(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_s: float
) -> None:
    monkeypatch.setattr(ranks.azure.tokens, "lifetime_s", token_s)
    samples = write_packed(tmp_path / "packed", largest=10_000)
    digest = "d" * 64
    files = [
        DatasetFile(
            path=path.relative_to(tmp_path / "packed").as_posix(),
            bytes=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            md5=hashlib.md5(path.read_bytes()).hexdigest(),
        )
        for path in sorted((tmp_path / "packed").rglob("*"))
        if path.is_file()
    ]
    account = ranks.azure.place.data_account
    ranks.azure.blobs.upload_tree(tmp_path / "packed", account, "data", f"digits/{digest}")
    data = ranks.azure.blobs.open(account, "data")
    listed = msgspec.json.Encoder().encode_lines(files)
    data.upload_blob(f"_datasets/digits/{digest}.files.jsonl", listed, overwrite=True)
    program = """
import hashlib, os, time
from pathlib import Path
from trainer.data.pictures.splits import open_pictures
pictures = open_pictures(Path(os.environ["TRAINYARD_INPUT_DIGITS"]), "train")
content = pictures.read(0)
time.sleep(float(os.environ["PAUSE_S"]))
content += b"".join(pictures.read(index) for index in range(1, len(pictures.labels)))
print(hashlib.sha256(content).hexdigest())
"""
    version = DatasetVersion(name="digits", version=1, digest=digest, files=3, bytes=1)
    given = {"digits": InputSpec(dataset=version, mode="stream")}
    env = {"PYTHONPATH": str(ROOT), "PAUSE_S": "0" if token_s > 60 else str(token_s)}
    run, job = ranks.finish(program, inputs=given, env=env)
    assert job.state == "Completed", (job.error, ranks.log(run, "std_log.txt"))
    content = b"".join(samples)
    assert ranks.log(run, "std_log.txt") == [hashlib.sha256(content).hexdigest()]
