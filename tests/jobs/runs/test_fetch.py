"""What a run made comes back: whole, once, while it is on, and after a failure half-way."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import RunState
from jobs.host import console
from jobs.runs.code import FETCHED, snapshot
from jobs.runs.fetch import LOCK, fetch_run, fetching_into
from tests.busy import HANG_S
from tests.fakes.gangs import Gangs


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    for name, text in {
        "run.json": "{}",
        "supervisor.log": "",
        "metrics.jsonl": "m",
        "summary.json": "s",
        "logs/rank-00000.log": "log",
        "outputs/model/weights": "w" * 100_000,
        "outputs/a": "a",
        "checkpoints/1/state": "large",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())


def test_fetch_brings_outputs_logs_and_figures_and_nothing_else(
    run_dir: Path, tmp_path: Path
) -> None:
    into = fetch_run(run_dir, tmp_path / "x" / "into")
    assert names(into) == [
        LOCK,
        FETCHED,
        "logs/rank-00000.log",
        "metrics.jsonl",
        "outputs/a",
        "outputs/model/weights",
        "summary.json",
    ]
    assert (into / "outputs/model/weights").read_text() == "w" * 100_000


def test_what_is_fetched_is_no_code_of_the_next_run(run_dir: Path, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").touch()
    fetch_run(run_dir, code / "results")
    assert snapshot(code, tmp_path / "copy").left_out == ("results/",)
    assert names(tmp_path / "copy") == ["train.py"]


def test_what_is_there_is_not_copied_again_and_what_changed_is(
    run_dir: Path, tmp_path: Path
) -> None:
    into = fetch_run(run_dir, tmp_path / "into")
    kept, changed = into / "outputs/model/weights", into / "outputs/a"
    before = kept.stat().st_ino
    (run_dir / "outputs/a").write_text("b")
    os.utime(run_dir / "outputs/a", ns=(0, 0))
    fetch_run(run_dir, into)
    assert kept.stat().st_ino == before
    assert changed.read_text() == "b"


@pytest.mark.parametrize("name", ["x" * 251, "x" * 255, "ü" * 127])
def test_an_output_has_the_longest_name_that_a_file_may_have(
    run_dir: Path, tmp_path: Path, name: str
) -> None:
    (run_dir / "outputs" / name).write_text("long")
    into = fetch_run(run_dir, tmp_path / "into")
    assert (into / "outputs" / name).read_text() == "long"
    assert [each.name for each in (into / "outputs").iterdir() if each.name not in "amodel"] == [
        name
    ]


def test_half_a_file_of_an_earlier_fetch_is_made_whole(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into, halves, replace = tmp_path / "into", list[Path](), Path.replace

    def end_half_way(part: Path, target: Path) -> None:
        if target.name == "weights":
            part.write_text("w" * 10)
            halves.append(part)
            raise KeyboardInterrupt
        replace(part, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", end_half_way)
        with pytest.raises(KeyboardInterrupt):
            fetch_run(run_dir, into)
    assert [each.exists() for each in halves] == [True]
    fetch_run(run_dir, into)
    assert (into / "outputs/model/weights").read_text() == "w" * 100_000
    assert not halves[0].exists()


def test_links_inside_the_outputs_stay_and_those_out_of_them_never_trap(
    run_dir: Path, tmp_path: Path
) -> None:
    outputs = run_dir / "outputs"
    (outputs / "latest").symlink_to("model")
    (outputs / "loop").symlink_to(".")
    (outputs / "far").symlink_to(run_dir / "summary.json")
    (outputs / "folder").symlink_to(run_dir)
    (outputs / "dangling").symlink_to("nowhere")
    (outputs / "itself").symlink_to("itself")
    (outputs / "to itself").symlink_to("itself")
    (outputs / "far itself").symlink_to(outputs / "itself")
    into = fetch_run(run_dir, tmp_path / "into")
    assert (into / "outputs/latest").readlink() == Path("model")
    assert (into / "outputs/far").read_text() == "s"
    assert sorted(each.name for each in (into / "outputs").iterdir()) == [
        "a",
        "far",
        "latest",
        "loop",
        "model",
    ]


def test_target_that_cannot_be_written_is_named(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure) as caught:
        fetch_run(run_dir, tmp_path / "file" / "into")
    assert caught.value.message == f"cannot write into `{tmp_path}/file/into`: Not a directory"


def test_a_fetch_waits_for_another_into_the_same_folder(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into, said = tmp_path / "into", SimpleQueue[str]()
    monkeypatch.setattr(console, "say", said.put)
    with ThreadPoolExecutor(1) as pool:
        with fetching_into(into):
            second = pool.submit(fetch_run, run_dir, into)
            line = f"another fetch writes into `{into}`: waiting for its end"
            assert said.get(timeout=HANG_S) == line
            assert names(into) == [LOCK, FETCHED]
        assert second.result(HANG_S) == into
    assert said.empty()
    assert (into / "outputs/a").read_text() == "a"


def test_fetch_while_the_run_is_on_and_again_at_its_end(tmp_path: Path) -> None:
    program = """
import os, pathlib, time
path = pathlib.Path("outputs", "notes.txt")
path.write_text("first\\n")
while not pathlib.Path(os.environ["TRAINYARD_RUN_DIR"], "go").exists():
    time.sleep(0.02)
path.write_text("first\\nsecond\\n")
"""
    gangs = Gangs(tmp_path / "workspace")
    handle = gangs.python(program, processes_per_node=1)
    gangs.wait_for_file(handle, "outputs/notes.txt", holding=b"first\n")
    into = gangs.engine.fetch(handle, tmp_path / "into")
    assert (into / "outputs/notes.txt").read_text() == "first\n"
    Path(handle.run_dir, "go").touch()
    assert gangs.wait(handle).state is RunState.COMPLETED
    gangs.engine.fetch(handle, tmp_path / "into")
    assert (into / "outputs/notes.txt").read_text() == "first\nsecond\n"
    gangs.end()
