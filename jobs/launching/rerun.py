"""Turn a run's record back into a job: the same command, code copy and data versions."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import (
    DatasetVersion,
    JobFile,
    JobSpec,
    ResumePoint,
    RunRecord,
    RunStatus,
)
from jobs.engines.base import Engine, Runs
from jobs.host.structs import prepared
from jobs.jobfile.arguments import Argument, python_program, split_argv
from jobs.jobfile.notebook import notebook_command, with_numbers
from jobs.jobfile.program_options import Option, read_options
from jobs.jobfile.read import TRAINER, CodeLocation
from jobs.jobfile.yaml_tree import Node, located
from jobs.rank.notebook import PROGRAM
from jobs.runs.checkpoints import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A recorded run as a job: its tree takes `--set` like a job file's."""

    tree: Node
    pinned: Mapping[str, DatasetVersion]
    code: CodeLocation | None
    resume: ResumePoint | None


def recorded_job(record: RunRecord, run_dir: Path, engine: Engine) -> Recorded:
    """Make the job that was run; leaves `cluster` open if the environment has it no more.

    Raises LaunchError for a run on Azure whose code is not here.
    """
    spec = record.plan.spec
    command, args = _split(spec.command)
    job = JobFile(
        name=spec.name,
        image=spec.image,
        launcher=spec.launcher,
        command=command,
        args=args,
        cluster=spec.cluster if spec.cluster in engine.environment.clusters else None,
        nodes=spec.nodes,
        processes_per_node=spec.processes_per_node,
        parameter_servers=spec.parameter_servers,
        chief=spec.chief,
        requirements=spec.requirements or None,
        setup=spec.setup,
        env=spec.env,
        secrets=spec.secrets,
        retry=spec.retry,
        shm_size=spec.shm_size,
        priority=spec.priority,
        identity=spec.identity or "managed",
        experiment=spec.experiment,
        tags=spec.tags,
    )
    written = msgspec.to_builtins(job)
    written["inputs"] = {
        name: {
            "dataset": each.dataset.ref,
            "mode": each.mode,
            **({} if each.file is None else {"file": each.file}),
        }
        for name, each in spec.inputs.items()
    }
    written["outputs"] = {name: {} for name in spec.outputs}
    written["limits"] = _limits(spec)
    # A record says null for what a job file leaves out.
    given = {key: value for key, value in written.items() if value is not None}
    return Recorded(
        tree=located(given, f"run {record.id}"),
        pinned={each.dataset.ref: each.dataset for each in spec.inputs.values()},
        code=_code(record, run_dir, engine.store),
        resume=spec.resume,
    )


def recorded_options(record: RunRecord, recorded: Recorded) -> dict[str, Option]:
    """Give the options of the recorded program; none where it is not one of Trainyard's own."""
    spec, code = record.plan.spec, recorded.code
    if code is None or spec.code_only != (TRAINER,) or spec.command[1:2] != ("-m",):
        return {}
    return read_options(spec.command[2], Path(code.folder))


def resume_point(status: RunStatus, checkpoints: Sequence[Checkpoint]) -> ResumePoint:
    """Find the checkpoint that a run which goes on from this one begins with.

    Raises LaunchError while this one is on, and where it left nothing to go on from.
    """
    if not status.state.is_terminal():
        message = f"{status.id} is {status.state.value}; it can be resumed when it is over"
        raise LaunchError(message, hint=f"launch wait {status.id}, or launch cancel {status.id}")
    if not checkpoints:
        message = f"{status.id} has no complete checkpoint to resume from"
        hint = (
            f"launch rerun {status.id} starts from scratch; a checkpoint of your own format needs a "
            "manifest.json beside it (docs/run-directory.md)"
        )
        raise LaunchError(message, hint=hint)
    return ResumePoint(run=status.id, step=checkpoints[0].step)


