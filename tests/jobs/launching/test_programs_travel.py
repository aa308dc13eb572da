"""A program that an ignore file keeps here is refused before anything starts."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.fakes.launching import Launching

HEAD = "name: own\nimage: pytorch\n"


def refusal(launching: Launching, verb: str, job: str, place: str, rules: str) -> str:
    """Type the verb on a job that is refused; gives the command that the hint names."""
    typed = launching.type(verb, job)
    told, _, hint = typed.err.rpartition("\n\nhint: ")
    assert (typed.code, typed.out) == (2, "")
    assert told.endswith(
        f"error: `{place}`, which the job runs, does not travel: an ignore file names it"
    )
    assert hint == f"{rules}\n"
    return hint


def append(launching: Launching, rules: str, folder: str = "") -> str:
    return f"printf '%s\\n' {rules} >> {launching.folder / folder / '.launchignore'}"


@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.parametrize(
    "program",
    [
        "script: train.py",
        "code: .\ncommand: [python, -u, train.py, --epochs, 3]",
        "code: .\ncommand: [accelerate, launch, ./train.py]",
        "code: .\nmodule: train",
        "code: .\ncommand: [python, -m, torch.distributed.run, -m, train]",
    ],
)
def test_script_that_git_ignores_is_named_with_what_makes_it_travel(
    launching: Launching, verb: str, program: str
) -> None:
    (launching.folder / "train.py").touch()
    (launching.folder / ".gitignore").write_text("train*.py\n")
    job = launching.write_job(f"{HEAD}{program}\n")
    hint = refusal(launching, verb, job, "train.py", append(launching, "'!train.py'"))
    subprocess.run(hint, shell=True, check=True)
    assert launching.type(verb, job).code == 0


def test_notebook_that_git_ignores_is_named(launching: Launching) -> None:
    notebook = launching.folder / "train.ipynb"
    notebook.write_text(
        json.dumps({"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}})
    )
    (launching.folder / "requirements.txt").write_text("nbclient\nipykernel\n")
    (launching.folder / ".gitignore").write_text("*.ipynb\n")
    hint = refusal(
        launching, "plan", str(notebook), "train.ipynb", append(launching, "'!train.ipynb'")
    )
    subprocess.run(hint, shell=True, check=True)
    assert launching.type("plan", str(notebook)).code == 0


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("jobs/run", "jobs/run"),
        ("jobs/run.sh", "bash jobs/run.sh"),
        ("jobs/train/__main__.py", "python -m jobs.train"),
    ],
)
def test_hint_lets_all_on_the_way_travel_whatever_ignores_it(
    launching: Launching, place: str, command: str
) -> None:
    path = launching.folder / place
    path.parent.mkdir(parents=True)
    path.touch()
    (launching.folder / ".gitignore").write_text("jobs/\n")
    (launching.folder / "jobs" / ".gitignore").write_text("run*\ntrain/\n")
    job = launching.write_job(f"{HEAD}code: .\ncommand: [{', '.join(command.split())}]\n")
    above, _, inner = place.partition("/")
    folder = f"'!{inner.rpartition('/')[0]}/' " if "/" in inner else ""
    whole = f"'!{above}/' {folder.replace('!', '!jobs/')}'!{place}'"
    own = append(launching, f"{folder}'!{inner}'", "jobs")
    told = f"{append(launching, whole)} && {own}"
    hint = refusal(launching, "plan", job, place, told)
    subprocess.run(hint, shell=True, check=True)
    assert launching.type("plan", job).code == 0


@pytest.mark.parametrize(
    "program",
    [
        "code: .\nscript: link.py",  # the file that it leads to travels
        "code: .\ncommand: [python, linked/train.py]",
        "code: .\ncommand: [python, -m, pip, list]",
        "code: .\ncommand: [python, made_by_setup.py, -m]",
        "code: .\ncommand: [bash, -c, 'python ignored.py']",
        "code: .\ncommand: [python, /opt/ignored.py, ../ignored.py]",
    ],
)
def test_what_travels_or_is_no_file_of_the_job_is_not_asked_for(
    launching: Launching, program: str
) -> None:
    (launching.folder / "src").mkdir()
    (launching.folder / "src" / "train.py").touch()
    (launching.folder / "linked").symlink_to("src")
    (launching.folder / "link.py").symlink_to("src/train.py")
    (launching.folder / "ignored.py").touch()
    (launching.folder / "python").touch()
    (launching.folder / ".gitignore").write_text("ignored.py\npython\n")
    assert launching.type("plan", launching.write_job(f"{HEAD}{program}\n")).code == 0
