"""Reads jobs of Azure ML: the command job of `az ml` version 2 (YAML), and the run configuration of version 1."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from pathlib import Path

from jobs.contracts.spec import Launcher
from jobs.launching.imports.draft import (
    DraftInput,
    Project,
    is_variable,
    job_name,
    variable_name,
)
from jobs.launching.imports.leaves import Leaves, Place
from jobs.launching.imports.shell_text import double_quoted
from jobs.launching.imports.task_draft import NODES_OF_STACK, UNUSED, TaskDraft

_FORMAT = "the format of the document"
_PLACEHOLDER = re.compile(r"\$\{\{ *(?P<kind>inputs|outputs)\.(?P<name>[A-Za-z_]\w*) *\}\}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_SHM = re.compile(r"[1-9][0-9]{0,8}[bkmg]\Z")
_V2_REASONS = {
    "compute": NODES_OF_STACK,
    "identity": "nodes have the identity of their cluster: docs/azure.md",
    "services": "a run opens no port: `launch report RUN` draws its figures",
    "parent_job_name": "a run has no parent",
}
_MOST_SERVERS = 256
_LAUNCHERS: Mapping[str, Launcher] = {
    "pytorch": "torch",
    "mpi": "mpi",
    "tensorflow": "tensorflow",
}


def read_command_job(leaves: Leaves, name: str, path: Path, project: Project) -> bool:
    """Read a command job of `az ml job create --file`."""
    task = TaskDraft(leaves, name, path, project)
    top, draft = task.top, task.draft
    task.name(top.get("name") or top.get("display_name"))
    for key in ("$schema", "type"):
        if place := top.get(key):
            place.converted(_FORMAT)
    if place := top.get("experiment_name"):
        _experiment(task, place)
    task.tags(top.get("tags"))
    resources, spread = top.section("resources"), top.section("distribution")
    if resources:
        task.nodes("instance_count", of=resources)
        _shm_size(task, resources.get("shm_size"))
        task.refuse({"instance_type": NODES_OF_STACK}, resources)
        task.refuse(
            {"docker_args": "containers are started by `launch`: shm_size is its choice"}, resources
        )
    if spread:
        _distribution(task, spread)
    _environment(task, top.get("environment"))
    task.variables(top.get("environment_variables"))
    task.code(top.get("code"))
    if limits := top.section("limits"):
        told = limits.take_number("timeout")
        task.wall_clock(told[1] if told else None, told[0] if told else None)
    values = _inputs(task, top.section("inputs"))
    for each in _members(top.section("outputs")):
        _output(task, each)
    task.refuse(_V2_REASONS)
    if place := top.get("display_name"):
        place.converted("name") if place.is_told or not top.get("name") else place.refused(
            "a job has one name, which is `name`"
        )
    if place := top.get("description"):
        place.refused("it is no part of the run: write it as a comment above the job")
    text = task.command(top.get("command"), "command")
    return task.finish(_filled(text, values, draft.inputs, draft.outputs))


def _members(place: Place | None) -> list[Place]:
    return place.members() if place else []


def _experiment(task: TaskDraft, place: Place) -> None:
    text = task.text_of(place)
    if task.project.vault.holds(text):
        place.refused("it looks like a secret: set `experiment`")
        return
    task.draft.experiment = job_name(text, "experiment")
    place.converted("experiment")


def _shm_size(task: TaskDraft, place: Place | None) -> None:
    if place is None:
        return
    text = task.text_of(place).lower()
    if _SHM.match(text):
        task.draft.shm_size = text
        place.converted("shm_size")
    else:
        place.refused("it is no size such as 8g: set `shm_size`")


def _distribution(task: TaskDraft, spread: Place) -> None:
    kind = spread.get("type", "distribution_type")
    if kind and (launcher := _LAUNCHERS.get(task.text_of(kind).lower())):
        task.draft.launcher = launcher
        kind.converted("launcher")
    elif kind:
        kind.refused("`launch` starts pytorch, mpi and tensorflow: set `launcher`")
    task.processes(spread.take_number("process_count_per_instance"))
    task.processes(spread.take_number("worker_count"), is_total=True)
    if servers := spread.take_number("parameter_server_count"):
        _servers(task, *servers)


def _environment(task: TaskDraft, place: Place | None) -> None:
    """Take the image of an environment; one of the workspace by name has no equal."""
    if place is None:
        return
    if isinstance(place.value, dict):
        task.image(place.get("image"))
        place.refuse_rest("its packages belong into a requirements file: set `requirements`")
        return
    named = task.text_of(place).lower()
    task.draft.image = "tensorflow" if "tensorflow" in named or "keras" in named else "pytorch"
    place.refused(
        f"an environment of a workspace is not here: the job has the image {task.draft.image}; set `image` "
        "and `requirements`"
    )


def _inputs(task: TaskDraft, section: Place | None) -> dict[str, str]:
    """Take inputs: folders and files of one's own become inputs, plain values stand in the command."""
    values: dict[str, str] = {}
    for each in _members(section):
        name = each.key.rpartition(".")[2]
        if not isinstance(each.value, dict):
            text = task.text_of(each)
            each.converted("command")
            values[name] = task.safe(text, each)
            continue
        path, mode = each.take_text("path"), each.get("mode")
        here = task.folder / path[0] if path else None
        if not is_variable(name) or path is None or here is None:
            each.refused("an input needs a path, and a name that a variable can be called by")
            continue
        is_remote = re.match(r"[a-z]+:", path[0]) or not here.exists()
        folder = task.project.folder_for(
            variable_name(name), f"the input {name} of {task.draft.name}"
        )
        task.draft.inputs[name] = DraftInput(
            source=f"the input {name} of {task.draft.name}", folder=folder
        )
        how = "put its files there" if is_remote else "copy its files there"
        path[1].converted(f"inputs.{name}, the folder {folder}: {how}, as README.md says")
        _read_kind(task, each.get("type"), name, path[0], values)
        if mode:
            mode.converted(
                f"inputs.{name}: files are downloaded; `mode: mount` is the other choice"
            )
    return values


