"""State in a blob container, as docs/azure-state.md has it: a killed `up` is mended from there too."""

from __future__ import annotations

import getpass
import json
import os
import signal

import pytest

from infra.local import azurite_server
from infra.local.azurite_server import Server
from tests.fakes.azure_native import HANG_AFTER
from tests.ports import free_port
from tests.pulumi_project import REPO, TOOLS

pytestmark = pytest.mark.faults


@pytest.fixture
def project(new_project, tmp_path):
    """A stack `dev` whose state is in an Azurite of the test's own."""
    made = new_project("dev")
    tools = json.loads((REPO / TOOLS).read_text())
    store = tmp_path / "store"
    wanted = Server(
        account="trainyard",
        port=free_port(),
        node=tools["node"],
        azurite=tools["azurite"],
        containers=("state",),
    )
    azurite_server.start(store, wanted)
    made.variables |= {
        "PULUMI_BACKEND_URL": "azblob://state",
        "AZURE_STORAGE_ACCOUNT": "trainyard",
        "AZURE_STORAGE_KEY": (store / azurite_server.KEY_FILE).read_text(),
        "AZURE_STORAGE_DOMAIN": f"127.0.0.1:{wanted.port}",
        "AZURE_STORAGE_PROTOCOL": "http",
        "AZURE_STORAGE_IS_LOCAL_EMULATOR": "true",
    }
    made.pulumi("stack", "init", "dev")
    yield made
    azurite_server.stop(store)


def recorded(project):
    """Ids of what the stack has made, as its exported record has them."""
    deployment = json.loads(project.pulumi("stack", "export", "-s", "dev").stdout)["deployment"]
    assert not deployment.get("pending_operations")
    return {
        each["id"] for each in deployment["resources"] if each["type"].startswith("azure-native:")
    }


def test_a_killed_up_is_mended_by_cancel_repair_and_up(project):
    project.script(failures=[HANG_AFTER | {"type": "*:keyvault:Vault"}])
    waiting = project.start_up()
    project.wait_until_used_up(waiting)
    said = project.up(check=False)
    assert "the stack is currently locked" in said
    assert f"{getpass.getuser()}@" in said
    refused = project.launch("env", "repair", "-s", "dev", check=False)
    assert refused.returncode == 3
    assert "pulumi cancel" in refused.stderr

    os.kill(waiting.pid, signal.SIGKILL)
    waiting.wait()
    project.pulumi("cancel", "--yes", "-s", "dev")
    repaired = project.launch("env", "repair", "-s", "dev").stdout
    assert "taken over: cloud-vault, whose creation was interrupted" in repaired
    project.up()
    assert recorded(project) == project.live().keys()
