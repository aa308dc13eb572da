"""Reads clusters and file servers of Batch AI (cluster.json, nfs.json) into the `clusters:` block."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from jobs.launching.imports.batchai_mounts import read_mounts
from jobs.launching.imports.batchai_variables import ROOT, Mount
from jobs.launching.imports.draft import MOST_NODES, DraftCluster, Project, unique
from jobs.launching.imports.leaves import Leaves, Place
from jobs.launching.imports.sizes import choose_size

_STATE = (
    *("id", "type", "etag", "resourceGroup", "creationTime", "provisioningState", "errors"),
    *("provisioningStateTransitionTime", "allocationState", "allocationStateTransitionTime"),
    *("currentNodeCount", "nodeStateCounts", "mountSettings"),
)
_STATE_REASON = "the state of a cluster that is gone: `launch cluster ls` shows yours"
LONGEST_NAME = 9
_PRIORITIES: Mapping[str, Literal["dedicated", "low_priority"]] = {
    "dedicated": "dedicated",
    "lowpriority": "low_priority",
}
_ACCOUNT = "nodes have no accounts and no ssh: `launch shell` starts an image here, `launch logs` shows ranks"


def read_cluster(leaves: Leaves, name: str, project: Project) -> list[Mount]:
    """Read a cluster into the project; gives the mounts that its jobs see."""
    top = leaves.top
    body = top.section("properties") or top
    told = top.take_text("name") or body.take_text("name")
    known_as = told[0] if told and not project.vault.holds(told[0]) else name
    cluster = DraftCluster(
        name=_short(known_as, project), file=leaves.file, known_as=known_as, size=""
    )
    if told:
        told[1].converted(f"clusters.{cluster.name}")
    _read_envelope(top, body)
    _read_size(body, cluster)
    _read_scale(body, cluster)
    mounts = _read_setup(body.section("nodeSetup"), project)
    _refuse_machine(body)
    project.clusters.append(cluster)
    return mounts


def _short(name: str, project: Project) -> str:
    """Write a name in the nine small letters, digits and dashes that a cluster's has."""
    letters = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    letters = letters if letters[:1].isalpha() else f"c{letters}"
    short = letters[:LONGEST_NAME].strip("-") or "cluster"
    taken = [each.name for each in project.clusters]
    if short not in taken:
        return short
    base = short[: LONGEST_NAME - 3].strip("-")
    return unique(base, [*taken, base])


def _read_envelope(top: Place, body: Place) -> None:
    for name in ("$schema", "apiVersion"):
        if place := top.get(name):
            place.converted("the format of the document")
    for each in _STATE:
        for place in (top.get(each), body.get(each)):
            if place:
                place.refused(_STATE_REASON)
    for place in (top.get("location"), body.get("location")):
        if place:
            place.refused(
                "a stack has one location: set `trainyard:location` in Pulumi.<stack>.yaml"
            )


def _read_size(body: Place, cluster: DraftCluster) -> None:
    told = body.take_text("vmSize")
    chosen = choose_size(told[0] if told else "")
    cluster.size = chosen.size
    if told and chosen.is_known:
        told[1].converted(f"clusters.{cluster.name}.size: {chosen.sentence}")
        cluster.remarks.append(chosen.sentence)
    elif told:
        told[1].refused(
            f"clusters cannot have this size: {chosen.size} stands in its place; choose from docs/azure.md#sizes"
        )
    told = body.take_text("vmPriority")
    if told is None:
        return
    named = _PRIORITIES.get(told[0].lower())
    if named is None:
        told[1].refused("a priority is dedicated or lowpriority: the cluster is dedicated")
    else:
        cluster.priority = named
        told[1].converted(f"clusters.{cluster.name}.priority")


def _read_scale(body: Place, cluster: DraftCluster) -> None:
    scale = body.section("scaleSettings")
    if scale is None:
        return
    automatic, manual = scale.section("autoScale"), scale.section("manual")
    if automatic:
        low, high = (
            automatic.take_number("minimumNodeCount"),
            automatic.take_number("maximumNodeCount"),
        )
        cluster.max_nodes = _count(high, 1, cluster.max_nodes, f"clusters.{cluster.name}.max_nodes")
        cluster.min_nodes = _count(low, 0, 0, f"clusters.{cluster.name}.min_nodes")
        cluster.min_nodes = min(cluster.min_nodes, cluster.max_nodes)
        if first := automatic.get("initialNodeCount"):
            if first.value == 0:
                first.converted("a cluster starts without nodes")
            else:
                first.refused(
                    "nodes start when a job needs them: `launch cluster resume` starts some before"
                )
    if manual is None:
        return
    target, option = manual.take_number("targetNodeCount"), manual.get("nodeDeallocationOption")
    if automatic:
        manual.refuse_rest("a cluster scales by hand or by itself: `autoScale` is taken")
        return
    if target and target[0] == 0:
        cluster.is_paused = True
        target[1].converted(f"clusters.{cluster.name}.min_nodes: 0")
    elif target:
        count = _count(
            target, 1, cluster.max_nodes, f"clusters.{cluster.name}.max_nodes and min_nodes"
        )
        cluster.min_nodes = cluster.max_nodes = count
        cluster.remarks.append(
            f"its {count} nodes are paid for at all times; with min_nodes: 0 only while jobs run"
        )
    if option:
        option.refused(
            "nodes in use are never taken away: a cluster shrinks when its jobs are over"
        )


def _count(told: tuple[int, Place] | None, least: int, default: int, became: str) -> int:
    if told is None:
        return default
    number, place = told
    if least <= number <= MOST_NODES:
        place.converted(became)
        return number
    place.refused(
        f"the block takes {least} to {MOST_NODES} nodes: it has {default}; correct it there"
    )
    return default


def _read_setup(setup: Place | None, project: Project) -> list[Mount]:
    if setup is None:
        return []
    task = setup.section("setupTask")
    if task:
        for each in task.list("secrets"):
            if (value := each.get("value")) and isinstance(value.value, str):
                project.vault.learn(value.value)
        task.refuse_rest(
            "no program runs on a node outside of a job: put it into the jobs' `setup`, or into the image"
        )
    if counters := setup.section("performanceCountersSettings"):
        counters.refuse_rest(
            "a stack has an Application Insights of its own, and `launch` keeps the metrics of runs"
        )
    volumes = setup.section("mountVolumes")
    if volumes is None:
        return []
    return read_mounts(volumes, ROOT, project.vault)


def _refuse_machine(body: Place) -> None:
    if account := body.section("userAccountSettings"):
        account.refuse_rest(_ACCOUNT)
    if machine := body.get("virtualMachineConfiguration"):
        machine.refuse_rest(
            "Azure ML chooses the system of its nodes: what a job needs is in its image"
        )
    if subnet := body.get("subnet"):
        subnet.refuse_rest("a stack has a network of its own: see docs/azure.md#settings")


def read_file_server(leaves: Leaves) -> None:
    """Read a file server, which nothing here is: each leaf is refused with what takes its place."""
    top = leaves.top
    body = top.section("properties") or top
    for name in ("$schema", "apiVersion"):
        if place := top.get(name):
            place.refused("the document is of a file server, of which nothing is converted")
    access = body.section("sshConfiguration")
    account = access.section("userAccountSettings") if access else None
    if account:
        account.refuse_rest(_ACCOUNT)
    top.refuse_rest(
        "there is no file server: jobs read data from the blob store; push what lay on it by "
        "`launch data push FOLDER NAME`"
    )
