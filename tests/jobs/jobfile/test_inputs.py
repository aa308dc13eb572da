"""Inputs of a job file in their short and long forms, and paths among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import JobInput
from jobs.jobfile.read import load_job

HEAD = "name: a\nimage: b\nscript: train.py\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    job = tmp_path / "job"
    for name in ("job/words", "home/words", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (job / "train.py").touch()
    (job / "list.txt").touch()
    (job / "linked").symlink_to(tmp_path / "outside")
    (job / "alias.txt").symlink_to("list.txt")
    return tmp_path


def load(folder: Path, text: str, *overrides: str) -> dict[str, JobInput]:
    (folder / "job" / "job.yaml").write_text(HEAD + text)
    return load_job("job/job.yaml", overrides).job.inputs


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("digits", JobInput(dataset="digits")),
        ("digits@3", JobInput(dataset="digits@3")),
        ("./words", JobInput(path="{folder}/job/words")),
        ("../outside", JobInput(path="{folder}/outside")),
        ("./linked", JobInput(path="{folder}/outside")),
        ("~/words", JobInput(path="{folder}/home/words")),
        ("/{folder}/outside", JobInput(path="{folder}/outside")),
        ("./list.txt", JobInput(path="{folder}/job/list.txt")),
        ("./alias.txt", JobInput(path="{folder}/job/alias.txt")),
        ("{{path: words, mode: mount}}", JobInput(path="{folder}/job/words", mode="mount")),
        (
            "{{dataset: digits, file: a/b.txt}}",
            JobInput(dataset="digits", file="a/b.txt"),
        ),
    ],
)
def test_an_input_is_a_dataset_or_a_path(folder: Path, written: str, read: JobInput) -> None:
    given = load(folder, f"inputs:\n  x: {written.format(folder=folder)}\n")
    path = read.path.format(folder=folder) if read.path else None
    assert given == {"x": JobInput(dataset=read.dataset, path=path, file=read.file, mode=read.mode)}


def test_a_path_typed_for_a_job_of_the_catalog_begins_where_it_is_typed(folder: Path) -> None:
    loaded = load_job("digits", ["inputs.digits=./outside"])
    assert loaded.job.inputs == {"digits": JobInput(path=str(folder / "outside"))}


@pytest.mark.parametrize(
    ("written", "message", "hint"),
    [
        (
            "data/words",
            "job/job.yaml:5:6: `data/words` is an invalid dataset name",
            "a path begins with `./`: `x: ./data/words`",
        ),
        (
            "./nothing",
            "job/job.yaml:5:3: the input `{folder}/job/nothing` is not there",
            "paths are relative to the job file",
        ),
        (
            "/dev/null",
            "job/job.yaml:5:3: the input `/dev/null` is neither a file nor a folder",
            "paths are relative to the job file",
        ),
        (
            ".",
            "job/job.yaml:5:3: the input `{folder}/job` holds the job's own `{folder}/job`",
            "put the data into a folder of its own",
        ),
        (
            "..",
            "job/job.yaml:5:3: the input `{folder}` holds the job's own `{folder}/job`",
            "put the data into a folder of its own",
        ),
        (
            "./train.py",
            "job/job.yaml:5:3: the input `{folder}/job/train.py` holds the job's own "
            "`{folder}/job/train.py`",
            "put the data into a folder of its own",
        ),
        (
            "{{}}",
            "job/job.yaml:5:3: `inputs.x` has neither `dataset` nor `path`",
            "`x: digits@3` or `x: ./folder`",
        ),
        (
            "{{dataset: d, path: words}}",
            "job/job.yaml:5:3: `inputs.x` has `dataset` and `path`",
            "`x: digits@3` or `x: ./folder`",
        ),
        (
            "{{path: words, file: a}}",
            "job/job.yaml:5:3: `inputs.x` has `path` and `file`",
            "let `path` name the file itself",
        ),
        (
            "{{path: words, mode: stream}}",
            "job/job.yaml:5:3: `inputs.x`: only a dataset can be streamed",
            "launch data pack DIR --to PACKED, launch data push PACKED NAME, `dataset: NAME`",
        ),
        (
            "{{dataset: d, file: ../a}}",
            "job/job.yaml:5:3: `file: ../a` names no file that the input will have",
            "a path in the dataset, such as `file: train/words.txt`, with `mode: download`",
        ),
        (
            "3",
            "job/job.yaml:5:6: `inputs.x` has to be a dataset such as `digits@3`, a path such as "
            "`./folder`, or a mapping, and is the number `3`",
            "for example `x: digits`",
        ),
    ],
)
def test_a_wrong_input_is_named_with_its_place(
    folder: Path, written: str, message: str, hint: str
) -> None:
    with pytest.raises(LaunchError) as caught:
        load(folder, f"inputs:\n  x: {written.format()}\n")
    assert (caught.value.message, caught.value.hint) == (message.format(folder=folder), hint)
