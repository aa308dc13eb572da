"""Steps that make, change and remove the stack."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from jobs.host.structs import prepared
from tools.prove_azure.session import Said, Session, deny
from tools.prove_azure.unknowns import find_denied

PROVIDERS = frozenset(
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
)
# How `launch env check` calls what it looks at -> the assumption that it settles.
BEFORE = {"region": "U1", "Azure ML": "U34", "cluster": "U9"}
AFTER = {
    "role": "U2",
    "datastore": "U3",
    "default datastores": "U3",
    "managed network": "U4",
    "endpoint": "U11",
    "private endpoints": "U11",
    "workspace": "U5",
}
# Those for which Azure may only need time.
PASSING = ("U2", "U4", "U8", "U11")


class _Tagged(Struct, frozen=True, kw_only=True):
    """Tags of a resource."""

    tags: dict[str, str] | None = None


def look(s: Session) -> None:
    """Ask who is signed in, and which providers are registered."""
    s.az("account", "show", "--output", "json")
    listed = s.az(
        *("provider", "list", "--output", "json"),
        *("--query", "[?registrationState=='Registered'].namespace"),
    )
    missing = sorted(PROVIDERS - set(json.loads(listed.out)))
    if missing:
        deny(f"not registered: {', '.join(missing)}", "U34")
    s.holds("U34")


def ask(s: Session) -> None:
    """Make the empty stack, and ask Azure before anything is made."""
    known = s.pulumi("stack", "--show-name", check=False)
    if known.code != 0:
        s.pulumi("stack", "init")
    said = s.launch("env", "check", "--only", "changes", "--json", check=False)
    _judge(s, _json(said)["offers"] or (), BEFORE)


def up(s: Session) -> None:
    """Make the stack; once more after a while where Azure may only need time."""
    s.record.up_since_s = time.time()
    s.save()
    words = ("up", "--yes", "--skip-preview", "--suppress-outputs")
    said = s.pulumi(*words, check=False)
    if said.code != 0:
        denied = find_denied(said.words)
        if denied is None or denied.id not in PASSING:
            deny(said.words)
        s.denies(denied.id, said.words)
        time.sleep(s.patience.roles_s / 2)
        s.pulumi(*words)
    s.holds("U1", "U2", "U4", "U8", "U9", "U10")
    _remember(s)


def check(s: Session) -> None:
    """Ask every part of the stack whether it can be used."""
    said = s.launch("env", "check", "--only", "parts", "--json", check=False)
    _judge(s, _json(said)["parts"], AFTER)


def settled(s: Session) -> None:
    """Refresh, and preview: nothing may have changed."""
    said = s.pulumi("preview", "--refresh", "--expect-no-changes", "--diff", check=False)
    if said.code != 0:
        lines = [line.strip() for line in said.out.splitlines() if re.match(r"\s*[~+-]", line)]
        changed = [line for line in lines if "pulumi:pulumi:Stack" not in line]
        deny("\n".join(changed)[:900] or said.words, "U12")
    s.holds("U12")


def resize(s: Session) -> None:
    """Change the maximum of the cluster, and read it again."""
    for number in ("1", "2"):
        s.launch("cluster", "resize", "cpu", number)
        listed = json.loads(s.launch("cluster", "ls", "--json").out)
        most = next(each["max_nodes"] for each in listed if each["name"] == "cpu")
        if str(most) != number:
            deny(f"the maximum is {most} after `cluster resize cpu {number}`", "U30")
    s.holds("U30")


def pause(s: Session) -> None:
    """Keep a node warm, and release it."""
    s.launch("cluster", "resume", "cpu", "--nodes", "1", "--yes")
    s.launch("cluster", "pause", "cpu", limit_s=1800.0)
    s.holds("U30", "U31")


def tag(s: Session) -> None:
    """Change the owner, which is a tag of every resource, and look whether Azure has kept it."""
    owner = str(s.settings["owner"])
    s.write_settings({**s.settings, "owner": owner.replace("@", "+again@")})
    s.pulumi("up", "--yes", "--skip-preview", "--suppress-outputs", "--refresh")
    clusters = json.loads(s.launch("env", "show", "--json").out)["clusters"]
    for cluster in clusters.values():
        place = f"{s.record.names['workspace']}/computes/{cluster['compute']}"
        url = f"https://management.azure.com{place}?api-version=2024-04-01"
        tags = (
            msgspec.json.decode(s.az("rest", "--url", url).out, type=prepared(_Tagged)).tags or {}
        )
        if "again" not in tags.get("owner", ""):
            deny(f"the tags of {cluster['compute']} are {tags} after `up`", "U7")
    s.holds("U7")


def change_size(s: Session) -> None:
    """Change the size: a second cluster comes, and the first one goes."""
    clusters: dict[str, Any] = {**_mapping(s.settings["clusters"])}
    clusters["cpu"] = {**clusters["cpu"], "size": "Standard_D2ds_v4"}
    s.write_settings({**s.settings, "clusters": clusters})
    try:
        s.pulumi("up", "--yes", "--skip-preview", "--suppress-outputs", "--refresh")
    finally:
        s.write_settings(s.settings)
    s.holds("U6")


def destroy(s: Session) -> None:
    """Remove the stack, and look whether anything is left."""
    s.pulumi("destroy", "--yes", "--skip-preview")
    _expect_no_group(s)
    s.holds("U6", "U14")


def repair(s: Session) -> None:
    """Take over what a killed `up` has left in Pulumi's record."""
    s.launch("env", "repair", check=False)


