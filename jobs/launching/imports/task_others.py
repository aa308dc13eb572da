"""Reads task files of SkyPilot, dstack and TorchX, as far as they have equals."""

from __future__ import annotations

import shlex
from pathlib import Path
from string import Template

from jobs.host.units import parse_duration
from jobs.launching.imports.draft import RESERVED_NAMES, Project, job_name, unique
from jobs.launching.imports.leaves import Leaves, Place
from jobs.launching.imports.task_draft import NODES_OF_STACK, TaskDraft

_GPUS = "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')"
_SKY_VARIABLES = (
    'export SKYPILOT_NODE_RANK="$RANK" SKYPILOT_NUM_NODES="$WORLD_SIZE" '
    f'SKYPILOT_NODE_IPS="$MASTER_ADDR" SKYPILOT_NUM_GPUS_PER_NODE="{_GPUS}"'
)
_DSTACK_VARIABLES = (
    'export DSTACK_NODE_RANK="$RANK" DSTACK_NODES_NUM="$WORLD_SIZE" '
    f'DSTACK_MASTER_NODE_IP="$MASTER_ADDR" DSTACK_GPUS_PER_NODE="{_GPUS}"'
)
_DATA = "push it by `launch data push FOLDER NAME`, and name it in `inputs`: the program reads $TRAINYARD_INPUT_NAME"
_PORTS = "a run opens no port: `launch report RUN` draws its figures"
_ALONE = "a stack decides it: Pulumi.<stack>.yaml"
_SKY_REASONS = {
    "resources": NODES_OF_STACK,
    "file_mounts": _DATA,
    "storage_mounts": _DATA,
    "volumes": _DATA,
    "service": "a run serves nothing: it ends when its program does",
    "config": _ALONE,
    "experimental": _ALONE,
}
_DSTACK_REASONS = {
    "resources": NODES_OF_STACK,
    "instance_types": NODES_OF_STACK,
    "fleets": NODES_OF_STACK,
    "backends": NODES_OF_STACK,
    "regions": NODES_OF_STACK,
    "spot_policy": "a cluster decides it: `priority: low_priority` in Pulumi.<stack>.yaml",
    "ports": _PORTS,
    "volumes": _DATA,
    "files": "the code travels from its folder: set `code`",
    "repos": "the code travels from its folder: set `code`",
    "registry_auth": "nodes pull by their cluster's identity: copy the image into the stack's registry",
    "python": "the image has its own Python: set `image`",
    "nvcc": "the image has its own CUDA: set `image`",
}
_TORCHX_REASONS = {
    "resource": NODES_OF_STACK,
    "port_map": _PORTS,
    "mounts": _DATA,
    "base_image": "the job has one image",
    "min_replicas": "a run has all of its nodes, or waits for them",
    "metadata": "it is no part of the run",
}
# What stands for them between the single quotes of a shell.
_MACROS = {
    "replica_id": "'\"${RANK}\"'",
    "rank0_env": "MASTER_ADDR",
    "app_id": "'\"${TRAINYARD_RUN_DIR##*/}\"'",
}
_IMAGE_MACROS = {"img_root", "base_img_root"}
_MOST_RETRIES = 10


def read_skypilot(leaves: Leaves, name: str, path: Path, project: Project) -> bool:
    """Read a task of SkyPilot, whose `run` is started once on each node."""
    task = TaskDraft(leaves, name, path, project)
    top = task.top
    task.name(top.get("name"))
    _one_rank_a_node(task, "num_nodes")
    resources = top.get("resources")
    image = resources.get("image_id") if resources else None
    if image and str(image.value).startswith("docker:"):
        task.image(image)
    task.variables(top.get("envs"))
    task.variables(top.get("secrets"), are_secret=True)
    task.code(top.get("workdir"))
    task.setup(top.get("setup"))
    task.refuse(_SKY_REASONS)
    text = task.command(top.get("run"), "command")
    return task.finish(f"{_SKY_VARIABLES}\n{text}" if text else "")


