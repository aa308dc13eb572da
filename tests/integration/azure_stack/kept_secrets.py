"""What a stack's exported state keeps in clear that nobody may see, outputs included."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.azure_stack.conftest import CloudProject
from tests.secret_shapes import find_secrets

# Azure tells these to who makes an Application Insights, asked or not.
PLANTED = ("connectionString", "instrumentationKey")


def find_kept_secrets(project: CloudProject) -> list[str]:
    """Everything that looks like a secret, and the stand-in's own that are known."""
    exported = project.root / "exported.json"
    project.pulumi("stack", "export", "--file", str(exported), "-s", project.stack)
    state = json.loads(exported.read_text())
    # Which key encrypts the rest; the salt of a passphrase is in the stack's file as well.
    state["deployment"].pop("secrets_providers")
    text = json.dumps(_without_ciphertext(state))
    planted = {
        name: each["outputs"][name]
        for each in project.live().values()
        for name in PLANTED
        if name in each["outputs"]
    }
    assert planted.keys() == set(PLANTED), "the stand-in gives no secret that could be kept"
    return find_secrets(text) + [name for name, secret in planted.items() if secret in text]


def _without_ciphertext(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_ciphertext(each) for key, each in value.items() if key != "ciphertext"
        }
    return [_without_ciphertext(each) for each in value] if isinstance(value, list) else value