def _read_kind(
    task: TaskDraft, kind: Place | None, name: str, path: str, values: dict[str, str]
) -> None:
    """Take the type of an input: the program is given the path of a file, and the folder of anything else."""
    if kind is None:
        return
    file = path.rpartition("/")[2]
    if kind.value != "uri_file":
        kind.converted(f"inputs.{name}")
    elif _FILE.match(file) and not task.project.vault.holds(file):
        values[name] = f"${{inputs.{name}}}/{file}"
        kind.converted(f"inputs.{name}, whose file {file} stands in the command")
    else:
        kind.refused(
            "the program gets the folder: add the file's name behind the input in `command`"
        )


def _output(task: TaskDraft, place: Place) -> None:
    name = place.key.rpartition(".")[2]
    if not is_variable(name) or name.upper() in {each.upper() for each in task.draft.outputs}:
        place.refused("an output needs a name that a variable can be called by")
        return
    task.draft.outputs.append(name)
    if path := place.get("path"):
        path.refused("each run has an output folder of its own, which `launch fetch` brings back")
    for leaf in place.leaves():
        if not leaf.is_told:
            leaf.converted(f"outputs.{name}")


def _filled(
    text: str, values: dict[str, str], inputs: Container[str], outputs: Container[str]
) -> str:
    """Put our placeholders in place of theirs, and plain values in place of those that name them."""

    def fill(found: re.Match[str]) -> str:
        kind, name = found["kind"], found["name"]
        if kind == "inputs" and name in values:
            return values[name]
        known = inputs if kind == "inputs" else outputs
        return f"${{{kind}.{name}}}" if name in known else f"$${{{kind}.{name}}}"

    return _PLACEHOLDER.sub(fill, text)


_SECTIONS = (
    *("spark", "hdi", "paralleltask", "kubernetescompute", "dataBricks", "containerInstance"),
    *(
        "history",
        "hdInsight",
        "amlk8scompute",
        "autoClusterComputeSpecification",
        "snapshotProject",
    ),
    *("tensorflow", "mpi", "pytorch", "prepareEnvironment", "autoPrepareEnvironment"),
)
_V1_REASONS = {
    "target": NODES_OF_STACK,
    "amlcompute": NODES_OF_STACK,
    "dataReferences": "push the data by `launch data push FOLDER NAME`, and name it in `inputs`",
    "data": "push the data by `launch data push FOLDER NAME`, and name it in `inputs`",
    "outputData": "name it in `outputs`: `launch fetch` brings it back",
    "sourceDirectoryDataStore": "the code travels from its folder: `code`",
    "identity": "nodes have the identity of their cluster: docs/azure.md",
    "credentialPassthrough": "nodes have the identity of their cluster: docs/azure.md",
    "services": "a run opens no port: `launch report RUN` draws its figures",
}