def read_dstack(leaves: Leaves, name: str, path: Path, project: Project) -> bool:
    """Read a task of dstack, whose commands are started once on each node."""
    task = TaskDraft(leaves, name, path, project)
    top = task.top
    if kind := top.get("type"):
        kind.converted("the format of the document")
    task.name(top.get("name"))
    _one_rank_a_node(task, "nodes")
    task.image(top.get("image"))
    task.variables(top.get("env"))
    folder = top.get("working_dir")
    if folder and (task.folder / task.text_of(folder)).is_dir():
        task.code(folder)
    else:
        task.code(folder, task.folder)
    limit = top.get("max_duration")
    if limit and task.text_of(limit).lower() in ("off", "false"):
        limit.converted("a run has no limit of its own")
    elif limit:
        text = task.text_of(limit)
        task.wall_clock(limit, float(text) if text.isdecimal() else parse_duration(text))
    task.refuse(_DSTACK_REASONS)
    text = task.command(top.get("commands"), "command")
    return task.finish(f"{_DSTACK_VARIABLES}\nset -e\n{text}" if text else "")


def _one_rank_a_node(task: TaskDraft, key: str, of: Place | None = None) -> None:
    """Take the nodes, each with one rank."""
    task.nodes(key, of=of)
    task.draft.launcher = "torch" if task.draft.nodes > 1 else "none"


def read_torchx(leaves: Leaves, name: str, path: Path, project: Project) -> bool:
    """Read an application of TorchX (an AppDef, as `torchx run --dryrun` shows it): a job for each role."""
    top = leaves.top
    told, has_any = top.get("name"), False
    for role in top.list("roles"):
        task = TaskDraft(leaves, name, path, project)
        names = [task.text_of(each) for each in (told, role.get("name")) if each]
        _name_of_role(task, told, role, "-".join(dict.fromkeys(names)))
        _one_rank_a_node(task, "num_replicas", role)
        task.image(role.get("image"))
        task.variables(role.get("env"))
        _retries(task, role)
        task.code(None, task.folder)
        task.refuse(_TORCHX_REASONS, role)
        if task.finish(_words(task, role)):
            has_any = True
    if metadata := top.get("metadata"):
        metadata.refuse_rest("it is no part of the run")
    return has_any


def _name_of_role(task: TaskDraft, told: Place | None, role: Place, text: str) -> None:
    places = [each for each in (told, role.get("name")) if each]
    if task.project.vault.holds(text):
        for each in places:
            each.refused("it looks like a secret: set `name`")
        return
    taken = [*RESERVED_NAMES, *(each.name for each in task.project.drafts)]
    task.draft.name = unique(job_name(text, task.draft.name), taken)
    for each in places:
        each.converted("name")


def _retries(task: TaskDraft, role: Place) -> None:
    told, policy = role.take_number("max_retries"), role.get("retry_policy")
    if told and 0 <= told[0] <= _MOST_RETRIES:
        task.draft.retry = told[0]
        told[1].converted("retry.max")
    elif told:
        told[1].refused(f"a job is started again {_MOST_RETRIES} times at most")
    if policy:
        policy.converted("retry: all ranks are started again")


def _words(task: TaskDraft, role: Place) -> str:
    """Take the entry point and its arguments as words, with the macros as the rank's own values."""
    entry, arguments = role.get("entrypoint"), role.get("args")
    if entry is None or not task.text_of(entry):
        return ""
    words: list[str] = []
    for text, place in [*task.texts(entry), *task.texts(arguments)]:
        if "\0" in text:
            place.refused("it holds a NUL")
            continue
        if _IMAGE_MACROS.intersection(Template(text).get_identifiers()):
            place.refused("it names the image's folder, in which the run is: write the path itself")
            continue
        place.converted("command")
        words.append(task.safe(shlex.quote(text), place, fill=_with_macros))
    return " ".join(words)


def _with_macros(quoted: str) -> str:
    """Fill the macros of a quoted word as TorchX does: `$$` is a dollar, and other names stay."""
    filled = Template(quoted).safe_substitute(_MACROS)
    return quoted if filled == quoted else filled.removeprefix("''").removesuffix("''")
