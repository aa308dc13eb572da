"""The local stack and a run on it, in an empty home: where they leave files of their own."""

from __future__ import annotations

import os

from jobs.host.cache import cache_root

JOB = """\
name: says
image: pytorch
launcher: none
script: train.py
processes_per_node: 1
"""
# Where torch makes a folder for compiled code as soon as an optimizer steps.
TRAIN = """\
import os
print(os.environ["TORCHINDUCTOR_CACHE_DIR"])
"""


def test_up_a_run_and_destroy_leave_nothing_outside_of_clone_and_cache(project, tmp_path):
    elsewhere = [tmp_path / "elsewhere" / name for name in ("home", "temporary")]
    for folder in elsewhere:
        folder.mkdir(parents=True)
    cache = cache_root(os.environ)
    home, temporary = map(str, elsewhere)
    project.variables |= {"HOME": home, "TMPDIR": temporary, "XDG_CACHE_HOME": str(cache.parent)}
    (project.root / "job.yaml").write_text(JOB)
    (project.root / "train.py").write_text(TRAIN)

    project.up()
    said = project.launch("run", "job.yaml", "--yes").stdout
    project.destroy()

    assert said.count(f"{cache}/torchinductor\n") == 1
    assert [path for folder in elsewhere for path in folder.rglob("*")] == []