def delete_group(s: Session) -> None:
    """Delete the resource group by Azure's own means, and forget the stack."""
    s.az("group", "delete", "--name", _group(s), "--yes", limit_s=3600.0)
    s.pulumi("stack", "rm", "--force", "--yes", "--preserve-config", check=False)
    _expect_no_group(s)


def _expect_no_group(s: Session) -> None:
    if s.az("group", "exists", "--name", _group(s)).out.strip() == "true":
        deny(f"resource group {_group(s)} still exists", "U14")
    s.record.up_since_s = None
    if not s.stack.startswith("dev"):
        s.record.generation += 1  # its vault keeps the name for days
    s.save()


def _group(s: Session) -> str:
    return f"rg-{s.settings['name']}-{s.stack}"


def up_again(s: Session) -> None:
    """Purge the vault, which keeps its name, and make everything under the same names."""
    purge(s)
    up(s)
    s.holds("U13")
    destroy(s)
    purge(s)


def purge(s: Session) -> None:
    """Purge the vault of a stack that was destroyed; test's cannot be, and takes another name."""
    vault = s.record.names.get("vault")
    if vault and s.stack.startswith("dev"):
        s.az("keyvault", "purge", "--name", vault)


def inside(s: Session) -> None:
    """Look whether this machine is inside the network of the private stack."""
    said = s.launch("env", "check", "--only", "parts", "--json", check=False)
    wrong = [each for each in _json(said)["parts"] if not each["ok"]]
    closed = [each for each in wrong if re.search("firewall|private link", each["detail"])]
    if closed:
        deny(f"this machine is outside of the network: {closed[0]['detail']}")


def _remember(s: Session) -> None:
    """Keep names of the environment, which is gone after a destroy."""
    environment = json.loads(s.launch("env", "show", "--json").out)
    uri, account = environment["key_vault"]["uri"], environment["storage"]["account"]
    stage = s.stack.partition("-")[0]
    s.record.names["workspace"] = environment["workspace"]["id"]
    s.record.names["endpoint"] = environment["workspace"]["endpoint"]
    s.record.names["vault"] = uri.removeprefix("https://").partition(".")[0]
    # The workspace's own account differs in the purpose that is part of the name.
    s.record.names["account"] = account.replace(f"{stage}data", f"{stage}ml")


def _judge(s: Session, parts: Sequence[Mapping[str, Any]], settles: Mapping[str, str]) -> None:
    """Note what each part settles; a part that nobody answered for settles nothing."""
    wrong: list[str] = []
    for part in parts:
        name, text = str(part["part"]), f"{part['part']}: {part['detail']}"
        found = next((id_ for start, id_ in settles.items() if name.startswith(start)), None)
        if part["ok"] and found:
            s.holds(found)
        elif not part["ok"] and part.get("known", True):
            wrong.append(text)
            if found:
                denied = find_denied(text, (found,))
                s.denies(denied.id if denied else found, text)
    if wrong:
        deny("\n".join(wrong))


def _json(said: Said) -> dict[str, Any]:
    try:
        return json.loads(said.out)
    except ValueError:
        deny(said.words)


def _mapping(value: object) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value  # pyright: ignore[reportUnknownVariableType]