def read_run_configuration(leaves: Leaves, name: str, path: Path, project: Project) -> bool:
    """Read a run configuration (`.runconfig`) of Azure ML's first version."""
    task = TaskDraft(leaves, name, path, project)
    top = task.top
    task.name(top.get("jobName"))
    task.nodes("nodeCount")
    told = top.take_number("maxRunDurationSeconds")
    if told and told[0] == 0:
        told[1].converted("a run has no limit of its own")
    else:
        task.wall_clock(told[1] if told else None, told[0] if told else None)
    can_run = _framework(task)
    is_inner = task.folder.name in (".azureml", "aml_config")
    task.code(None, task.folder.parent if is_inner else task.folder)
    _run_environment(task, top.section("environment"))
    task.variables(top.get("environmentVariables"))
    if docker := top.section("docker"):
        _shm_size(task, docker.get("shmSize"))
        docker.refuse_rest("containers are started by `launch`")
    text = _program(task) if can_run else ""
    task.refuse(_V1_REASONS)
    for each in _SECTIONS:
        for leaf in found.leaves() if (found := top.get(each)) else ():
            if not leaf.is_told:
                leaf.converted(UNUSED)
    return task.finish(text)


def _framework(task: TaskDraft) -> bool:
    """Take framework and communicator as a launcher; False for one that cannot run here."""
    framework, communicator = task.top.get("framework"), task.top.get("communicator")
    name = task.text_of(framework).lower() if framework else "python"
    way = task.text_of(communicator).lower() if communicator else "none"
    if name not in ("python", "pytorch", "tensorflow"):
        if framework:
            framework.refused("`launch` runs Python, PyTorch and TensorFlow: this one has no equal")
        return False
    if way in ("mpi", "openmpi", "intelmpi", "horovod"):
        task.draft.launcher = "mpi"
        _processes(task, "mpi", "processCountPerNode", is_total=False)
    elif name == "pytorch" or way in ("gloo", "nccl"):
        task.draft.launcher = "torch"
        _processes(task, "pytorch", "processCount", is_total=True)
    elif way == "parameterserver":
        task.draft.launcher = "tensorflow"
        _processes(task, "tensorflow", "workerCount", is_total=True)
    task.draft.image = "tensorflow" if name == "tensorflow" else "pytorch"
    for place, became in ((framework, "image"), (communicator, "launcher")):
        if place:
            place.converted(became)
    return True


def _processes(task: TaskDraft, name: str, key: str, *, is_total: bool) -> None:
    section = task.top.section(name)
    if section is None:
        return
    task.processes(section.take_number(key), is_total=is_total)
    if servers := section.take_number("parameterServerCount"):
        _servers(task, *servers)


def _servers(task: TaskDraft, number: int, place: Place) -> None:
    if 0 <= number <= _MOST_SERVERS:
        task.draft.parameter_servers = number
        place.converted("parameter_servers")
    else:
        place.refused(f"a job has up to {_MOST_SERVERS} parameter servers: set `parameter_servers`")


def _run_environment(task: TaskDraft, section: Place | None) -> None:
    if section is None:
        return
    task.variables(section.get("environmentVariables"))
    docker = section.section("docker")
    if docker:
        _shm_size(task, docker.get("shmSize"))
        image = docker.get("baseImage")
        if image and task.text_of(image).startswith("mcr.microsoft.com/azureml/"):
            image.converted(f"image: {task.draft.image}, in place of Azure ML's base image")
        else:
            task.image(image)
        docker.refuse_rest(
            "nodes pull by their cluster's identity, and containers are started by `launch`"
        )
    section.refuse_rest("its packages belong into a requirements file: set `requirements`")


def _program(task: TaskDraft) -> str:
    script, arguments = task.top.get("script"), task.top.get("arguments")
    command = task.top.get("command")
    if script is None or not task.text_of(script):
        return task.command(command, "command")
    words = ["python", double_quoted(task.text_of(script))]
    words += [double_quoted(text) for text, _ in task.texts(arguments)]
    if command:
        command.refused("a run has a script or a command: this one has a script")
    code = task.draft.code
    if code is None or not (code / task.text_of(script)).is_file():
        script.refused("no folder has the script: give the folder that has it by --code DIR")
        task.draft.code = task.project.choices.code
    else:
        script.converted("command")
    if arguments:
        arguments.converted("command")
    return task.safe(" ".join(words), arguments or script)
