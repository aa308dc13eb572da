"""From what was typed to a plan: reads the job, pins its datasets, resolves, asks the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import DatasetVersion, Environment, JobFile, JobSpec, Plan, ResumePoint
from jobs.engines.base import Engine
from jobs.jobfile.read import CodeLocation, LoadedJob
from jobs.jobfile.resolve import resolve

if TYPE_CHECKING:
    from jobs.engines.azure_ml.code_listing import CodeListing
    from jobs.runs.code import Snapshot


def plan_job(loaded: LoadedJob, environment: Environment, engine: Engine) -> Plan:
    """What would be started; nothing is."""
    plan = plan_on(loaded.job, loaded.code, environment, engine)
    return structs.replace(plan, folder=str(loaded.folder.absolute()))


def plan_on(
    job: JobFile,
    code: CodeLocation | None,
    environment: Environment,
    engine: Engine,
    pinned: Mapping[str, DatasetVersion] | None = None,
    *,
    resume: ResumePoint | None = None,
) -> Plan:
    """The same for a job in memory; `pinned` are dataset versions that are known already.

    With `resume` it begins with the checkpoints of another run.
    """
    # Refuse what cannot fit before the store is asked for anything.
    known = dict(pinned or {})
    datasets = {each.dataset for each in job.inputs.values()} - known.keys()
    if datasets:
        from jobs.jobfile.resolve import choose_cluster

        choose_cluster(job, environment)
    spec = resolve(
        job,
        environment=environment,
        datasets=known | {name: _version(environment, name) for name in sorted(datasets)},
        code=code,
    )
    if any(each.mode == "stream" for each in spec.inputs.values()):
        from jobs.engines.local.inputs import require_packed

        require_packed(spec.inputs, environment)
    return engine.plan(structs.replace(spec, resume=resume))


def measure_code(plan: Plan, environment: Environment) -> Snapshot | None:
    """Give how much code travels with a job, and what of it stays here; None without code.

    Raises NotFound where the code is not there.
    """
    from jobs.runs.code import measure

    spec = plan.spec
    if spec.code is None:
        return None
    return measure(Path(spec.code), only=spec.code_only, exclude=(_workspace(environment),))


def _workspace(environment: Environment) -> Path:
    """The folder that holds the runs, which is never code."""
    from jobs.runs import cloud_folder as folders
    from jobs.runs.store import workspace_folder

    is_local = environment.engine == "local"
    return (workspace_folder if is_local else folders.workspace_folder)(environment)


def code_listing(plan: Plan, environment: Environment) -> CodeListing | None:
    """Each file that a cloud engine would send, found by reading the code; None for the local one.

    Raises LaunchError for a file that cannot be read.
    """
    if environment.engine == "local":
        return None
    from jobs.engines.azure_ml.code_listing import read_code

    return read_code(plan.spec, exclude=(_workspace(environment),)).listing


def missing_notes(
    spec: JobSpec, environment: Environment, folders: Sequence[Path]
) -> tuple[str, ...]:
    """What this machine lacks and `launch run` would refuse for: the image's runtime, secrets.

    `folders` are those that `find_secrets` looks into.
    """
    from jobs.host.project import sources_folder
    from jobs.images.runtimes import runtime_python
    from jobs.launching.secrets import find_secrets

    notes: list[str] = []
    try:
        if environment.engine == "local":
            runtime_python(spec.image, sources_folder())
    except LaunchError as error:
        notes.append(_note(error))
    try:
        find_secrets(spec, environment, folders)
    except LaunchError as error:
        notes.append(_note(error))
    return tuple(notes)


def secret_folders(folder: Path) -> list[Path]:
    """Where `.secrets.env` is looked for: the working folder, then the job file's."""
    return list(dict.fromkeys([Path.cwd(), folder]))


def _note(error: LaunchError) -> str:
    return f"{error.message}; hint: {error.hint}"


def _version(environment: Environment, name: str) -> DatasetVersion:
    from jobs.datasets.datasets import resolve_dataset

    return resolve_dataset(environment, name)
