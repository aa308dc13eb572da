"""`launch rm` and `launch keep`, as they are typed, on this machine's runs."""

import os
import shutil
import subprocess
from pathlib import Path

from jobs.contracts.spec import ResumePoint
from jobs.engines.local.engine import LocalEngine
from jobs.host import console
from jobs.host.disk import num_freed
from jobs.runs.supervision import take_lock
from tests.contract.test_old_files import workspace as old_workspace

__all__ = ["old_workspace"]
SAID_NOTHING_LEFT = "no run yet; launch run digits\n"


def du(path):
    """Bytes as `du` counts them."""
    told = subprocess.run(["du", "-s", "--block-size=1", path], capture_output=True, check=True)
    return int(told.stdout.split()[0])


def test_rm_removes_runs_and_tells_the_bytes_that_du_counted(launching):
    first, second = launching.add_run(), launching.add_run()
    stays = launching.add_run()
    folders = [launching.workspace / "runs" / run for run in (first, second)]
    (folders[0] / "outputs").mkdir()
    (folders[0] / "outputs" / "model").write_bytes(b"m" * 300_000)
    expected = sum(map(du, folders))
    typed = launching.type("rm", first, second, "-y", "--json")
    assert typed.code == 0, typed.err
    assert typed.json() == {"runs": [second, first], "bytes": expected}
    assert launching.run_folders() == [stays]


def test_bytes_with_a_name_elsewhere_are_not_counted_as_freed(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "state").write_bytes(b"s" * 100_000)
    (folder / "again").hardlink_to(folder / "state")
    assert num_freed([folder]) == du(folder)
    (tmp_path / "successor").hardlink_to(folder / "state")
    assert num_freed([folder]) == du(folder) - du(folder / "state")


def test_rm_asks_and_names_what_goes(launching):
    run = launching.add_run(name="digits")
    typed = launching.type("rm", run)
    assert (typed.code, launching.run_folders()) == (2, [run])
    assert f"{run}  digits  " in typed.err
    assert "Remove 1 run for good?" in typed.err
    assert "hint: add --yes to answer every question with yes" in typed.err


def test_a_run_that_is_kept_during_the_question_stays(launching, monkeypatch):
    run = launching.add_run()

    def answer(_question):
        engine = LocalEngine(launching.environment)
        engine.removal.keep(engine.store.find(run), is_kept=True)
        return True

    monkeypatch.setattr(console, "confirm", answer)
    typed = launching.type("rm", run)
    assert (typed.code, launching.run_folders()) == (3, [run])
    assert f"error: {run} is marked as kept\n" in typed.err


def test_a_run_that_is_not_over_is_refused_with_all_that_were_named(launching):
    over, on = launching.add_run(), launching.add_run()
    folder = launching.workspace / "runs" / on
    (folder / "events.jsonl").write_text(
        '{"ts":"2026-11-21T12:00:00.000000Z","state":"running"}\n', encoding="utf-8"
    )
    lock = take_lock(folder)
    try:
        typed = launching.type("rm", over, on, "-y")
    finally:
        os.close(lock)
    assert (typed.code, launching.run_folders()) == (3, sorted([over, on]))
    here = f"--env {launching.env_file}"
    assert typed.err == (
        f"error: {on} is not over\n\nhint: launch cancel {here} {on}, then launch rm {here} {on}\n"
    )


def test_a_damaged_run_is_removed_unless_it_is_supervised(launching):
    run = launching.add_run()
    folder = launching.workspace / "runs" / run
    (folder / "run.json").write_text("{", encoding="utf-8")
    lock = take_lock(folder)
    assert launching.type("rm", run, "-y").code == 3
    os.close(lock)
    assert launching.type("rm", run, "-y").code == 0
    assert launching.run_folders() == []


def test_a_kept_run_is_refused_until_the_mark_is_taken_away(launching):
    run = launching.add_run()
    assert launching.type("keep", "last").err == f"{run} is kept\n"
    typed = launching.type("rm", run, "-y")
    assert (typed.code, launching.run_folders()) == (3, [run])
    hint = f"launch keep --env {launching.env_file} --undo {run}"
    assert typed.err == f"error: {run} is marked as kept\n\nhint: {hint}\n"
    assert launching.type("keep", "--undo", run).err == f"{run} may be removed\n"
    assert launching.type("rm", run, "-y").code == 0
    assert launching.type("ls").err == SAID_NOTHING_LEFT


def test_a_run_that_another_resumed_from_goes_only_with_it(launching):
    first = launching.add_run()
    second = launching.add_run(resume=ResumePoint(run=first, step=3))
    typed = launching.type("rm", first, "-y")
    assert (typed.code, launching.run_folders()) == (3, [first, second])
    assert typed.err == (
        f"error: {second} resumed from {first}, whose record explains its first steps\n\n"
        f"hint: launch rm --env {launching.env_file} {first} {second}\n"
    )
    assert launching.type("rm", first, second, "-y").code == 0
    assert launching.run_folders() == []


def test_a_removal_that_was_cut_off_leaves_no_half_run(launching, monkeypatch):
    run, stays = launching.add_run(), launching.add_run()
    folder = launching.workspace / "runs" / run
    (folder / "outputs").mkdir()
    (folder / "outputs" / "model").write_text("m", encoding="utf-8")

    def cut_off(path):
        (Path(path) / "run.json").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", cut_off)
    assert launching.type("rm", run, "-y").code == 130
    monkeypatch.undo()
    assert launching.run_folders() == [f".removed-{run}", stays]
    listed = launching.type("ls", "--json")
    assert ([each["id"] for each in listed.json()], listed.err) == ([stays], "")
    assert launching.type("rm", run, "-y").code == 102


def test_folders_that_a_program_has_closed_are_removed(launching):
    run = launching.add_run()
    closed = launching.workspace / "runs" / run / "outputs"
    closed.mkdir()
    (closed / "model").write_text("m", encoding="utf-8")
    closed.chmod(0o500)
    assert launching.type("rm", run, "-y").code == 0
    assert launching.run_folders() == []


def test_runs_of_an_old_version_are_removed(launching, old_workspace):
    runs = sorted(each.name for each in (old_workspace / "runs").iterdir())
    env = ("--env", str(old_workspace / "environment.json"))
    typed = launching.type_bare("rm", *runs, "-y", *env)
    assert typed.code == 0, typed.err
    assert list((old_workspace / "runs").iterdir()) == []
