"""Create, update in place, replace, delete, refresh: through the real Pulumi engine."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from infra.local import azurite_server
from infra.local.azurite_server import KEY_FILE
from tests.busy import wait_until

BLOB = b"some data"


def test_the_store_is_used_by_the_sdk_and_a_second_up_changes_nothing(standing):
    assert standing.is_healthy()
    blob = standing.open_blob()
    blob.upload_blob(b"some data")
    assert blob.download_blob().readall() == b"some data"
    assert "5 unchanged" in standing.up("--expect-no-changes")
    assert "5 unchanged" in standing.pulumi("preview", "-s", "local", "--expect-no-changes").stdout
    assert standing.is_healthy()


def test_another_port_restarts_the_same_store_with_its_data(standing, new_port):
    standing.open_blob().upload_blob(BLOB, overwrite=True)
    before = standing.server()

    standing.settings["storage"]["port"] = new_port()
    said = standing.up()

    assert "~ 1 updated" in said
    assert "4 unchanged" in said
    assert standing.is_healthy()
    assert standing.server().pid != before.pid
    assert standing.open_blob().download_blob().readall() == BLOB


def test_another_folder_is_another_store_on_the_same_port(standing):
    old_folder = standing.storage
    standing.open_blob().upload_blob(BLOB, overwrite=True)

    standing.settings["storage"]["folder"] = "data/another"
    said = standing.up()

    assert "+-1 replaced" in said
    assert f"kept: datasets in {old_folder}" in said
    assert standing.is_healthy()
    assert not standing.open_blob().exists()
    assert (old_folder / "azurite").is_dir()


def test_refresh_sees_a_killed_azurite_and_up_brings_it_back_with_its_data(standing):
    standing.open_blob().upload_blob(BLOB, overwrite=True)
    index = standing.storage / "azurite" / "__azurite_db_blob__.json"
    written = index.stat().st_mtime_ns
    # Azurite writes down its index every 5 s, and forgets the rest when killed.
    wait_until(
        lambda: index.stat().st_mtime_ns != written, what=lambda: "Azurite's index is the old one"
    )
    os.kill(standing.server().pid, signal.SIGKILL)

    check = standing.launch("env", "check", check=False)
    assert check.returncode == 1
    assert re.search(r"^storage +FAILED", check.stdout, re.MULTILINE)
    assert "- 1 deleted" in standing.refresh()
    assert "+ 1 created" in standing.up()

    assert standing.is_healthy()
    assert standing.open_blob().download_blob().readall() == BLOB


@pytest.mark.faults
def test_refresh_sees_a_deleted_container_and_up_makes_it_again(standing):
    blob = standing.open_blob()
    ContainerClient(
        f"http://127.0.0.1:{standing.server().port}/trainyard", "runs", credential=blob.credential
    ).delete_container()
    before = standing.server()

    assert "~ 1 updated" in standing.refresh()
    assert "~ 1 updated" in standing.up()

    assert standing.is_healthy()
    assert standing.server() == before


@pytest.mark.faults
def test_start_program_brings_a_killed_azurite_back_and_pulumi_sees_no_change(standing):
    os.kill(standing.server().pid, signal.SIGKILL)

    program = [sys.executable, "-m", "infra.local.azurite_server"]
    starters = [
        subprocess.Popen([*program, "start", str(standing.storage)], stdout=subprocess.DEVNULL)
        for _ in range(3)
    ]

    assert [starter.wait() for starter in starters] == [0, 0, 0]
    assert standing.is_healthy()
    assert "5 unchanged" in standing.refresh()
    assert "5 unchanged" in standing.up("--expect-no-changes")


@pytest.fixture
def running(standing):
    """A run that is on: its supervisor's lock is held, by this process."""
    lock = standing.workspace / "runs" / "20261121-120000-0001" / "supervisor.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    (standing.workspace / "runs" / "20261120-120000-0001").mkdir(exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lock.parent.name


def test_destroy_refuses_while_a_run_is_on_and_changes_nothing(standing, running):
    before = standing.resources()

    said = standing.destroy(check=False)

    assert f"while a run is on: {running}" in said
    assert f"launch cancel {running}" in said
    assert "Traceback" not in said
    assert standing.is_healthy()
    assert standing.resources().keys() == before.keys()
    assert "5 unchanged" in standing.up("--expect-no-changes")


@pytest.mark.faults
def test_a_restart_or_a_replacement_is_refused_while_a_run_is_on(standing, running, new_port):
    before = standing.server()
    declared = dict(standing.settings["storage"])

    standing.settings["storage"]["port"] = new_port()
    said = standing.up(check=False)
    assert f"will not restart the store while a run is on: {running}" in said

    standing.settings["storage"] = declared | {"folder": "data/never"}
    said = standing.up(check=False)
    assert f"will not end the store while a run is on: {running}" in said

    standing.settings["storage"] = declared
    assert "5 unchanged" in standing.up("--expect-no-changes")
    assert standing.server() == before


def test_destroy_works_when_azurite_is_dead_already(standing):
    azurite_server.stop(standing.storage)

    standing.destroy()

    assert standing.resources() == {}
    assert Path(standing.storage, KEY_FILE).exists()
