"""Functions of `trainyard` against `launch --json`, of verbs that need Azure: the stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import trainyard
from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure
from tests.trainyard.steady import AGES, steady

# Costs grow while nodes are idle.
CHANGING = AGES | {"amount"}


@pytest.mark.usefixtures("arm_client")
def test_runs_clusters_and_stacks_by_functions_are_those_of_the_verbs(
    azure: FakeAzure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = AzureLaunch(azure, tmp_path)
    for name, value in launch.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRAINYARD_PRICES")  # both ask the stand-in
    env = launch.env_file
    run = trainyard.run(launch.write_job(), yes=True, env=env)
    run.wait()
    told = {
        "ls": trainyard.ls(env=env),
        f"show {run.id}": run.show(),
        f"report {run.id} --no-picture": trainyard.report([run.id], no_picture=True, env=env),
        "cluster ls": trainyard.cluster.ls(env=env),
        "cluster show cpu": trainyard.cluster.show("cpu", env=env),
        "env show": trainyard.env.show(env=env),
        "env check": trainyard.env.check(env=env),
        "model ls": trainyard.model.ls(env=env),
        "data ls": trainyard.data.ls(env=env),
    }
    for words, value in told.items():
        typed = launch.type(*words.split(), "--json")
        assert steady(value, CHANGING) == steady(json.loads(typed.out), CHANGING), words
    assert [each["id"] for each in told["ls"]] == [run.id]
    assert told["cluster ls"][0]["name"] == "cpu"
