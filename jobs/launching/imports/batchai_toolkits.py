"""Turns the toolkit settings of a Batch AI job into a launcher, its size, and the text of its program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.contracts.spec import Launcher
from jobs.launching.imports.draft import MOST_NODES, MOST_PROCESSES, Draft, Project
from jobs.launching.imports.leaves import Place
from jobs.launching.imports.shell_text import (
    Unwrapped,
    double_quoted,
    literal,
    objection,
    starts_mpi,
    unwrap_mpi,
)

LIVE: Mapping[str, str] = {
    "horovodSettings": "Horovod",
    "pyTorchSettings": "PyTorch",
    "tensorFlowSettings": "TensorFlow",
    "customMpiSettings": "MPI",
    "customToolkitSettings": "a custom toolkit",
}
DEAD: Mapping[str, str] = {
    "cntkSettings": "CNTK",
    "caffeSettings": "Caffe",
    "caffe2Settings": "Caffe2",
    "chainerSettings": "Chainer",
}
TOOLKITS = {**LIVE, **DEAD}
_COUNTS = ("processCount", "numberOfProcesses")
_PYTHON = re.compile(r"(?:.*/)?python(?P<version>[0-9.]*)\Z")
_BACKENDS = {"gloo": "gloo", "nccl": "nccl", "mpi": "mpi"}


@dataclass(kw_only=True)
class Program:
    """The program of a job: the text that bash runs, the places of its parts, and the paths of its scripts."""

    launcher: Launcher
    text: str
    texts: list[str]
    nodes: int
    processes_per_node: int = 1
    parameter_servers: int = 0
    backend: str = "gloo"
    has_tasks: bool = False
    script: str | None = None
    script_place: Place | None = None


def read_program(body: Place, draft: Draft, project: Project) -> Program | None:
    """Read the one toolkit of a job that can run; refuses the others. None where nothing can run."""
    given = [(name, body.section(name)) for name in TOOLKITS]
    found = [(name, place) for name, place in given if place]
    live = [each for each in found if each[0] in LIVE or project.choices.as_mpi]
    for name, place in found:
        if (name, place) != (live[0] if live else None):
            place.refuse_rest(_why_refused(name, project, has_live=bool(live)))
    if not live:
        return None
    name, settings = live[0]
    nodes = _nodes(body)
    reader = _Toolkit(settings, nodes, draft, project)
    if name == "customMpiSettings":
        return reader.mpi_command(body)
    if name == "customToolkitSettings":
        return reader.first_node_command(body)
    if name == "tensorFlowSettings":
        return reader.tensorflow(body)
    return reader.python(name, body)


def _why_refused(name: str, project: Project, *, has_live: bool) -> str:
    if name in LIVE or (project.choices.as_mpi and has_live):
        return "a job has one toolkit, and this job has another before it: make two jobs of them"
    what = f"{DEAD[name]} is not developed any more, and no image of ours has it"
    return f"{what}: port the script, or carry it on as MPI by --as-mpi in an image of your own"


def _nodes(body: Place) -> int:
    told = body.take_number("nodeCount")
    if told is None:
        return 1
    number, place = told
    if 1 <= number <= MOST_NODES:
        place.converted("nodes")
        return number
    place.refused(f"a job has 1 to {MOST_NODES} nodes: the job file has 1; correct `nodes` there")
    return 1


@dataclass(kw_only=True)
class _Size:
    nodes: int
    per_node: int


def _refuse_nodes(body: Place, size: _Size) -> None:
    if nodes := body.get("nodeCount"):
        number = size.nodes * size.per_node
        nodes.refused(
            f"{number} processes need no more than {size.nodes} nodes: the job has so many"
        )


class _Toolkit:
    """Reads the settings of one toolkit."""

    def __init__(self, settings: Place, nodes: int, draft: Draft, project: Project) -> None:
        self._settings, self._nodes = settings, nodes
        self._draft, self._project = draft, project

    def python(self, name: str, body: Place) -> Program | None:
        """Read Horovod, PyTorch, and the dead frameworks as MPI."""
        size = self._size(body, self._settings.take_number(*_COUNTS))
        backend, launcher = "gloo", "mpi"
        if name == "horovodSettings":
            launcher = "horovod"
        elif name == "pyTorchSettings":
            backend = self._backend()
            is_single = size.nodes * size.per_node == 1
            launcher = "mpi" if backend == "mpi" else "none" if is_single else "torch"
        start = self._start(name)
        if start is None:
            return None
        arguments = self._arguments("commandLineArgs")
        text = f"{start} {arguments}".strip()
        return self._program(launcher, text, [start, arguments], size, backend=backend)

    def mpi_command(self, body: Place) -> Program | None:
        """Read a command that Batch AI started by mpirun."""
        size = self._size(body, self._settings.take_number(*_COUNTS))
        text = self._command()
        return None if text is None else self._program("mpi", text, [text], size)

    def first_node_command(self, body: Place) -> Program | None:
        """Read a command that Batch AI started on the first node only; an mpirun in it is taken off."""
        told = self._settings.take_text("commandLine")
        if told is None or not starts_mpi(told[0]):
            if self._nodes > 1 and (place := body.get("nodeCount")):
                place.refused(
                    "the command of a custom toolkit runs on the first node only, so the job has one; "
                    "if it starts others itself, make it customMpiSettings"
                )
            text = self._command()
            return (
                None
                if text is None
                else self._program("none", text, [text], _Size(nodes=1, per_node=1))
            )
        found = unwrap_mpi(told[0])
        reason = found if isinstance(found, str) else self._objection_to(found)
        size = None if isinstance(found, str) else self._unwrapped_size(found)
        if reason or size is None or isinstance(found, str):
            why = reason or f"its processes do not divide by {self._nodes} nodes"
            told[1].refused(
                f"the ranks are started by `launch`, and {why}: write the program alone as customMpiSettings"
            )
            return None
        if size.nodes != self._nodes:
            _refuse_nodes(body, size)
        text = self._safe(found.program, told[1])
        told[1].converted("command, without its mpirun; launcher: mpi")
        return self._program("mpi", text, [text], size)

    def tensorflow(self, body: Place) -> Program | None:
        """Read TensorFlow's three sets of arguments: of the master, the workers and the servers."""
        workers = self._settings.take_number("workerCount")
        servers = self._settings.take_number("parameterServerCount")
        names = ("masterCommandLineArgs", "workerCommandLineArgs", "parameterServerCommandLineArgs")
        is_distributed = bool(workers or servers or self._nodes > 1)
        start = self._start("tensorFlowSettings")
        if start is None:
            return None
        master, worker, server = (self._arguments(each) for each in names)
        if not is_distributed:
            # Two more sets belong to no process of a job of one.
            for name in names[1:]:
                if place := self._settings.get(name):
                    place.refused(
                        "the job has one process, which is the master: give `workerCount`"
                    )
            size = _Size(nodes=1, per_node=1)
            return self._program("none", f"{start} {master}".strip(), [start, master], size)
        size = self._size(body, workers, "workerCount")
        num_servers = self._num_servers(servers)
        if self._settings.get(names[1]) is None:
            worker = master
        lines = [
            'if [ "$RANK" -ge "$WORLD_SIZE" ]; then',
            f"  {start} {server}".rstrip(),
            'elif [ "$RANK" = 0 ]; then',
            f"  {start} {master}".rstrip(),
            "else",
            f"  {start} {worker}".rstrip(),
            "fi",
        ]
        program = self._program(
            "tensorflow", "\n".join(lines), [start, master, worker, server], size
        )
        program.parameter_servers, program.has_tasks = num_servers, True
        return program

    def _num_servers(self, told: tuple[int, Place] | None) -> int:
        if told is None:
            return 1
        number, place = told
        if 0 <= number <= MOST_PROCESSES:
            place.converted("parameter_servers")
            return number
        place.refused(f"a job has up to {MOST_PROCESSES} parameter servers: the job file has 1")
        return 1

    def _program(
        self, launcher: Launcher, text: str, texts: list[str], size: _Size, *, backend: str = "gloo"
    ) -> Program:
        script = self._settings.get("pythonScriptFilePath", "commandLine")
        path = script.value if script and isinstance(script.value, str) else ""
        return Program(
            launcher=launcher,
            text=text,
            texts=texts,
            nodes=size.nodes,
            processes_per_node=size.per_node,
            backend=backend,
            script=path or None,
            script_place=script,
        )

    def _start(self, name: str) -> str | None:
        """Write what starts the program: an interpreter and its script, or a dead framework's own program."""
        told = self._settings.take_text("pythonScriptFilePath")
        config = self._settings.take_text("configFilePath")
        if told and not objection(told[0]) and told[0].strip():
            told[1].converted("command")
            if config:
                config[1].refused("a job has a script or a configuration: make two jobs of them")
            return f"{self._interpreter()} {self._quoted(told[0].strip(), told[1])}"
        if told:
            told[1].refused(objection(told[0]) or "the path is empty: name the script")
        program = {
            "cntkSettings": "cntk configFile=",
            "caffeSettings": "caffe train --solver=",
        }.get(name)
        if config and program and not objection(config[0]):
            config[1].converted("command")
            return f"{program}{self._quoted(config[0].strip(), config[1])}"
        self._settings.refuse_rest(
            "without `pythonScriptFilePath` there is nothing to run: name the script"
        )
        return None

    def _quoted(self, path: str, place: Place) -> str:
        return literal(double_quoted(self._without_secrets(path, place)))

    def _interpreter(self) -> str:
        told = self._settings.take_text("pythonInterpreterPath")
        if language := self._settings.take_text("languageType"):
            language[1].converted("command")
        if told is None:
            return "python"
        found = _PYTHON.match(told[0])
        if found and found["version"].startswith("2"):
            told[1].refused("Python 2 is not in any image: the job runs in the image's Python 3")
        elif found or objection(told[0]) or not told[0].strip():
            told[1].converted("command: `python` is the image's own")
        else:
            told[1].converted("command")
            return self._quoted(told[0].strip(), told[1])
        return "python"

    def _arguments(self, name: str) -> str:
        told = self._settings.take_text(name)
        if told is None:
            return ""
        if problem := objection(told[0]):
            told[1].refused(f"{problem}: correct it, and add it to the job's `command`")
            return ""
        told[1].converted("command")
        return self._safe(told[0].replace("\r\n", "\n").strip(), told[1])

    def _command(self) -> str | None:
        told = self._settings.take_text("commandLine")
        if told is None:
            self._settings.refuse_rest(
                "without `commandLine` there is nothing to run: name the command"
            )
            return None
        problem = objection(told[0]) or (None if told[0].strip() else "it is empty")
        if problem:
            told[1].refused(f"{problem}: correct the command line")
            return None
        told[1].converted("command")
        return self._safe(told[0].replace("\r\n", "\n").strip(), told[1])

    def _safe(self, text: str, place: Place) -> str:
        return literal(self._without_secrets(text, place))

    def _without_secrets(self, text: str, place: Place) -> str:
        text, names = self._draft.without_secrets(text, self._project.vault, "ARGUMENT_SECRET")
        if names:
            place.converted(f"command; secrets: {', '.join(names)}")
        return text

    def _backend(self) -> str:
        told = self._settings.take_text("communicationBackend")
        if told is None:
            return "gloo"
        backend = _BACKENDS.get(told[0].lower())
        if backend is None:
            told[1].refused(
                "PyTorch has the backends gloo, nccl and mpi: the job has gloo; check the script"
            )
            return "gloo"
        told[1].kept("AZ_BATCHAI_PYTORCH_BACKEND")
        return backend

    def _size(
        self, body: Place, told: tuple[int, Place] | None, name: str = "processCount"
    ) -> _Size:
        """Divide a total of processes by the nodes; without one each node has one."""
        if told is None:
            return _Size(nodes=self._nodes, per_node=1)
        number, place = told
        if 1 <= number < self._nodes:
            place.converted("nodes")
            size = _Size(nodes=number, per_node=1)
            _refuse_nodes(body, size)
            return size
        per_node, rest = divmod(number, self._nodes)
        if number >= 1 and not rest and per_node <= MOST_PROCESSES:
            place.converted("processes_per_node")
            return _Size(nodes=self._nodes, per_node=per_node)
        per_node = min(max(1, per_node), MOST_PROCESSES)
        place.refused(
            f"`{name}` is a total that does not divide by {self._nodes} nodes into 1 to {MOST_PROCESSES} "
            f"processes: the job has {per_node} a node; change `nodes` or `processes_per_node`"
        )
        return _Size(nodes=self._nodes, per_node=per_node)

    def _unwrapped_size(self, found: Unwrapped) -> _Size | None:
        total = found.processes or (found.per_node or 1) * self._nodes
        if (
            found.per_node
            and total % found.per_node == 0
            and total // found.per_node <= self._nodes
        ):
            return _Size(nodes=total // found.per_node, per_node=found.per_node)
        if total <= self._nodes:
            return _Size(nodes=total, per_node=1)
        per_node, rest = divmod(total, self._nodes)
        return (
            None
            if rest or per_node > MOST_PROCESSES
            else _Size(nodes=self._nodes, per_node=per_node)
        )

    def _objection_to(self, found: Unwrapped) -> str | None:
        problem = objection(found.program)
        return "another `mpirun` is in it" if starts_mpi(found.program) else problem
