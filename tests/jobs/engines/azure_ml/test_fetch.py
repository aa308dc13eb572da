"""Bringing a run's results home: whole, of one version, nothing twice."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import JobRetry, RunHandle
from jobs.engines.azure_ml.fetch import fetch_run, local_path
from jobs.runs.code import FETCHED
from jobs.runs.fetch import LOCK
from tests.fakes.azure_runs import RUN, MemoryRuns, details
from tests.fakes.gangs import make_spec

LOG = "user_logs/std_log_process_0.txt"
PREEMPTED = "PreemptionError: Nodes of this job got pre-empted."


@pytest.fixture
def runs(tmp_path: Path) -> MemoryRuns:
    made = MemoryRuns(tmp_path / "state")
    made.memory.blobs = {
        f"{RUN}/run.json": b"{}",
        f"{RUN}/metrics.jsonl": b"{}\n",
        f"{RUN}/metrics.jsonl.old": b"no",
        f"{RUN}/outputs/model/weights.bin": bytes(range(95)),
        f"{RUN}/outputs/empty": b"",
        f"{RUN}/outputs/../../away": b"no",
    }
    made.logs.write(RUN, LOG, "first\n")
    return made


@pytest.fixture
def handle(runs: MemoryRuns) -> RunHandle:
    return runs.add(make_spec(["x"]), RUN, details("Running"))


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (FETCHED, LOCK)
    }


WHOLE = {
    "metrics.jsonl": b"{}\n",
    "outputs/model/weights.bin": bytes(range(95)),
    "outputs/empty": b"",
    "logs/rank-00000.log": b"first\n",
}


def test_a_run_comes_home_once(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "here"
    assert fetch_run(runs, handle, into) == into
    assert files(into) == WHOLE
    assert "is not a valid file name here" in capsys.readouterr().err
    assert not (tmp_path / "away").exists()
    runs.memory.requests.clear()
    fetch_run(runs, handle, into)
    assert [each for each in runs.memory.requests if not each.startswith("list")] == []


def test_an_output_with_the_name_of_a_file_on_its_way_stays_in_the_store(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.memory.blobs[f"{RUN}/outputs/.trainyard-x.part"] = b"no"
    fetch_run(runs, handle, tmp_path / "here")
    assert files(tmp_path / "here") == WHOLE
    said = (
        "`outputs/.trainyard-x.part` is not a valid file name here; the file stays in the store\n"
    )
    assert said in capsys.readouterr().err


def test_what_is_new_or_changed_comes_later(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path
) -> None:
    fetch_run(runs, handle, tmp_path / "here")
    runs.memory.blobs[f"{RUN}/metrics.jsonl"] = b"{}\n{}\n"
    runs.memory.blobs[f"{RUN}/summary.json"] = b"{}"
    runs.logs.write(RUN, LOG, "second\n")
    fetch_run(runs, handle, tmp_path / "here")
    changed = {"metrics.jsonl": b"{}\n{}\n", "summary.json": b"{}"}
    log = {"logs/rank-00000.log": b"first\nsecond\n"}
    assert files(tmp_path / "here") == {**WHOLE, **changed, **log}


def test_what_an_attempt_before_called_a_file_may_be_a_folder_now(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch_run(runs, handle, tmp_path / "here")
    runs.memory.blobs[f"{RUN}/outputs/empty/not"] = b"x"
    capsys.readouterr()
    fetch_run(runs, handle, tmp_path / "here")
    expected = {name: content for name, content in WHOLE.items() if name != "outputs/empty"}
    assert files(tmp_path / "here") == {**expected, "outputs/empty/not": b"x"}
    said = "`outputs/empty` is not a valid file name here; the file stays in the store\n"
    assert said in capsys.readouterr().err


def test_a_cut_off_fetch_goes_on_where_it_was(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path
) -> None:
    name = f"{RUN}/outputs/model/weights.bin"

    def cut_off(blob: str) -> None:
        if blob == name:
            message = "the line is cut"
            raise EnvironmentFailure(message)

    runs.memory.before_receive = cut_off
    with pytest.raises(EnvironmentFailure, match="cut"):
        fetch_run(runs, handle, tmp_path / "here")
    runs.memory.before_receive = lambda _: None
    runs.memory.requests.clear()
    fetch_run(runs, handle, tmp_path / "here")
    assert files(tmp_path / "here") == WHOLE
    received = [each for each in runs.memory.requests if each.startswith("receive")]
    assert received == [f"receive {name}"]


def test_a_file_that_changes_meanwhile_is_of_one_version(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path
) -> None:
    name = f"{RUN}/outputs/model/weights.bin"

    def change(blob: str) -> None:
        if blob == name:
            runs.memory.blobs[name] = b"n" * 95

    runs.memory.before_receive = change
    fetch_run(runs, handle, tmp_path / "here")
    assert files(tmp_path / "here") == {**WHOLE, "outputs/model/weights.bin": b"n" * 95}
    assert runs.memory.requests.count(f"receive {name}") == 2


def test_a_file_that_goes_meanwhile_leaves_nothing(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path
) -> None:
    name = f"{RUN}/outputs/model/weights.bin"
    runs.memory.before_receive = lambda _: runs.memory.blobs.pop(name, None)
    fetch_run(runs, handle, tmp_path / "here")
    assert "weights" not in " ".join(files(tmp_path / "here"))


def test_a_damaged_file_gets_no_name(runs: MemoryRuns, handle: RunHandle, tmp_path: Path) -> None:
    name = f"{RUN}/outputs/empty"
    runs.memory._md5[name] = hashlib.md5(b"something").digest()
    with pytest.raises(EnvironmentFailure, match="its MD5 is"):
        fetch_run(runs, handle, tmp_path / "here")
    assert "outputs/empty" not in files(tmp_path / "here")


def test_a_log_that_was_begun_anew_is_copied_anew(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path
) -> None:
    fetch_run(runs, handle, tmp_path / "here")
    runs.logs.store.blobs.clear()
    runs.logs.write(RUN, LOG, "other and longer\n")
    runs.logs.write(RUN, LOG.replace("logs/", "logs/retry_001/"), "first\n")
    fetch_run(runs, handle, tmp_path / "here")
    found = files(tmp_path / "here")
    assert found["logs/rank-00000.log"] == b"other and longer\n"
    assert found["logs/retry_001/rank-00000.log"] == b"first\n"


def test_later_attempts_and_azures_own_logs_have_folders(runs: MemoryRuns, tmp_path: Path) -> None:
    spec = make_spec(["x"], retry=JobRetry(max=1))
    handle = runs.add(spec, RUN, details("Failed", PREEMPTED, ended=20))
    runs.scripted.details[f"{RUN}_2"] = [details("Completed", ended=40)]
    runs.logs.write(f"{RUN}_2", LOG, "again\n")
    runs.logs.write(f"{RUN}_2", "system_logs/lifecycler/lifecycler.log", "ready\n")
    fetch_run(runs, handle, tmp_path / "here")
    found = {name: each for name, each in files(tmp_path / "here").items() if "logs/" in name}
    assert found == {
        "logs/rank-00000.log": b"first\n",
        "logs/attempt-2/rank-00000.log": b"again\n",
        "logs/attempt-2/azureml/system_logs/lifecycler/lifecycler.log": b"ready\n",
    }


def test_two_fetches_into_one_folder_bring_everything_once(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path
) -> None:
    runs.memory.requests.clear()
    with ThreadPoolExecutor(4) as pool:
        into = tmp_path / "here"
        assert [*pool.map(lambda _: fetch_run(runs, handle, into), range(4))] == [into] * 4
    assert files(tmp_path / "here") == WHOLE
    asked = [each for each in runs.memory.requests if not each.startswith("list")]
    assert len(asked) == len(set(asked))


def test_a_folder_that_cannot_be_written_is_said(
    runs: MemoryRuns, handle: RunHandle, tmp_path: Path
) -> None:
    (tmp_path / "here").write_text("a file")
    with pytest.raises(EnvironmentFailure, match="cannot write into"):
        fetch_run(runs, handle, tmp_path / "here")


@pytest.mark.parametrize("name", ["", "/etc/x", "a//b", "a/../../b", "./a", "a\\b", "a\0b"])
def test_names_that_lead_away_have_no_place(name: str, tmp_path: Path) -> None:
    assert local_path(tmp_path, name) is None
