"""What is in the way of `pulumi up` is said clearly, breaks nothing, and the next `up` works."""

from __future__ import annotations

import json
import os
import socket
import subprocess

import pytest

from infra.local import azurite_server
from tests.busy import wait_until
from tests.mounts import mount_tmpfs, unmount

needs_mount = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small tmpfs")


@pytest.fixture
def mount(project):
    """A file system of its own under the project's `data`, made so by its options."""
    folder = project.root / "data"
    folder.mkdir()

    def run(options):
        mount_tmpfs(folder, options)

    yield run
    azurite_server.stop(project.storage)
    if folder.is_mount():
        unmount(folder)


def listen(port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_a_busy_port_of_a_new_store_is_named(project):
    port = project.settings["storage"]["port"]
    with listen(port):
        said = project.up(check=False)
    assert f"port {port} of 127.0.0.1 is in use by another program" in said
    assert "Traceback" not in said

    project.up()
    assert project.is_healthy()


@pytest.mark.faults
def test_a_busy_port_to_move_to_is_named_before_anything_is_stopped(standing, new_port):
    before = standing.server()
    port = standing.settings["storage"]["port"] = new_port()
    with listen(port):
        said = standing.up(check=False)
    assert f"port {port} of 127.0.0.1 is in use by another program" in said
    assert standing.server() == before

    standing.up()
    assert standing.is_healthy()


@pytest.mark.faults
@needs_mount
def test_a_full_disk_is_named_and_up_works_when_there_is_room(project, mount):
    mount("size=1m")
    said = project.up(check=False)
    assert f"the disk of {project.storage} is full" in said
    assert "Traceback" not in said
    assert project.azurites() == []

    mount("remount,size=64m")
    project.up()
    assert project.is_healthy()


@pytest.mark.faults
@needs_mount
def test_a_folder_that_cannot_be_written_to_is_named(project, mount):
    mount("ro,size=64m")
    said = project.up(check=False)
    data = project.root / "data"
    assert f"trainyard:storage.folder: no permission to write in {data}" in said
    assert f"trainyard:workspace.folder: no permission to write in {data}" in said

    mount("remount,rw,size=64m")
    project.up()
    assert project.is_healthy()


@pytest.mark.faults
def test_an_azurite_that_does_not_start_is_explained_and_the_one_before_runs_on(standing):
    before = standing.server()
    tools = standing.root / ".trainyard" / "tools.json"
    good = tools.read_text()
    broken = standing.root / "broken.js"
    broken.write_text("console.error('the dog ate it'); process.exit(1)")
    tools.write_text(json.dumps(json.loads(good) | {"azurite": str(broken)}))
    said = standing.up(check=False)
    tools.write_text(good)

    assert "Azurite ended at once: the dog ate it" in said
    assert "Traceback" not in said
    assert standing.is_healthy()
    assert standing.server().command == before.command
    assert "5 unchanged" in standing.up("--expect-no-changes")


def test_a_live_lock_is_not_repaired_and_names_its_owner(project):
    up = subprocess.Popen(
        project.pulumi_command("up", "-s", "local", "--yes", "--skip-preview"),
        cwd=project.root,
        env=project.environment_variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    locks = project.root / ".trainyard/state/.pulumi/locks/organization/trainyard/local"
    wait_until(lambda: [*locks.glob("*.json")], 120, lambda: "no lock yet", over=up.poll)
    repair = project.launch("env", "repair", "-s", "local", check=False)
    assert up.wait() == 0

    assert repair.returncode == 3
    assert f"pid {up.pid}" in repair.stderr
    assert "the process is alive" in repair.stderr
    assert project.is_healthy()
