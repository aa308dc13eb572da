"""Reads the project.json of scripts that submitted jobs to Batch AI: names of the cluster, experiment and script."""

from __future__ import annotations

from jobs.launching.imports.draft import Project, job_name
from jobs.launching.imports.leaves import Leaves, Place

_TEMPLATE = "ENTER_"
_REASONS = {
    "resourceGroup": "a stack has a resource group of its own, which `pulumi up` makes",
    "workspaceName": "a stack has a workspace of its own: `-s STACK` chooses it",
    "storageAccount": "a stack has a storage account of its own: push the data into it, as README.md says",
    "blobContainerName": "a stack has containers of its own: push the data into them, as README.md says",
}


def read_project(leaves: Leaves, project: Project) -> None:
    """Apply a project.json to the jobs and clusters that were read before it."""
    top = leaves.top
    for leaf in top.leaves():
        if isinstance(leaf.value, str) and leaf.value.startswith(_TEMPLATE):
            leaf.refused("the template's own text stands here: fill it in, and import it again")
    for name, reason in _REASONS.items():
        if place := top.get(name):
            place.refused(reason)
    _read_cluster(top, project)
    _read_experiment(top, project)
    _read_script(top, project)
    if told := top.take_text("logFileShareName"):
        told[1].converted("outputs: `launch fetch` brings them back")
    if told := top.take_text("monitorFileName"):
        told[1].converted("`launch run` and `launch logs` show what all ranks print")


def _read_cluster(top: Place, project: Project) -> None:
    told = top.take_text("clusterName")
    name = told[0].lower() if told else ""
    known = next((each for each in project.clusters if each.known_as.lower() == name), None)
    number, keeps = top.take_number("maxNodes"), top.get("persistCluster")
    if known is None:
        for place in (told and told[1], number and number[1], keeps):
            if place:
                place.refused(
                    "its cluster is not among the documents: import its cluster.json, too"
                )
        return
    if told:
        told[1].converted(f"clusters.{known.name}")
    if number and number[0] >= 1:
        known.max_nodes = number[0]
        number[1].converted(f"clusters.{known.name}.max_nodes")
    elif number:
        number[1].refused("a cluster has one node at least")
    if keeps:
        is_kept = str(keeps.value).lower() == "true"
        known.min_nodes = known.max_nodes if is_kept else 0
        keeps.converted(f"clusters.{known.name}.min_nodes")


def _read_experiment(top: Place, project: Project) -> None:
    told = top.take_text("experimentName")
    if told is None or told[0].startswith(_TEMPLATE):
        return
    if not project.drafts:
        told[1].refused("no job is among the documents: import its job.json, too")
        return
    for draft in project.drafts:
        draft.experiment = draft.experiment or job_name(told[0], "experiment")
    told[1].converted("experiment")


def _read_script(top: Place, project: Project) -> None:
    script, folder = top.take_text("sourceScript"), top.take_text("sourceScriptFileShareDirectory")
    is_known = script is not None and any(
        script[0].rpartition("/")[2] in each.text for each in project.drafts
    )
    for told in (script, folder):
        if told and is_known:
            told[1].converted("command; its folder is given by --code")
        elif told:
            told[1].refused("no job among the documents runs it: import its job.json, too")
