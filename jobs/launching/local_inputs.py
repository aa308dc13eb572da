"""Pushes the folders and files that a job names as inputs: looked at for a plan, sent before a run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec import structs

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import InputSource, InputSpec, JobFile, Plan
from jobs.datasets.datasets import Datasets
from jobs.datasets.making import Pushed, Reports
from jobs.engines.base import Engine
from jobs.host import console
from jobs.host.progress import ProgressLines

_LONGEST_NAME = 63


def look_at_paths(job: JobFile, engine: Engine) -> dict[str, InputSpec]:
    """Give each input that a path names, with the dataset version that a push would make; sends nothing.

    Raises LaunchError for what `launch data push` would refuse.
    """
    specs: dict[str, InputSpec] = {}
    for name, each in job.inputs.items():
        if each.path is None:
            continue
        path = Path(each.path)
        _require_outside(engine.store.workspace, path)
        pushed = _push(path, dataset_name(job.name, name), engine, is_dry=True)
        specs[name] = InputSpec(
            dataset=pushed.dataset.pinned(),
            mode=each.mode,
            file=None if path.is_dir() else path.name,
            source=InputSource(
                path=str(path), missing_files=pushed.files_sent, missing_bytes=pushed.bytes_sent
            ),
        )
    return specs


def push_inputs(plan: Plan, engine: Engine) -> Plan:
    """Push what the plan's inputs lack in the store; gives the plan with the versions that came of it."""
    # What would refuse the run anyhow is not to be told after gigabytes were sent.
    engine.require_ready(plan.spec)
    inputs = dict(plan.spec.inputs)
    for name, each in inputs.items():
        if each.source is None:
            continue
        path = Path(each.source.path)
        pushed = _push(path, each.dataset.name, engine, is_dry=False)
        version = pushed.dataset.pinned()
        inputs[name] = structs.replace(each, dataset=version, source=InputSource(path=str(path)))
        if not pushed.already:
            console.say(f"pushed {path} as {pushed.dataset.ref}")
        try:
            engine.register_dataset(version)
        except EnvironmentFailure as error:
            console.warn(f"{error.message} ({error.hint})")
    spec = structs.replace(plan.spec, inputs=inputs)
    return structs.replace(plan, spec=spec, request=engine.plan(spec).request)


def dataset_name(job: str, name: str) -> str:
    """Name the dataset of a job's input; a name that would be too long ends in its own digest."""
    whole = f"{job}-{name}"
    if len(whole) <= _LONGEST_NAME:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: _LONGEST_NAME - len(digest) - 1]}-{digest}"


def _push(path: Path, name: str, engine: Engine, *, is_dry: bool) -> Pushed:
    lines = ProgressLines()
    # A plan is made first: what is to be said of names has been said by then.
    reports = Reports.on(lines, warn=console.warn if is_dry else lambda _: None)
    folder, only = (path, None) if path.is_dir() else (path.parent, path.name)
    with lines:
        datasets = Datasets.of(engine.environment)
        return datasets.push(folder, name, reports, is_dry=is_dry, only=only)


def _require_outside(workspace: Path, path: Path) -> None:
    if workspace.resolve().is_relative_to(path):
        message = f"the input `{path}` holds the runs of this stack ({workspace})"
        raise LaunchError(message, hint="put the data into a folder of its own")
