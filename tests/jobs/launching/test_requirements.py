"""Requirements that an ignore file keeps here are refused before anything starts."""

from __future__ import annotations

import subprocess

import pytest

JOB = """\
name: own
image: pytorch
script: train.py
requirements: needed.txt
"""


@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.parametrize("ignored", ["*.whl", "dist/"])
def test_wheel_that_git_ignores_is_named_with_what_makes_it_travel(launching, verb, ignored):
    (launching.folder / "train.py").write_text("")
    (launching.folder / "dist").mkdir()
    (launching.folder / "dist" / "own-1.0-py3-none-any.whl").write_text("")
    (launching.folder / "needed.txt").write_text("dist/own-1.0-py3-none-any.whl\n")
    (launching.folder / ".gitignore").write_text(f"{ignored}\n")
    job = launching.write_job(JOB)
    wheel = "dist/own-1.0-py3-none-any.whl"
    typed = launching.type(verb, job)
    ignore = launching.folder / ".launchignore"
    assert (typed.code, typed.out, typed.err) == (
        2,
        "",
        f"error: `{wheel}`, which `requirements` need, does not travel: an ignore file names it\n\n"
        f"hint: printf '%s\\n' '!dist/' '!{wheel}' >> {ignore}\n",
    )
    subprocess.run(typed.err.rpartition("hint: ")[2], shell=True, check=True)
    assert launching.type(verb, job).code == 0
