"""azureml-core's own lock is what uv.lock says of the extra `azureml-v1`."""

import shlex
import subprocess

from jobs.engines.azure_ml_v1.sdk import LOCK
from jobs.images.runtimes import PROJECT, find_uv


def test_the_lock_is_an_export_of_the_extra(tmp_path):
    text = LOCK.read_text()
    # The second line is the command that wrote the file; it asks no index.
    program, *words = shlex.split(text.splitlines()[1].lstrip("# "))
    assert (program, words[:1], words[-2]) == ("uv", ["export"], "-o")
    command = [find_uv(PROJECT), *words[:-2], "--offline", "--quiet", "--no-header"]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    locked = "".join(line for line in text.splitlines(keepends=True)[2:])
    assert done.stdout == locked


def test_it_has_nothing_that_azureml_core_does_not_ask_for():
    named = {line.partition("==")[0] for line in LOCK.read_text().splitlines() if "==" in line}
    assert {"azureml-core", "setuptools"} <= named
    assert named & {"matplotlib", "msgspec", "typer", "pulumi", "torch"} == set()
