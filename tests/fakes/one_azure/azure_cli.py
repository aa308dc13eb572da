"""Stands in for `az`: the few commands that tools/prove_azure types, over a subscription's files.

Run as `python azure_cli.py FOLDER WORDS...`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SECRETS = "secrets.json"
GUID = "0b1ec700-0000-4000-8000-00000000a2ee"


def main(folder: Path, words: list[str]) -> int:
    """Answer one command; 3 and a line on stderr where there is none such."""
    options = dict(zip(words, [*words[1:], ""], strict=True))
    match words:
        case ["account", "show", *_]:
            print(json.dumps(account()))
        case ["provider", "list", *_]:
            print(json.dumps(list_providers(folder)))
        case ["ad", "signed-in-user", "show", *_]:
            print(GUID)
        case ["keyvault", "show", *_]:
            print(find(folder, options["--name"]))
        case ["role", "assignment", "create", *_]:
            pass
        case _:
            return change(folder, words, options)
    return 0


def change(folder: Path, words: list[str], options: dict[str, str]) -> int:
    """Answer a command about what the subscription holds."""
    match words:
        case ["keyvault", "secret", "set", *_]:
            secrets = read_secrets(folder)
            value = Path(options["--file"]).read_text(encoding="utf-8")
            (folder / SECRETS).write_text(json.dumps({**secrets, options["--name"]: value}))
        case ["keyvault", "purge", *_]:
            purge(folder, options["--name"])
        case ["group", "exists", *_]:
            print(str(bool(find(folder, options["--name"]))).lower())
        case ["group", "delete", *_]:
            delete_group(folder)
        case ["rest", *_]:
            return ask(options)
        case ["storage", "blob", "list", *_]:
            print("\n".join(list_blobs(options)))
        case _:
            print(f"ERROR: '{' '.join(words)}' is misspelled or not recognized", file=sys.stderr)
            return 3
    return 0


def account() -> dict[str, Any]:
    """Show who is signed in, as `az account show` does."""
    return {
        "id": "5b1c7d1e-0000-4000-8000-00000000a2ee",
        "tenantId": "7e4a11d0-0000-4000-8000-00000000a2ee",
        "name": "stand-in",
        "state": "Enabled",
        "user": {"name": "ada@example.com", "type": "user"},
    }


PROVIDERS = [
    f"Microsoft.{name}"
    for name in (
        "Authorization",
        "Compute",
        "Consumption",
        "ContainerRegistry",
        "Insights",
        "KeyVault",
        "MachineLearningServices",
        "ManagedIdentity",
        "Network",
        "OperationalInsights",
        "Storage",
    )
]


def list_providers(folder: Path) -> list[str]:
    """List the registered providers."""
    file = folder / "troubles.json"
    deviations = json.loads(file.read_text()).get("deviations", []) if file.exists() else []
    return PROVIDERS[:-1] if "provider-unregistered" in deviations else PROVIDERS


def read_secrets(folder: Path) -> dict[str, str]:
    """Read the secrets that were stored so far."""
    file = folder / SECRETS
    return json.loads(file.read_text()) if file.exists() else {}


def find(folder: Path, name: str) -> str:
    """Find a resource's id by its name; empty where there is none."""
    resources = read_state(folder).get("resources", {})
    return next((each["id"] for each in resources.values() if each["id"].endswith(f"/{name}")), "")


def purge(folder: Path, name: str) -> None:
    """Forget a deleted vault."""
    state = read_state(folder)
    state["deleted"] = {
        key: each for key, each in state["deleted"].items() if not each["id"].endswith(f"/{name}")
    }
    (folder / "resources.json").write_text(json.dumps(state))


def delete_group(folder: Path) -> None:
    """Forget every resource, as the deletion of a group does."""
    state = read_state(folder)
    (folder / "resources.json").write_text(json.dumps({**state, "resources": {}}))


def ask(options: dict[str, str]) -> int:
    """Ask a service of Azure's with the login that the environment names; 1 where it refuses."""
    import requests
    from azure.identity import EnvironmentCredential

    token = EnvironmentCredential().get_token("https://management.azure.com/.default").token
    body = options.get("--body", "").removeprefix("@")
    answer = requests.request(
        options.get("--method", "get"),
        options["--url"],
        data=Path(body).read_bytes() if body else None,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        timeout=300,
    )
    print(answer.text, file=sys.stdout if answer.ok else sys.stderr)
    return 0 if answer.ok else 1


def list_blobs(options: dict[str, str]) -> list[str]:
    """List names of the storage, with the login that the environment names."""
    from azure.identity import EnvironmentCredential
    from azure.storage.blob import BlobServiceClient

    address = f"https://{options['--account-name']}.blob.core.windows.net"
    client = BlobServiceClient(address, credential=EnvironmentCredential())
    container = client.get_container_client(options["--container-name"])
    return [each.name for each in container.list_blobs(options["--prefix"])]


def read_state(folder: Path) -> dict[str, Any]:
    """Read the subscription."""
    file = folder / "resources.json"
    return json.loads(file.read_text()) if file.exists() else {}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
