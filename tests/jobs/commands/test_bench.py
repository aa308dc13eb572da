"""`launch bench`: sizes, what is measured again and what is not, the report, and its mistakes."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import (
    DatasetVersion,
    InputSpec,
    Plan,
    RunHandle,
    RunState,
    RunStatus,
)
from jobs.engines import ENGINES
from jobs.launching.bench import bench_key
from jobs.runs import scaling_picture
from jobs.runs.past import job_key
from jobs.runs.store import RunStore
from tests.fakes.gangs import make_cluster, make_spec
from tests.fakes.launching import FakeEngine, Launching

JOB = """\
name: mine
image: pytorch
launcher: torch
script: train.py
args: {batch: 64}
processes_per_node: 1
"""
NO_DISK = "the disk is full"
BEGAN_S = 1_000_000_000.0


class Telling(FakeEngine):
    """Its runs tell steps of 64 samples a rank; the more ranks there are, the longer a step is."""

    silent_at: ClassVar[set[int]] = set()

    def submit(self, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        handle = super().submit(plan, secrets)
        ranks, run_dir = plan.spec.world_size, Path(handle.run_dir)
        if ranks in self.silent_at:
            return handle
        batch = int(plan.spec.command[plan.spec.command.index("--batch") + 1])
        steps_per_s = 64 / batch * (10 - ranks)
        told = [(BEGAN_S, None), *((BEGAN_S + 2 * at, 2 * at * steps_per_s) for at in range(1, 9))]
        lines = [json.dumps({"time_s": when, "done": done}) for when, done in told]
        (run_dir / "progress-history.jsonl").write_text("\n".join(lines) + "\n")
        done = {"done": told[-1][1], "total": 1e6, "samples_per_unit": batch * ranks}
        (run_dir / "progress.json").write_text(json.dumps(done))
        return handle


@pytest.fixture
def drawing_bench(launching: Launching, monkeypatch: pytest.MonkeyPatch) -> Launching:
    monkeypatch.setitem(ENGINES, "local", f"{__name__}:Telling")
    monkeypatch.chdir(launching.folder)
    monkeypatch.setattr(Telling, "silent_at", set())
    (launching.folder / "train.py").write_text("import torch\n")
    launching.write_job(JOB)
    return launching


@pytest.fixture
def bench(drawing_bench: Launching, monkeypatch: pytest.MonkeyPatch) -> Launching:
    """Draws no picture: it takes longer than all else that is done after each size."""
    monkeypatch.setattr(scaling_picture, "draw_scaling", lambda *_: None)
    return drawing_bench


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "bench-mine" / "scaling.csv").open() as file:
        return list(csv.DictReader(file))


def sizes_submitted() -> list[tuple[int, int]]:
    return [(plan.spec.nodes, plan.spec.processes_per_node) for plan, _ in Telling.submitted]


def test_each_size_is_one_run_and_the_report_has_its_rate_beside_the_ideal(drawing_bench):
    bench = drawing_bench
    typed = bench.type("bench", "job.yaml", "--nodes", "2,1", "--processes-per-node", "1,2")
    assert typed.code == 0, typed.err
    assert sizes_submitted() == [(1, 1), (1, 2), (2, 1), (2, 2)]
    found = rows(bench.folder)
    # 9, 8, 8 and 6 steps/s of 64 samples a rank.
    assert [each["rate"] for each in found] == ["576", "1024", "1024", "1536"]
    assert [each["ideal"] for each in found] == ["576", "1152", "1152", "2304"]
    assert [each["efficiency"] for each in found] == ["1", "0.888889", "0.888889", "0.666667"]
    assert [each["step_s"] for each in found] == ["0.111111", "0.125", "0.125", "0.166667"]
    assert [each["exchange_share"] for each in found] == ["0", "0.111111", "0.111111", "0.333333"]
    assert found[0]["predicted"] == ""
    assert all(each["predicted"] for each in found[1:])
    folder = bench.folder / "bench-mine"
    assert (folder / "scaling.svg").read_bytes().startswith(b"<?xml")
    assert "| 2x2 | 4 | 1,536 | 1,536 | 1,536 |" in (folder / "scaling.md").read_text()
    assert typed.out.splitlines()[1].split()[:3] == ["1x1", "1", "576"]


def test_strong_scaling_divides_the_batch_of_a_rank(bench):
    typed = bench.type("bench", "job.yaml", "--nodes", "1,2", "--strong", "batch", "--json")
    assert typed.code == 0, typed.err
    commands = [plan.spec.command[-2:] for plan, _ in Telling.submitted]
    assert commands == [("--batch", "64"), ("--batch", "64"), ("--batch", "32")]
    told = [
        (each["point"]["size"]["scaling"], each["point"]["rate"]) for each in typed.json()["rows"]
    ]
    assert told == [("weak", 576.0), ("weak", 1024.0), ("strong", 1024.0)]
    first, weak, strong = (each["point"] for each in typed.json()["rows"])
    assert first["predicted"] is None
    # By the weak sizes, of which a rank has twice the samples to compute.
    assert 576 < strong["predicted"] < weak["rate"]
    assert strong["predicted_low"] < strong["predicted"] < strong["predicted_high"]


def test_what_was_measured_before_is_not_run_again(bench):
    assert bench.type("bench", "job.yaml", "--nodes", "1,2").code == 0
    typed = bench.type("bench", "job.yaml", "--nodes", "1,2", "--processes-per-node", "1,2")
    assert typed.code == 0, typed.err
    assert "2 sizes measured before" in typed.err
    assert sizes_submitted() == [(1, 1), (2, 1), (1, 2), (2, 2)]


def test_a_bench_that_was_killed_goes_on_with_the_run_that_it_had_begun(bench):
    assert bench.type("bench", "job.yaml", "--nodes", "1").code == 0
    state = bench.folder / "bench-mine" / "points.json"
    kept = json.loads(state.read_bytes())
    kept["points"][0] |= {"rate": None}
    state.write_text(json.dumps(kept))
    assert bench.type("bench", "job.yaml", "--nodes", "1").code == 0
    assert len(Telling.submitted) == 1
    assert rows(bench.folder)[0]["rate"] == "576"


def test_a_size_that_fails_is_told_and_tried_again_by_the_next_bench(bench):
    Telling.silent_at = {2}
    typed = bench.type("bench", "job.yaml", "--nodes", "1,2")
    assert typed.code == 100
    assert "warning: 2x1: `" in typed.err
    assert "` tells no progress" in typed.err
    assert rows(bench.folder)[1]["note"].endswith("` tells no progress")
    Telling.silent_at = set()
    assert bench.type("bench", "job.yaml", "--nodes", "1,2").code == 0
    assert sizes_submitted() == [(1, 1), (2, 1), (2, 1)]


def test_a_job_that_fails_everywhere_ends_with_its_cause_and_no_report(bench):
    bench.write_job(JOB + "env: {ENDS_AS: failed}\n")
    typed = bench.type("bench", "job.yaml", "--nodes", "1")
    assert typed.code == 2
    assert "error: no size was measured:" in typed.err
    assert "no luck" in typed.err
    assert not (bench.folder / "bench-mine" / "scaling.csv").exists()


@pytest.fixture
def endless(bench, monkeypatch):
    """Let runs go on until they are cancelled."""
    whole = RunStore.status

    def status(store: RunStore, handle: RunHandle) -> RunStatus:
        is_over = handle.id in Telling.cancelled
        state = RunState.CANCELLED if is_over else RunState.RUNNING
        return msgspec.structs.replace(whole(store, handle), state=state)

    monkeypatch.setattr(RunStore, "status", status)
    return bench


def test_a_run_is_ended_once_its_rate_was_measured_for_long_enough(endless):
    bench = endless
    typed = bench.type("bench", "job.yaml", "--nodes", "1", "--measure", "14s")
    assert typed.code == 0, typed.err
    assert len(Telling.cancelled) == 1
    assert rows(bench.folder)[0]["windows"] == "7"


def test_a_run_that_tells_nothing_is_ended_where_its_nodes_cost_money(endless):
    Telling.silent_at = {2}
    price(endless, 3.6)
    typed = endless.type("bench", "job.yaml", "--nodes", "1,2", "--measure", "14s", "--yes")
    assert typed.code == 100
    # Runs of the fake engine began long ago.
    assert len(Telling.cancelled) == 2
    # A start of 8 s, a warm-up of 60 s and 14 s that are measured.
    ended = "was ended after 3 times the 1 min 22 s that are reckoned for it"
    (second,) = (each.id for each in endless.runs() if each.nodes == 2)
    assert rows(endless.folder)[1]["note"] == f"`{second}` tells no progress; it {ended}"
    # Where nobody watches them, the engine ends them.
    store = RunStore(endless.workspace)
    specs = [store.record(store.handle(each.id)).plan.spec for each in endless.runs()]
    assert [each.limits.wall_clock_s for each in specs] == [246.0, 246.0]
    # 3 nodes for so long, and at most for 3 times as long.
    assert "price     about 0.246 USD for all 2 runs, 0.738 USD at most" in typed.err


def test_a_run_that_tells_nothing_goes_on_where_its_nodes_are_free(endless, monkeypatch):
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            Telling.cancelled.extend(each.id for each in endless.runs())

    Telling.silent_at = {1}
    monkeypatch.setattr("jobs.launching.bench_run.time.sleep", sleep)
    typed = endless.type("bench", "job.yaml", "--nodes", "1")
    assert ("` tells no progress\n" in typed.err, len(looks)) == (True, 3)


def test_a_run_that_cannot_be_started_ends_the_bench_with_its_own_error(bench, monkeypatch):
    def refused(*_: object) -> RunHandle:
        raise EnvironmentFailure(NO_DISK, hint="free some space")

    monkeypatch.setattr(Telling, "submit", refused)
    typed = bench.type("bench", "job.yaml", "--nodes", "1,2")
    assert typed.code == 1
    assert f"error: {NO_DISK}\n\nhint: free some space" in typed.err
    assert "may go on" not in typed.err
    assert not (bench.folder / "bench-mine" / "scaling.csv").exists()


def test_a_run_whose_bench_was_killed_before_it_could_note_it_is_found_by_its_tag(
    bench, monkeypatch
):
    whole = Telling.submit

    def killed(self: Telling, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        whole(self, plan, secrets)
        raise SystemExit

    # A run of the same job that is no bench's.
    assert bench.type("run", "job.yaml", "--nodes", "1", "--yes").code == 0
    monkeypatch.setattr(Telling, "submit", killed)
    with pytest.raises(SystemExit):
        bench.type("bench", "job.yaml", "--nodes", "1")
    monkeypatch.setattr(Telling, "submit", whole)
    begun = max(each.id for each in bench.runs())
    assert bench.type("bench", "job.yaml", "--nodes", "1").code == 0
    assert [rows(bench.folder)[0]["run"], len(bench.runs())] == [begun, 2]


def test_a_run_that_is_lost_sight_of_is_named_and_followed_by_the_next_bench(bench, monkeypatch):
    def unread(*_: object) -> None:
        raise EnvironmentFailure(NO_DISK)

    monkeypatch.setattr("jobs.engines.local.runs.LocalRuns.bring", unread)
    typed = bench.type("bench", "job.yaml", "--nodes", "1")
    assert typed.code == 1
    (run,) = (each.id for each in bench.runs())
    end = f"launch cancel {run} --env {bench.env_file}"
    assert f"{run} may go on: the same command follows it, `{end}` ends it" in typed.err
    monkeypatch.undo()
    monkeypatch.setitem(ENGINES, "local", f"{__name__}:Telling")
    monkeypatch.chdir(bench.folder)
    assert bench.type("bench", "job.yaml", "--nodes", "1").code == 0
    assert [each.id for each in bench.runs()] == [run]


def price(bench: Launching, amount: float) -> None:
    change(bench, price_per_node_hour=amount, currency="USD")


def change(bench: Launching, **values: object) -> None:
    """Change the cluster of the environment."""
    changed = msgspec.structs.replace(bench.environment.clusters["cpu"], **values)
    bench.write_environment(msgspec.structs.replace(bench.environment, clusters={"cpu": changed}))


def test_money_is_asked_for_once_for_all_sizes(bench):
    price(bench, 3.6)
    typed = bench.type("bench", "job.yaml", "--nodes", "1,2")
    assert (typed.code, Telling.submitted) == (2, [])
    # 1 + 2 nodes, each for a start of 8 s, a warm-up of 60 s and 60 s that are measured.
    assert "price     about 0.384 USD for all 2 runs" in typed.err
    assert "add --yes to answer" in typed.err
    assert bench.type("bench", "job.yaml", "--nodes", "1,2", "--yes").code == 0
    assert rows(bench.folder)[0]["cost_per_million"] == "1.73611"


def test_what_nobody_knows_the_price_of_is_asked_for_as_such(bench):
    """It was "about 0.00"."""
    change(bench, price_per_node_hour=None)
    typed = bench.type("bench", "job.yaml", "--nodes", "1,2")
    assert (typed.code, Telling.submitted) == (2, [])
    text = "unknown for all 2 runs: no price of these nodes is known"
    assert f"price     {text}\n" in typed.err
    assert f"This spends money: {text}. Start them?" in typed.err


def test_how_a_script_is_read_is_said_once(bench):
    words = ("--nodes", "1,2", "--strong", "batch-size", "--yes")
    words += ("--env", str(bench.env_file))
    typed = bench.type_bare("bench", "train.py", *words, "--", "--batch-size", "64")
    assert typed.err.count("train.py uses torch: ") == 1, typed.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nodes", "1,x"], "--nodes `1,x` has to be numbers with commas between, each 1 or more"),
        (["--nodes", "0"], "--nodes `0` has to be numbers"),
        (["--nodes", "1", "--processes-per-node", "-1"], "--processes-per-node `-1` has to be"),
        (["--nodes", "1,2", "--strong", "lr"], "the job's command gives no number for --lr"),
        (
            ["--nodes", "1,2", "--strong", "batch", "--set", "args.batch=63"],
            "a batch of 63 cannot be",
        ),
        (["--nodes", "3"], "`mine` asks for 3 nodes"),
    ],
)
def test_mistakes_are_said_and_start_nothing(bench, words, message):
    typed = bench.type("bench", "job.yaml", *words)
    assert typed.code in (2, 3)
    assert f"error: {message}" in typed.err or message in typed.err
    assert Telling.submitted == []


def test_a_folder_of_another_job_or_a_damaged_one_is_left_as_it_is(bench):
    assert bench.type("bench", "job.yaml", "--nodes", "1").code == 0
    typed = bench.type("bench", "job.yaml", "--nodes", "1", "--set", "args.batch=32")
    assert typed.code == 2
    assert (
        "`bench-mine` holds the bench of another job, or of other arguments, nodes, image or data"
        in typed.err
    )
    (bench.folder / "bench-mine" / "points.json").write_text('{"key": 1}')
    typed = bench.type("bench", "job.yaml", "--nodes", "1")
    assert typed.code == 2
    assert "`bench-mine/points.json` cannot be read" in typed.err
    assert len(Telling.submitted) == 1


@pytest.mark.parametrize("values", [{"size": "Standard_X"}, {"priority": "low_priority"}])
def test_a_folder_of_other_nodes_is_left_as_it_is(bench, values):
    assert bench.type("bench", "job.yaml", "--nodes", "1").code == 0
    change(bench, **values)
    typed = bench.type("bench", "job.yaml", "--nodes", "1,2")
    assert (typed.code, len(Telling.submitted)) == (2, 1)
    assert "of other arguments, nodes, image or data" in typed.err
    typed = bench.type("bench", "job.yaml", "--nodes", "1,2", "--into", "other")
    assert (typed.code, len(Telling.submitted)) == (0, 3)


@pytest.mark.parametrize(
    "change",
    [{"image": "pytorch@sha256:2"}, {"inputs": "other version"}, {"cluster": "other"}],
)
def test_a_bench_is_of_one_image_set_and_cluster(change):
    clusters = dict.fromkeys(("cpu", "other"), make_cluster(nodes=1))
    before = make_spec(["python", "t.py"], cluster="cpu", image="pytorch@sha256:1")
    version = DatasetVersion(name="d", version=1, digest="0" * 64, files=1, bytes=1)
    before = msgspec.structs.replace(
        before, inputs={"d": InputSpec(dataset=version, mode="stream")}
    )
    second = InputSpec(dataset=msgspec.structs.replace(version, digest="1" * 64), mode="stream")
    change = {"inputs": {"d": second}} if "inputs" in change else change
    after = msgspec.structs.replace(before, **change)
    assert bench_key(before, clusters) == bench_key(before, clusters)
    assert bench_key(before, clusters) != bench_key(after, clusters)
    assert job_key(before) == job_key(after)
