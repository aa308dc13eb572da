"""An imported job of Batch AI finds its variables, mounts and preparation on two nodes of the stand-in Azure."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure
from tests.integration.test_import import ARGUMENTS, PROBE, PROBE_JOB, SCRIPT


def test_a_script_finds_every_variable_of_batch_ai(azure: FakeAzure, tmp_path: Path) -> None:
    launch = AzureLaunch(azure, tmp_path)
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "probe.py").write_text(PROBE)
    (folder / "helper.py").write_text("")
    settings = {"pyTorchSettings": {"pythonScriptFilePath": SCRIPT, "commandLineArgs": ARGUMENTS}}
    file, made = tmp_path / "job.json", tmp_path / "made"
    file.write_text(json.dumps({"properties": {"nodeCount": 2, **settings, **PROBE_JOB}}))
    words = ["import", str(file), "--code", str(folder), "--into", str(made), "--json"]
    imported = launch.type(*words, with_environment=False)
    assert imported.code == 0, imported.out + imported.err
    (made / "data" / "data" / "in").mkdir()
    (made / "data" / "data" / "in" / "word.txt").write_text("hello")
    done = launch.type("run", str(made / "job.yaml"), "-y", "--no-fetch")
    assert done.code == 0, done.out + done.err
    probed = sorted(line for line in done.out.splitlines() if "probed" in line)
    assert probed == ["[0] probed 0 2", "[1] probed 1 2"]
