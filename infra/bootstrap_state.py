"""Makes the Azure Blob backend that holds the state of the cloud stacks, once, by the Azure CLI.

A storage account and a key vault in a group of their own, before any stack exists: Pulumi cannot
declare the place of its own state. A step whose thing is there changes nothing, so the program can
be started again after anything: a lost line, a `kill -9`, a colleague who did half of it.

    python -m infra.bootstrap_state --name yard --location swedencentral --allow-ip 203.0.113.7
"""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from infra.regions import Region, find_region, why_no_region

DESCRIPTION = (
    "Make the Azure Blob backend for the state of the cloud stacks; start it as often as you like."
)
CONTAINER = "state"
KEY = "pulumi"
KEY_API = "2023-07-01"
DELETED_KEPT_DAYS = "30"
OLD_VERSIONS_KEPT_DAYS = 90
VAULT_KEPT_DAYS = "90"
# What `az ... show` exits with when there is nothing to show.
NOT_THERE = 3
# A vault's name, the shortest, leaves eleven characters beside "-state-" and six digits.
NAME = re.compile(r"[a-z][a-z0-9]{1,10}")
GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
PRIVATE = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))


class BootstrapError(Exception):
    """A failure that stopped the bootstrap, with what to type next."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """Names and ids of the backend's resources, equal for everybody who types the same `--name`."""

    subscription: str
    group: str
    account: str
    vault: str

    @property
    def container_id(self) -> str:
        account = f"{self._group_id}/providers/Microsoft.Storage/storageAccounts/{self.account}"
        return f"{account}/blobServices/default/containers/{CONTAINER}"

    @property
    def key_id(self) -> str:
        return f"{self._group_id}/providers/Microsoft.KeyVault/vaults/{self.vault}/keys/{KEY}"

    @property
    def _group_id(self) -> str:
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """An object of Entra ID that may use the state."""

    kind: str
    object_id: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command of `az`, left out when `unless` finds the thing already there."""

    title: str
    command: tuple[str, ...]
    unless: tuple[str, ...] | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the backend, or print how; then, on stdout, what to export."""
    options = _parse(arguments)
    try:
        names = name_everything(options.name, options.subscription or _ask("account", "show"))
        principals = [
            *(Principal(kind="Group", object_id=group) for group in options.group),
            *(Principal(kind="ServicePrincipal", object_id=robot) for robot in options.robot),
        ] or [Principal(kind="User", object_id=_ask("ad", "signed-in-user", "show"))]
        steps = plan(names, options.location, options.allow_ip, principals)
        # What follows a failed step would hand out what is not closed yet.
        sys.stdout.write("#!/bin/sh\nset -e\n" if options.dry_run else "")
        for number, step in enumerate(steps, start=1):
            if options.dry_run:
                sys.stdout.write(as_shell(step))
            else:
                sys.stderr.write(f"[{number}/{len(steps)}] {step.title}\n")
                _carry_out(step)
    except BootstrapError as error:
        sys.stderr.write(f"bootstrap_state: {error}\n")
        return 1
    sys.stdout.write(how_to_go_on(names))
    return 0


def name_everything(name: str, subscription: str) -> Names:
    """Derive all names; six digits of the subscription make the global ones unique."""
    digest = hashlib.sha256(f"{subscription.lower()}/state".encode()).hexdigest()[:6]
    return Names(
        subscription=subscription,
        group=f"{name}-state",
        account=f"{name}state{digest}",
        vault=f"{name}-state-{digest}",
    )


def plan(
    names: Names, region: Region, allow_ips: Sequence[str], principals: Sequence[Principal]
) -> list[Step]:
    """List every command, each after what it needs."""
    group = ("group", "create", "--name", names.group, "--location", region.name)
    group += ("--subscription", names.subscription, "--tags", "project=trainyard", "holds=state")
    return [
        Step(title=f"resource group {names.group}", command=group),
        *_storage(names, region, allow_ips),
        *_vault(names, region, allow_ips),
        *(step for principal in principals for step in _roles(names, principal)),
    ]


def as_shell(step: Step) -> str:
    """Write the step as a line of shell, with its title as a comment."""
    command = shlex.join(("az", *step.command))
    if step.unless is not None:
        command = f"{shlex.join(('az', *step.unless))} > /dev/null 2>&1 || {command}"
    return f"# {step.title}\n{command}\n"


