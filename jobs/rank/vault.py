"""Fetches a job's secrets from its key vault, by the identity of the node; never onto a disk."""

from __future__ import annotations

import json
from urllib.parse import quote, urlsplit

from jobs.rank.identity import VAULT, Identity, RankError
from jobs.rank.services import Service

API_VERSION = "7.4"


def fetch_secrets(vault: str, wanted: dict[str, str], identity: Identity) -> dict[str, str]:
    """Give each variable its secret's value; raises RankError for the first that is not to be had."""
    service = Service(vault.rstrip("/"), VAULT, identity)
    return {name: _fetch(service, secret) for name, secret in wanted.items()}


def _fetch(service: Service, secret: str) -> str:
    vault = (urlsplit(service.endpoint).hostname or "").partition(".")[0]
    answer = service.ask("GET", f"/secrets/{quote(secret)}?api-version={API_VERSION}")
    if answer.status == 200:
        return str(json.loads(answer.body)["value"])
    message = f"secret `{secret}` cannot be read from the key vault {vault}: "
    if answer.status == 404:
        hint = f"az keyvault secret set --vault-name {vault} --name {secret} --file FILE"
        raise RankError(message + "there is none of that name", hint)
    if answer.status == 403 and "forbiddenby" in answer.text.lower():
        hint = "the vault's network rules must let the cluster's network in"
        raise RankError(message + "its firewall refuses the node (403)", hint)
    if answer.status in (401, 403):
        hint = (
            f"name `{secret}` under trainyard:secrets of the stack and run pulumi up: the "
            "clusters' identity needs Key Vault Secrets User on it"
        )
        message += f"the cluster's identity may not ({answer.status})"
        raise RankError(message, hint)
    raise RankError(message + answer.why, "look at the vault, then start the run again")
