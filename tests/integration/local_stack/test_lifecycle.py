"""Create, update in place, replace, delete, refresh: through the real Pulumi engine."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from azure.storage.blob import ContainerClient

from infra.local import azurite_server
from infra.local.azurite_server import KEY_FILE
from jobs.spec import Environment

BLOB = b"some data"


def test_another_port_restarts_the_same_store_with_its_data(project, new_port):
    project.up()
    project.open_blob().upload_blob(BLOB)
    before = project.server()

    project.settings["storage"]["port"] = new_port()
    said = project.up()

    assert "~ 1 updated" in said
    assert "4 unchanged" in said
    assert project.is_healthy()
    assert project.server().pid != before.pid
    assert project.open_blob().download_blob().readall() == BLOB


def test_another_folder_is_another_store_on_the_same_port(project):
    project.up()
    old_folder = project.storage
    project.open_blob().upload_blob(BLOB)

    project.settings["storage"]["folder"] = "data/other"
    said = project.up()

    assert "+-1 replaced" in said
    assert f"kept: datasets in {old_folder}" in said
    assert project.is_healthy()
    assert not project.open_blob().exists()
    assert (old_folder / "azurite").is_dir()


def test_clusters_come_and_go_without_touching_the_store(project):
    project.up()
    before = project.server()

    project.settings["clusters"]["one"] = {"nodes": 1, "processes_per_node": 1}
    project.settings["clusters"]["cpu"]["nodes"] = 3
    assert "+ 1 created" in project.up()
    shown = project.launch("env", "show", "--json").stdout
    clusters = msgspec.json.decode(shown, type=Environment).clusters
    assert {name: each.max_nodes for name, each in clusters.items()} == {"cpu": 3, "one": 1}

    del project.settings["clusters"]["one"]
    assert "- 1 deleted" in project.up()
    assert project.server() == before


def test_refresh_sees_a_killed_azurite_and_up_brings_it_back_with_its_data(project):
    project.up()
    project.open_blob().upload_blob(BLOB)
    time.sleep(6)  # Azurite writes down its index every 5 s, and forgets the rest when killed
    os.kill(project.server().pid, signal.SIGKILL)

    check = project.launch("env", "check", check=False)
    assert check.returncode == 1
    assert "storage    FAILED" in check.stdout.replace("      ", "    ")
    assert "- 1 deleted" in project.refresh()
    assert "+ 1 created" in project.up()

    assert project.is_healthy()
    assert project.open_blob().download_blob().readall() == BLOB


def test_refresh_sees_a_deleted_container_and_up_makes_it_again(project):
    project.up()
    blob = project.open_blob()
    ContainerClient(
        f"http://127.0.0.1:{project.server().port}/trainyard", "runs", credential=blob.credential
    ).delete_container()
    before = project.server()

    assert "~ 1 updated" in project.refresh()
    assert "~ 1 updated" in project.up()

    assert project.is_healthy()
    assert project.server() == before


def test_start_program_brings_a_killed_azurite_back_and_pulumi_sees_no_change(project):
    project.up()
    os.kill(project.server().pid, signal.SIGKILL)

    program = [sys.executable, "-m", "infra.local.azurite_server"]
    starters = [
        subprocess.Popen([*program, "start", str(project.storage)], stdout=subprocess.DEVNULL)
        for _ in range(3)
    ]

    assert [starter.wait() for starter in starters] == [0, 0, 0]
    assert project.is_healthy()
    assert "5 unchanged" in project.refresh()
    assert "5 unchanged" in project.up("--expect-no-changes")


@pytest.fixture
def running(project):
    """A run that is on: its supervisor's lock is held, by this process."""
    lock = project.workspace / "runs" / "20261121-120000-0001" / "supervisor.lock"
    lock.parent.mkdir(parents=True)
    (project.workspace / "runs" / "20261120-120000-0001").mkdir()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lock.parent.name


def test_destroy_refuses_while_a_run_is_on_and_changes_nothing(project, running):
    project.up()
    before = project.resources()

    said = project.destroy(check=False)

    assert f"while a run is on: {running}" in said
    assert f"launch cancel {running}" in said
    assert "Traceback" not in said
    assert project.is_healthy()
    assert project.resources().keys() == before.keys()
    assert "5 unchanged" in project.up("--expect-no-changes")


def test_a_restart_or_a_replacement_is_refused_while_a_run_is_on(project, running, new_port):
    project.up()
    before = project.server()
    port = project.settings["storage"]["port"]

    project.settings["storage"]["port"] = new_port()
    said = project.up(check=False)
    assert f"will not restart the store while a run is on: {running}" in said

    project.settings["storage"] = {"port": port, "folder": "data/other"}
    said = project.up(check=False)
    assert f"will not end the store while a run is on: {running}" in said

    project.settings["storage"]["folder"] = "data/storage"
    assert "5 unchanged" in project.up("--expect-no-changes")
    assert project.server() == before


def test_destroy_ends_azurite_says_what_it_keeps_and_up_finds_it_again(project):
    project.up()
    project.open_blob().upload_blob(BLOB)

    said = project.destroy()

    assert f"kept: datasets in {project.storage}, runs in {project.workspace}" in said
    assert project.azurites() == []
    assert project.resources() == {}
    shown = project.launch("env", "show", check=False)
    assert shown.returncode == 2
    assert "stack `local` is not up" in shown.stderr
    assert "uv run pulumi up -s local" in shown.stderr

    project.up()
    assert project.is_healthy()
    assert project.open_blob().download_blob().readall() == BLOB


def test_destroy_works_when_azurite_is_dead_already(project):
    project.up()
    azurite_server.stop(project.storage)

    project.destroy()

    assert project.resources() == {}
    assert Path(project.storage, KEY_FILE).exists()