def how_to_go_on(names: Names) -> str:
    """Write the exports that a shell needs before `pulumi`; no key is among them."""
    keys = "AZURE_STORAGE_ACCOUNT AZURE_STORAGE_KEY AZURE_STORAGE_SAS_TOKEN"
    provider = f"azurekeyvault://{names.vault}.vault.azure.net/keys/{KEY}"
    return (
        f"export PULUMI_BACKEND_URL='azblob://{CONTAINER}?storage_account={names.account}'\n"
        f"unset {keys} AZURE_STORAGE_CONNECTION_STRING\n"
        f"# then, once for each stack:\n"
        f"#   uv run pulumi stack init dev --secrets-provider='{provider}'\n"
    )


def _storage(names: Names, region: Region, allow_ips: Sequence[str]) -> list[Step]:
    ours = ("--subscription", names.subscription, "--resource-group", names.group)
    account = ("--account-name", names.account, *ours)
    create = ("storage", "account", "create", "--name", names.account, *ours)
    # The state is small and holds everything together. A region without a pair has zones.
    sku = "Standard_GRS" if region.pair else "Standard_ZRS"
    create += ("--location", region.name, "--kind", "StorageV2", "--sku", sku)
    create += ("--https-only", "true", "--min-tls-version", "TLS1_2")
    create += ("--allow-shared-key-access", "false", "--allow-blob-public-access", "false")
    create += ("--allow-cross-tenant-replication", "false", "--require-infrastructure-encryption")
    create += ("--public-network-access", "Enabled", "--default-action", "Deny", "--bypass", "None")
    firewall = ("storage", "account", "network-rule", "add", *account, "--ip-address", *allow_ips)
    undelete = ("storage", "account", "blob-service-properties", "update", *account)
    undelete += ("--enable-versioning", "true")
    undelete += ("--enable-delete-retention", "true", "--delete-retention-days", DELETED_KEPT_DAYS)
    undelete += ("--enable-container-delete-retention", "true")
    undelete += ("--container-delete-retention-days", DELETED_KEPT_DAYS)
    policy = ("storage", "account", "management-policy", "create", *account)
    policy += ("--policy", _lifecycle())
    container = ("storage", "container-rm", "create", "--name", CONTAINER, *ours)
    container += ("--storage-account", names.account, "--public-access", "off")
    return [
        Step(
            title=f"storage account {names.account}: no keys, closed to the network",
            command=create,
            unless=("storage", "account", "show", "--name", names.account, *ours),
        ),
        Step(title=f"its firewall lets in {', '.join(allow_ips)}", command=firewall),
        Step(title="versions, and 30 days to restore deleted blobs", command=undelete),
        Step(title="old versions end after 90 days", command=policy),
        Step(title=f"container {CONTAINER}", command=container),
        _lock(names, names.account, "Microsoft.Storage/storageAccounts"),
    ]


def _vault(names: Names, region: Region, allow_ips: Sequence[str]) -> list[Step]:
    ours = ("--subscription", names.subscription, "--resource-group", names.group)
    create = ("keyvault", "create", "--name", names.vault, *ours, "--location", region.name)
    create += ("--enable-rbac-authorization", "true", "--enable-purge-protection", "true")
    create += ("--retention-days", VAULT_KEPT_DAYS, "--public-network-access", "Enabled")
    create += ("--default-action", "Deny", "--bypass", "None")
    firewall = ("keyvault", "network-rule", "add", "--name", names.vault, *ours)
    firewall += ("--ip-address", *allow_ips)
    # Through ARM: it makes the first version or leaves the key as it is, asks for no role in the
    # vault and does not pass its firewall. RSA, because Pulumi encrypts with RSA-OAEP-256.
    key = {"properties": {"kty": "RSA", "keySize": 3072, "keyOps": ["encrypt", "decrypt"]}}
    url = f"https://management.azure.com{names.key_id}?api-version={KEY_API}"
    put = ("rest", "--method", "put", "--url", url, "--body", json.dumps(key))
    return [
        Step(
            title=f"key vault {names.vault}: roles, purge protection, closed to the network",
            command=create,
            unless=("keyvault", "show", "--name", names.vault, *ours),
        ),
        Step(title=f"its firewall lets in {', '.join(allow_ips)}", command=firewall),
        Step(title=f"key {KEY}", command=put),
        _lock(names, names.vault, "Microsoft.KeyVault/vaults"),
    ]


def _lock(names: Names, resource: str, kind: str) -> Step:
    command = ("lock", "create", "--name", "keep-state", "--lock-type", "CanNotDelete")
    command += ("--subscription", names.subscription, "--resource-group", names.group)
    command += ("--resource", resource, "--resource-type", kind)
    return Step(title=f"a lock on {resource}", command=command)


