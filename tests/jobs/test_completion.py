"""What the shell offers after Tab, and that it never sees an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.project import project_root
from jobs.verbs import VERBS

LAUNCH = Path(sys.executable).with_name("launch")


def complete(launching, line, **variables):
    """The choices that bash is offered at the end of the line."""
    words = line.split(" ")
    done = subprocess.run(
        [LAUNCH],
        env={
            **os.environ,
            "_LAUNCH_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            **variables,
        },
        cwd=launching.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_verbs_are_offered(launching):
    assert complete(launching, "launch r") == ["run", "rerun", "report"]


def test_jobs_of_the_catalog_and_job_files_are_offered(launching):
    launching.write_job("", "digest.yaml")
    launching.write_job("", "other.yml")
    launching.write_job("", "Pulumi.dev.yaml")
    (launching.folder / "sub").mkdir()
    launching.write_job("", "sub/job.yaml")
    assert complete(launching, "launch run dig") == ["digits", "digest.yaml"]
    assert complete(launching, "launch run ") == ["digits", "digest.yaml", "other.yml"]
    assert complete(launching, "launch plan sub/") == ["sub/job.yaml"]


def test_runs_are_offered_newest_first(launching):
    ids = [launching.add_run() for _ in range(3)]
    env = f"--env {launching.env_file}"
    assert complete(launching, f"launch logs {env} 2") == ids[::-1]
    assert complete(launching, f"launch show {env} ") == [*ids[::-1], "last"]
    assert complete(launching, f"launch cancel {env} {ids[0]} l") == ["last"]


def test_runs_are_offered_with_their_state(launching):
    run = launching.add_run(ends_as="failed")
    done = subprocess.run(
        [LAUNCH],
        env={
            **os.environ,
            "_LAUNCH_COMPLETE": "complete_zsh",
            "_TYPER_COMPLETE_ARGS": f"launch show --env {launching.env_file} 2",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'"{run}":"failed test"' in done.stdout


def test_stacks_and_clusters_are_offered(launching):
    expected = sorted(
        path.name.removeprefix("Pulumi.").removesuffix(".yaml")
        for path in project_root().glob("Pulumi.*.yaml")
    )
    assert complete(launching, "launch ls -s ") == expected
    env = f"--env {launching.env_file}"
    assert complete(launching, f"launch run {env} --cluster ") == ["cpu"]


def test_keys_of_a_job_are_offered_for_set(launching):
    assert complete(launching, "launch run digits --set li") == ["limits="]


@pytest.mark.parametrize(
    "line",
    [
        "launch show --env /nowhere.json ",
        "launch show --env ",
        "launch run /nowhere/",
    ],
)
def test_where_nothing_can_be_known_nothing_is_said(launching, line):
    assert complete(launching, line, PATH="") == []


def test_a_line_that_begins_with_no_verb_is_offered_the_verbs(launching):
    for line in ("launch nonsense ", "launch ", ""):
        assert sorted(complete(launching, line)) == sorted(VERBS)
