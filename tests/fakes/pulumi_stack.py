"""A project folder with a shell script in Pulumi's place and a stack's record."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime

import pytest

from jobs.contracts.errors import LaunchError

ENVIRONMENT = {
    "schema": 1,
    "stack": "local",
    "engine": "local",
    "location": "local",
    "subscription_id": None,
    "resource_group": None,
    "workspace": {"name": "w", "id": "w", "endpoint": "file:///w"},
    "storage": {
        "account": "trainyard",
        "blob_endpoint": "http://127.0.0.1:10100/trainyard",
        "containers": {"data": "data", "runs": "runs"},
        "folder": "/s",
    },
    "registry": None,
    "key_vault": None,
    "clusters": {
        "cpu": {
            "compute": "cpu-1",
            "size": "local",
            "gpus_per_node": 0,
            "cpus_per_node": 1,
            "processes_per_node": 2,
            "rdma": False,
            "priority": "dedicated",
            "min_nodes": 2,
            "max_nodes": 2,
            "idle_s": 0,
            "price_per_node_hour": 0,
            "currency": None,
        }
    },
    "images": {},
}
# Every start of Pulumi leaves a line in `calls`.
PULUMI = """#!/bin/sh
echo "$@" >> "{root}/calls"
cat "{root}/stderr" >&2
cat "{root}/output"
exit $(cat "{root}/code")
"""


class FakeProject:
    """A project folder with a stand-in for Pulumi and a stack's record."""

    def __init__(self, root):
        self.root = root
        self.state = root / ".trainyard/state/.pulumi/stacks/trainyard/local.json"
        self.locks = root / ".trainyard/state/.pulumi/locks/organization/trainyard/local"
        (root / "Pulumi.yaml").write_text("name: trainyard\nruntime: python\n")
        (root / "Pulumi.local.yaml").touch()
        wrapper = root / ".venv/bin/pulumi"
        for folder in (wrapper.parent, self.state.parent, self.locks):
            folder.mkdir(parents=True)
        wrapper.write_text(PULUMI.format(root=root))
        wrapper.chmod(0o755)
        self.say(ENVIRONMENT)
        self.record()

    def say(self, output=None, *, stderr="", code=0):
        text = output if isinstance(output, str) else json.dumps(output)
        (self.root / "output").write_text(text)
        (self.root / "stderr").write_text(stderr)
        (self.root / "code").write_text(str(code))

    def record(self, *, pending=(), resources=({"urn": "u"},)):
        latest = {"resources": list(resources), "pending_operations": list(pending)}
        self.state.write_text(json.dumps({"version": 3, "checkpoint": {"latest": latest}}))

    def calls(self):
        file = self.root / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def lock(self, pid, *, hostname=None, taken=None, name="a"):
        content = {
            "pid": pid,
            "username": "ada",
            "hostname": hostname or socket.gethostname(),
            "timestamp": (taken or datetime.now(UTC)).isoformat(),
        }
        path = self.locks / f"{name}.json"
        path.write_text(json.dumps(content))
        return path


def error_of(call, kind=LaunchError):
    with pytest.raises(kind) as caught:
        call()
    return caught.value