def differences(record: RunRecord, run_dir: Path, engine: Engine) -> list[str]:
    """List differences that cannot be avoided, one sentence each."""
    spec, environment = record.plan.spec, engine.environment
    found: list[str] = []
    if spec.cluster not in environment.clusters:
        found.append(f"cluster `{spec.cluster}` no longer exists; the first that fits is used")
    elif environment.clusters[spec.cluster].compute != spec.compute:
        found.append(f"cluster `{spec.cluster}` was made again since ({spec.compute})")
    if spec.stack != environment.stack:
        found.append(f"it ran on stack `{spec.stack}`, now it is `{environment.stack}`")
    copy = run_dir / "code"
    if spec.code is not None and not copy.is_dir():
        found.append(f"the copy of its code was deleted; the current `{spec.code}` is used")
    asked = structs.replace(spec, code=str(copy)) if copy.is_dir() else spec
    image = engine.image_digest(asked)
    if image is not None and record.image_digest not in (None, image):
        found.append(f"image `{spec.image}` was {record.image_digest}, now it is {image}")
    return found


def refuse_other_code(job: JobFile) -> None:
    """Refuse `--set` of other code: a rerun is of the recorded code."""
    given = [key for key in ("code", "module", "script") if getattr(job, key) is not None]
    if given:
        message = f"a rerun keeps the code and the program of its run; `--set {given[0]}` cannot"
        raise LaunchError(message, hint="launch run JOB starts other code")


def with_parameters(job: JobFile, root: Node, record: RunRecord) -> JobFile:
    """Put `args` among the parameters of a recorded notebook; `root` tells which are numbers.

    Gives other jobs as they are. Raises LaunchError for `args` that are no assignments.
    """
    command, _ = _split(record.plan.spec.command)
    if command[:1] != (PROGRAM,) or job.command != command:
        return job
    typed = with_numbers(structs.replace(job, script=command[1]), root)
    return structs.replace(job, command=notebook_command(command[1], typed.args), args={})


def with_other_words(job: JobFile, record: RunRecord) -> JobFile:
    """Put a list of `args` in the place of all words behind the recorded program.

    A record does not say which of a command's words were `args`; raises LaunchError for a command
    that is no Python program.
    """
    command, _ = split_argv(record.plan.spec.command)
    if isinstance(job.args, Mapping) or job.command != command:
        return job
    program = python_program(record.plan.spec.command)
    if program is None:
        message = f"the command of {record.id} does not say which of its words are `args`"
        whole = shlex.join(record.plan.spec.command)
        raise LaunchError(message, hint=f"give all words by --set 'command=[...]'; it was: {whole}")
    return structs.replace(job, command=program)


def _split(command: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, Argument]]:
    """Part a recorded command from its `args`: options, or the parameters of a notebook in one word."""
    if command[:1] == (PROGRAM,) and len(command) in (3, 4):
        try:
            given = msgspec.json.decode(
                "".join(command[3:]) or "{}", type=prepared(dict[str, Argument])
            )
        except msgspec.DecodeError:  # not of ours
            return split_argv(command)
        return command[:3], given
    return split_argv(command)


def _code(record: RunRecord, run_dir: Path, runs: Runs) -> CodeLocation | None:
    spec = record.plan.spec
    if spec.code is None:
        return None
    copy = run_dir / "code"
    if copy.is_dir():
        return CodeLocation(folder=str(copy))
    if not runs.has_own_records:
        # The record may be anybody's who can write to the blob store: its paths are none of ours.
        message = f"the code of {record.id} is not on this machine"
        raise LaunchError(message, hint="rerun it where it was launched, or launch run JOB")
    return CodeLocation(folder=spec.code, only=spec.code_only)


def _limits(spec: JobSpec) -> dict[str, str | float]:
    # Fixed point: a duration has no exponent.
    hang_s = spec.limits.hang_s
    limits: dict[str, str | float] = {"hang": "off" if hang_s is None else f"{hang_s:f}s"}
    if spec.limits.cost is not None:
        limits["cost"] = spec.limits.cost
    elif spec.limits.wall_clock_s is not None:
        limits["wall_clock"] = f"{spec.limits.wall_clock_s:f}s"
    return limits
