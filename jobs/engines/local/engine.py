"""Runs jobs on this machine: each is a gang of processes under a supervisor of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from re import Pattern
from typing import TYPE_CHECKING

import msgspec

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import (
    DatasetVersion,
    Environment,
    JobSpec,
    LogLine,
    Plan,
    RunHandle,
    RunState,
)
from jobs.datasets.records import DatasetRecord
from jobs.engines.base import Beside
from jobs.engines.local.beside import beside, command_processes
from jobs.engines.local.containers import (
    PYTHON,
    find_program,
    image_id,
    make_ready,
    notes_on_containers,
    remove_orphans,
)
from jobs.engines.local.devices import ON_THE_CPU, why_on_the_cpu, with_visible_gpus
from jobs.engines.local.launchers import gang_request, read_request
from jobs.engines.local.layers import find_pip, layer_folder, make_layer, note_on_index
from jobs.engines.local.loopback import rank_library, why_unguarded
from jobs.engines.local.runs import LocalRuns, has_record
from jobs.engines.local.submission import inherited_environment, submit_run
from jobs.host import console
from jobs.host.gpus import count_gpus
from jobs.host.processes import kill_leftovers, send, supervisors_of
from jobs.host.project import sources_folder
from jobs.images.references import is_reference
from jobs.jobfile.resolve import require_cluster
from jobs.runs import supervision
from jobs.runs.fetch import fetch_run
from jobs.runs.logs import read_logs, watch_logs
from jobs.runs.run_folder import is_over
from jobs.runs.supervision import Handover

if TYPE_CHECKING:
    from jobs.engines.local.removal import LocalRemoval

KILL_TIMEOUT_S = 5.0


def image_runtime(image: str) -> Path:
    """Give the interpreter that realises an image of the project."""
    from jobs.images.runtimes import runtime_python

    return runtime_python(image, sources_folder())


class LocalEngine:
    """Runs jobs on this machine. `runtime` gives the interpreter that realises an image."""

    def __init__(
        self,
        environment: Environment,
        *,
        runtime: Callable[[str], Path] = image_runtime,
        num_gpus: Callable[[], int] = count_gpus,
    ) -> None:
        self.environment = with_visible_gpus(environment, os.environ, num_gpus)
        self._num_gpus = num_gpus
        self.store = LocalRuns.of(environment)
        self._runtime = runtime

    @property
    def removal(self) -> LocalRemoval:
        """Removal of the runs' folders."""
        from jobs.engines.local.removal import LocalRemoval

        return LocalRemoval(self.store)

    def plan(self, spec: JobSpec) -> Plan:
        """Give the request that the gang's supervisor will read; see `Engine.plan`.

        Raises Refused for a job that wants GPUs which its Horovod cannot use.
        """
        cluster = require_cluster(self.environment, spec.cluster)
        request = gang_request(spec, cluster)
        is_useless = spec.retry.max > 0 and "preemption" not in spec.retry.on
        notes = (
            ["nodes of the local stack never fail alone: retry has no effect"] if is_useless else []
        )
        if spec.identity == "user":
            notes.append("a local run acts as you, with any `identity`")
        if index := note_on_index(spec, os.environ):
            notes.append(index)
        if request.container is not None:
            notes += notes_on_containers(spec.launcher)
        elif unguarded := why_unguarded(spec.launcher, os.environ):
            notes.append(unguarded)
        encoded = msgspec.Raw(msgspec.json.encode(request))
        plan = Plan(engine="local", spec=spec, request=encoded, notes=tuple(notes))
        return plan if request.container is not None else self._with_its_devices(plan)

    def _with_its_devices(self, plan: Plan) -> Plan:
        """Hide the GPUs from ranks that could not use them, and note it; else give the plan back."""
        from jobs.jobfile.find import catalog_names

        num_gpus = self._num_gpus()
        if not num_gpus:
            return plan
        try:
            interpreter = self._runtime(plan.spec.image)
        except LaunchError:  # starting the run will say it
            return plan
        inherited = inherited_environment(os.environ)
        note = why_on_the_cpu(plan.spec, inherited, interpreter, catalog_names(), num_gpus=num_gpus)
        if note is None or note in plan.notes:
            return plan
        request = read_request(plan)
        hidden = msgspec.structs.replace(request, env={**request.env, **ON_THE_CPU})
        encoded = msgspec.Raw(msgspec.json.encode(hidden))
        return msgspec.structs.replace(plan, request=encoded, notes=(*plan.notes, note))

    def image_reference(self, image: str) -> str:
        """Give the stack's reference for an image; else the image: a folder's name, or a reference."""
        return self.environment.images.get(image, image)

    def image_digest(self, spec: JobSpec) -> str | None:
        """Give the name of the runtime's or the layer's folder, which is by all that goes into it."""
        if is_reference(spec.image):
            return None if "@" in spec.image else image_id(spec.image)
        from jobs.images.runtimes import runtime_root

        try:
            root = runtime_root(spec.image, sources_folder())
            return (layer_folder(spec, root / "bin" / "python") or root).name
        except LaunchError:  # starting the run will say it
            return None

    def code_listing(self, plan: Plan) -> None:
        """List nothing: ranks read the run's own copy of the code."""

    def told_to_nodes(self, plan: Plan) -> Mapping[str, object]:
        """Tell nothing: the request is plain."""
        del plan
        return {}

    def require_ready(self, spec: JobSpec) -> None:
        """Raise LaunchError where nothing here realises the image."""
        if is_reference(spec.image):
            find_program(os.environ)
        else:
            self._runtime(spec.image)

    def register_dataset(self, dataset: DatasetVersion) -> None:
        """Do nothing: runs read the blob store."""

    def withdraw_dataset(self, dataset: DatasetVersion) -> None:
        """Do nothing: runs read the blob store."""

    def dataset_places(self, dataset: DatasetVersion) -> Mapping[str, str]:
        """Give no address beside the URL."""
        del dataset
        return {}

    def register_model(self, model: DatasetRecord) -> None:
        """Do nothing: the blob store has it."""

    def model_places(self, model: DatasetRecord) -> Mapping[str, str]:
        """Give no address beside the URL."""
        del model
        return {}

    def import_image(self, reference: str, source: Environment) -> str:
        """Refuse: a local stack runs images as runtimes of this machine, from no registry."""
        del reference, source
        message = (
            f"stack `{self.environment.stack}` has no registry: it runs images of this machine"
        )
        raise LaunchError(message, hint="launch image install NAME; or --to a stack on Azure")

    def submit(self, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        """Put the run on disk, then start its supervisor; see `Engine.submit`."""
        if is_reference(plan.spec.image):
            return self._submit_in_containers(plan, secrets)
        interpreter = self._runtime(plan.spec.image)
        rank_library(plan.spec.launcher, os.environ, console.warn)
        plan = self._with_its_devices(plan)
        handover = Handover(
            interpreter=str(interpreter),
            environment=self.environment,
            secrets=dict(secrets),
            layer=make_layer(plan.spec, interpreter),
            pip=find_pip(plan.spec, interpreter),
        )
        # The folder of a runtime, and of a layer, is named by all that went into it.
        digest = Path(handover.layer or handover.interpreter).parent.parent.name or None
        return submit_run(self.store, plan, handover, image_digest=digest)

    def _submit_in_containers(self, plan: Plan, secrets: Mapping[str, str]) -> RunHandle:
        program = find_program(os.environ)
        remove_orphans(program)
        make_ready(plan.spec.image, {**os.environ, **plan.spec.env})
        handover = Handover(
            interpreter=PYTHON,
            environment=self.environment,
            secrets=dict(secrets),
            containers=program,
        )
        digest = image_id(plan.spec.image)
        return submit_run(self.store, plan, handover, image_digest=digest)

    def logs(
        self,
        handle: RunHandle,
        ranks: Sequence[int] | None,
        *,
        follow: bool,
        since: str | None = None,
        tail: int | None = None,
        grep: Pattern[str] | None = None,
    ) -> Iterator[LogLine]:
        """Yield the ranks' lines; see `Engine.logs`."""
        run_dir = Path(handle.run_dir)
        ending = partial(is_over, run_dir) if follow else None
        return read_logs(run_dir, ranks, since=since, tail=tail, grep=grep, is_over=ending)

    def watch(
        self,
        handle: RunHandle,
        ranks: Sequence[int] | None,
        *,
        since: str | None = None,
        tail: int | None = None,
        grep: Pattern[str] | None = None,
    ) -> Iterator[Iterator[LogLine]]:
        """Yield looks at the ranks' lines; see `Engine.watch`."""
        return watch_logs(Path(handle.run_dir), ranks, since=since, tail=tail, grep=grep)

    def command_processes(self, handle: RunHandle) -> Mapping[int, int]:
        """Give the process of each rank's command, of the ranks whose command runs."""
        return command_processes(handle, read_request(self.store.record(handle).plan))

    def beside(self, handle: RunHandle, rank: int, words: Sequence[str]) -> Beside:
        """Describe a command in the folder, with the variables and in the image of a rank's.

        Raises Refused where the run has no such rank, or its command does not run.
        """
        return beside(handle, read_request(self.store.record(handle).plan), rank, words)

    def cancel(self, handle: RunHandle) -> None:
        """End the run; silent when it is over; see `Engine.cancel`.

        Returns at once: the supervisor needs some seconds to end the ranks.
        """
        run_dir = Path(handle.run_dir)
        if not has_record(run_dir):
            _end_without_record(run_dir)
            return
        try:
            state = self.store.status(handle).state
        except (
            EnvironmentFailure
        ):  # a damaged record; the lock tells whether the run is looked after
            state = RunState.RUNNING if supervision.is_supervised(run_dir) else RunState.LOST
        if state is RunState.LOST:
            # Supervisor and watcher were both killed: nobody else ends what they left behind.
            kill_leftovers(None, run_dir, timeout_s=KILL_TIMEOUT_S)
            self._remove_containers(handle)
        elif not state.is_terminal():
            supervision.ask_to_cancel(run_dir)

    def _remove_containers(self, handle: RunHandle) -> None:
        """Remove containers of a lost run: one may have begun after its client was killed."""
        with suppress(LaunchError):  # a damaged record, or an engine that is gone
            if is_reference(self.store.record(handle).plan.spec.image):
                remove_orphans(find_program(os.environ))

    def fetch(self, handle: RunHandle, into: Path) -> Path:
        """Copy the run's results into `into`; see `Engine.fetch`."""
        return fetch_run(Path(handle.run_dir), into)


def _end_without_record(run_dir: Path) -> None:
    """End a run whose folder was deleted, where the wish for it would be left."""
    supervisors = supervisors_of(run_dir)
    for process in supervisors:
        send(process, signal.SIGTERM)
    if not supervisors:
        kill_leftovers(None, run_dir, timeout_s=KILL_TIMEOUT_S)
