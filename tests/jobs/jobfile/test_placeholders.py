"""Placeholders of a job file: those that no node could fill are refused with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.jobfile.read import load_job

HEAD = """\
name: a
image: b
script: train.py
inputs: {words: digits}
outputs: {model: {}}
secrets: {TOKEN: key}
"""
ESCAPE = "(`$${` writes `${` itself)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    return tmp_path


def test_what_can_be_filled_and_what_is_none_of_ours_is_taken_as_written(folder: Path) -> None:
    (folder / "job.yaml").write_text(
        HEAD
        + "args: ['${inputs.words}', '${rank}', '$${inputs.no}', '${HOME}', '${{inputs.x}}']\n"
        + "env: {A: '${outputs.model}:${local_rank}', B: '${data.dir} ${ranks}'}\n"
        + "setup: ['echo ${run.id} ${world_size}']\n"
        + "tags: {a: '${inputs.no}'}\n"
    )
    job = load_job("job.yaml").job
    assert job.args == (
        "${inputs.words}",
        "${rank}",
        "$${inputs.no}",
        "${HOME}",
        "${{inputs.x}}",
    )
    assert job.env == {"A": "${outputs.model}:${local_rank}", "B": "${data.dir} ${ranks}"}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "args: {data: '${inputs.wrods}/a'}",
            "job.yaml:7:14: the placeholder `${inputs.wrods}` is unknown",
            f"did you mean `${{inputs.words}}`? {ESCAPE}",
        ),
        (
            "args: [a, '${input.words}']",
            "job.yaml:7:11: the placeholder `${input.words}` is unknown",
            f"did you mean `${{inputs.words}}`? {ESCAPE}",
        ),
        (
            "env: {A: '${run.everything}'}",
            "job.yaml:7:10: the placeholder `${run.everything}` is unknown",
            "known are `${inputs.words}`, `${outputs.model}`, `${run.id}`, `${world_size}`, "
            f"`${{rank}}`, `${{local_rank}}` {ESCAPE}",
        ),
        (
            "setup: [a, 'echo ${rank}']",
            "job.yaml:7:12: `setup` runs once on each node, so `${rank}` has no value there",
            "use it in `args`, `env` or `command`",
        ),
        (
            "args: {key: '${secrets.TOKEN}'}",
            "job.yaml:7:13: `${secrets.TOKEN}`: a secret is not a placeholder, it would show in `ps`",
            "`secrets: {TOKEN: its-name}`; read the variable TOKEN",
        ),
        (
            "args: {data: ${inputs.words}}",
            "job.yaml:7:15: did not find expected ',' or '}'",
            'quote a placeholder that stands in brackets: `"${inputs.words}"`',
        ),
    ],
)
def test_an_unknown_placeholder_is_named_with_its_place(
    folder: Path, text: str, message: str, hint: str
) -> None:
    (folder / "job.yaml").write_text(f"{HEAD}{text}\n")
    with pytest.raises(LaunchError) as caught:
        load_job("job.yaml")
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_placeholder_of_a_kind_that_the_job_has_none_of_says_so(folder: Path) -> None:
    (folder / "job.yaml").write_text(
        "name: a\nimage: b\nscript: train.py\nargs: ['${inputs.words}']\n"
    )
    with pytest.raises(LaunchError) as caught:
        load_job("job.yaml")
    assert caught.value.hint == "the job has no `inputs`: add `inputs: {words: ...}`"