def _roles(names: Names, principal: Principal) -> list[Step]:
    who = ("--assignee-object-id", principal.object_id)
    who += ("--assignee-principal-type", principal.kind, "--subscription", names.subscription)
    grants = {
        "Storage Blob Data Contributor": names.container_id,
        "Key Vault Crypto User": names.key_id,
    }
    return [
        Step(
            title=f"{role} for {principal.kind} {principal.object_id}",
            command=("role", "assignment", "create", "--role", role, "--scope", scope, *who),
        )
        for role, scope in grants.items()
    ]


def _lifecycle() -> str:
    """Build the rule that deletes old versions: each `up` writes its state some hundred times."""
    version = {"delete": {"daysAfterCreationGreaterThan": OLD_VERSIONS_KEPT_DAYS}}
    filters = {"blobTypes": ["blockBlob"], "prefixMatch": [f"{CONTAINER}/"]}
    rule = {
        "enabled": True,
        "name": "end-old-versions",
        "type": "Lifecycle",
        "definition": {"actions": {"version": version}, "filters": filters},
    }
    return json.dumps({"rules": [rule]})


def _carry_out(step: Step) -> None:
    if step.unless is not None:
        found = _az(*step.unless, "--output", "none")
        if found.returncode == 0:
            return
        if found.returncode != NOT_THERE:
            raise BootstrapError(_failure(found))
    done = _az(*step.command, "--output", "none")
    if done.returncode != 0:
        raise BootstrapError(_failure(done))


def _ask(*command: str) -> str:
    """Ask `az` for an id: of the subscription, or of the user who logged in."""
    answer = _az(*command, "--query", "id", "--output", "tsv")
    if answer.returncode != 0:
        raise BootstrapError(_failure(answer))
    return answer.stdout.strip()


def _az(*command: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("az")
    if program is None:
        problem = "no `az` on PATH; hint: install the Azure CLI, or use the Azure Cloud Shell"
        raise BootstrapError(problem)
    line = [program, *command, "--only-show-errors"]
    return subprocess.run(line, capture_output=True, encoding="utf-8", check=False)


def _failure(process: subprocess.CompletedProcess[str]) -> str:
    # program, command words, then options: enough of it to find the step by.
    words = [word for word in process.args[1:4] if not word.startswith("-")]
    said = process.stderr.strip() or f"exit code {process.returncode}"
    return f"`az {' '.join(words)}` failed: {said}\nhint: correct that and start again; finished steps are kept"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bootstrap_state", description=DESCRIPTION)
    add = parser.add_argument
    add("--name", required=True, type=_name, help="begins every name: 2-11 of a-z0-9")
    add("--location", required=True, type=_region, help="an Azure region, such as swedencentral")
    add(
        "--allow-ip",
        required=True,
        nargs="+",
        type=_address,
        help="public IPv4 addresses or ranges that reach the state",
    )
    add("--subscription", type=_guid, help="its id; default: that of `az login`")
    add(
        "--group",
        nargs="+",
        default=[],
        type=_guid,
        help="object ids of the groups of Entra ID that use the state; default: who is logged in",
    )
    add("--robot", nargs="+", default=[], type=_guid, help="object ids of service principals")
    add("--dry-run", action="store_true", help="print the commands, run none that changes a thing")
    return parser.parse_args(arguments)


def _name(text: str) -> str:
    if NAME.fullmatch(text) is None:
        problem = f"{text!r}: a letter, then 1 to 10 of a-z and 0-9"
        raise argparse.ArgumentTypeError(problem)
    return text


def _region(text: str) -> Region:
    region = find_region(text)
    if region is None:
        raise argparse.ArgumentTypeError(why_no_region(text))
    return region


def _guid(text: str) -> str:
    if GUID.fullmatch(text) is None:
        problem = f"{text!r} is not an id such as 11111111-2222-3333-4444-555555555555"
        raise argparse.ArgumentTypeError(problem)
    return text


def _address(text: str) -> str:
    """Parse an address as storage firewalls take it: IPv4, ranges up to /30, no prefix for one."""
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        problem = f"{text!r} is not a valid IPv4 address or range: {error}"
        raise argparse.ArgumentTypeError(problem) from error
    if network.prefixlen == 31 or any(network.overlaps(private) for private in PRIVATE):
        problem = f"{text!r}: a storage firewall takes public addresses and ranges up to /30"
        raise argparse.ArgumentTypeError(problem)
    return text.removesuffix("/32")


if __name__ == "__main__":
    sys.exit(main())
