"""Plan a job: pin its datasets, resolve it, ask the engine; and write the plan for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import (
    DatasetVersion,
    Environment,
    InputSpec,
    JobFile,
    JobSpec,
    Plan,
    ResumePoint,
)
from jobs.engines.base import CodeListing, Engine
from jobs.host.console import count_text, duration_text, fields, size_text
from jobs.jobfile.read import CodeLocation, LoadedJob
from jobs.jobfile.resolve import resolve
from jobs.jobfile.resolve import size_text as job_size_text
from jobs.launching.notes import job_notes
from jobs.rank.folder import RESULTS
from jobs.stacks.cost import price_text

if TYPE_CHECKING:
    from jobs.runs.code import Snapshot

MOST_FILES = 20


def plan_job(loaded: LoadedJob, engine: Engine) -> Plan:
    """Plan the job of a file; nothing is started."""
    plan = plan_on(loaded.job, loaded.code, engine)
    return structs.replace(plan, folder=str(loaded.folder.absolute()))


def plan_on(
    job: JobFile,
    code: CodeLocation | None,
    engine: Engine,
    pinned: Mapping[str, DatasetVersion] | None = None,
    *,
    resume: ResumePoint | None = None,
) -> Plan:
    """Plan a job in memory; `pinned` are dataset versions that are known already.

    With `resume` it begins with the checkpoints of another run.
    """
    environment = engine.environment
    # Refuse what cannot fit before the blob store is asked for anything.
    known = dict(pinned or {})
    datasets = {each.dataset for each in job.inputs.values() if each.dataset} - known.keys()
    has_paths = any(each.path for each in job.inputs.values())
    if datasets or has_paths:
        from jobs.jobfile.resolve import choose_cluster

        choose_cluster(job, environment)
    pushed: Mapping[str, InputSpec] = {}
    if has_paths:
        from jobs.launching.local_inputs import look_at_paths

        pushed = look_at_paths(job, engine)
    spec = resolve(
        job,
        environment=environment,
        datasets=known | {name: _version(environment, name) for name in sorted(datasets)},
        code=code,
        image_reference=engine.image_reference,
        pushed=pushed,
    )
    if any(each.mode == "stream" for each in spec.inputs.values()):
        from jobs.datasets.packed import require_packed

        require_packed(spec.inputs, environment)
    plan = engine.plan(structs.replace(spec, resume=resume))
    notes = (*job_notes(job, spec, environment), *_script_notes(job, spec))
    return structs.replace(plan, notes=(*plan.notes, *notes))


def _script_notes(job: JobFile, spec: JobSpec) -> tuple[str, ...]:
    """Say what a script and the files that it imports need of the other TensorFlow image."""
    from jobs.jobfile.keras_names import IMAGE_OF_KERAS, other_keras_note
    from jobs.jobfile.script import read_script
    from jobs.jobfile.written import is_script

    words = spec.command[:2]
    if spec.code is None or job.image not in IMAGE_OF_KERAS.values() or len(words) < 2:
        return ()
    folder, script = Path(spec.code).resolve(), words[1]
    if not Path(words[0]).name.startswith("python") or not is_script(Path(script)):
        return ()
    path = (folder / script).resolve()
    if not path.is_relative_to(folder):
        return ()
    try:
        reading = read_script(path, script)
    except LaunchError:  # a script that Python does not take says so itself, when it runs
        return ()
    note = other_keras_note(job.image, script, reading.keras)
    return (note,) if note else ()


def measure_code(plan: Plan, engine: Engine) -> Snapshot | None:
    """Give how much code travels with a job, and what of it stays here; None without code.

    Raises NotFound where the code is not there, LaunchError where its program or requirements stay here.
    """
    from jobs.runs.code import measure

    spec = plan.spec
    if spec.code is None:
        return None
    _require_travelling(Path(spec.code), spec, engine)
    exclude = (engine.store.workspace, *spec.pushed_paths)
    return measure(Path(spec.code), only=spec.code_only, exclude=exclude)


def _require_travelling(code: Path, spec: JobSpec, engine: Engine) -> None:
    """Refuse a program or requirements that an ignore file keeps from the nodes, and from a rerun."""
    from jobs.runs.code import travelling

    needed = _needed(code, spec)
    if not needed:
        return
    for entry in travelling(code, (), (engine.store.workspace,)):
        needed.pop(entry.name, None)
        if not needed:  # mostly at once: the files beside a script come first
            return
    name, by = next(iter(needed.items()))
    message = f"`{name}`, which {by}, does not travel: an ignore file names it"
    raise LaunchError(message, hint=_travel_hint(code, name))


def _needed(code: Path, spec: JobSpec) -> dict[str, str]:
    """List the files without which the job cannot run, and what needs each."""
    needed: dict[str, str] = {}
    if spec.requirements:
        from jobs.jobfile.requirements import fingerprint

        found = fingerprint(code, spec.requirements)
        needed = {each.rpartition(" ")[0]: "`requirements` need" for each in found}
    if not spec.code_only:  # Trainyard's own programs
        needed |= dict.fromkeys(_programs(code, spec.command), "the job runs")
    return needed


def _programs(code: Path, command: Sequence[str]) -> Iterator[str]:
    """Find the files of the code that a command runs, whichever program starts them."""
    modules = [name.replace(".", "/") for flag, name in pairwise(command) if flag == "-m"]
    words = [each for each in command if each.endswith((".py", ".ipynb", ".sh"))]
    # Without a slash the first is looked for on the PATH.
    words += [each for each in command[:1] if "/" in each]
    of_modules = [f"{each}{end}" for each in modules for end in (".py", "/__main__.py")]
    root = code.resolve()
    for place in (*words, *of_modules):
        try:
            path = (root / place).resolve()
            is_there = path.is_file()
        except (OSError, RuntimeError):  # too long a word, or a link round in a circle
            continue
        if is_there and path.is_relative_to(root):
            yield path.relative_to(root).as_posix()


def _travel_hint(code: Path, name: str) -> str:
    """Give the commands that let a file travel, whichever ignore file on the way names it."""
    from jobs.runs.code import IGNORE_FILES

    commands: list[str] = []
    for folder in reversed(Path(name).parents):
        if folder.parts and not any((code / folder / each).exists() for each in IGNORE_FILES):
            continue
        inner = Path(name).relative_to(folder)
        folders = [f"!{each.as_posix()}/" for each in reversed(inner.parents[:-1])]
        rules = shlex.join([*folders, f"!{inner.as_posix()}"])
        file = shlex.quote(str(code / folder / ".launchignore"))
        commands.append(f"printf '%s\\n' {rules} >> {file}")
    return " && ".join(commands)


def missing_notes(spec: JobSpec, engine: Engine, folders: Sequence[Path]) -> tuple[str, ...]:
    """List the reasons for which `launch run` would refuse: the image's runtime, secrets without a value.

    `folders` are those that `find_secrets` looks into.
    """
    from jobs.launching.secrets import find_secrets

    notes: list[str] = []
    try:
        engine.require_ready(spec)
    except LaunchError as error:
        notes.append(_note(error))
    try:
        find_secrets(spec, engine.environment, folders)
    except LaunchError as error:
        notes.append(_note(error))
    return tuple(notes)


def secret_folders(folder: Path) -> list[Path]:
    """List the folders of `.secrets.env`: the working folder, then the job file's."""
    return list(dict.fromkeys([Path.cwd(), folder]))


def _note(error: LaunchError) -> str:
    return f"{error.message}; hint: {error.hint}"


def _version(environment: Environment, name: str) -> DatasetVersion:
    from jobs.datasets.datasets import resolve_dataset

    return resolve_dataset(environment, name)


# --- As people read it -----------------------------------------------------------------------


def plan_text(
    plan: Plan,
    environment: Environment,
    code: Snapshot | None,
    forecast: Sequence[tuple[str, str]] = (),
) -> str:
    """Lay out the plan (program, place, inputs, cost, forecast) in two columns of names and values."""
    spec = plan.spec
    cluster = environment.clusters[spec.cluster]
    pairs = [
        ("job", spec.name),
        ("cluster", f"{spec.cluster} of stack {spec.stack} ({cluster.size})"),
        ("size", job_size_text(spec.nodes, spec.processes_per_node)),
        ("servers", _servers_text(spec)),
        ("image", spec.image),
        ("launcher", spec.launcher),
        ("command", shlex.join(spec.command)),
        ("code", _code_text(spec, code)),
        *[("left out", _left_out_text(spec, name)) for name in (code.left_out if code else ())],
        *[
            ("" if number else "inputs", _input_text(name, spec.inputs[name]))
            for number, name in enumerate(spec.inputs)
        ],
        ("outputs", ", ".join(spec.outputs)),
        ("resumes", f"{spec.resume.run} at step {spec.resume.step}" if spec.resume else ""),
        ("packages", f"of {spec.requirements}, over the image" if spec.requirements else ""),
        ("setup", "; ".join(spec.setup)),
        ("env", ", ".join(f"{name}={value}" for name, value in spec.env.items())),
        ("secrets", ", ".join(spec.secrets)),
        ("limits", _limits_text(spec)),
        (
            "retry",
            f"{spec.retry.max}, after {' or '.join(spec.retry.on)}" if spec.retry.max else "",
        ),
        ("priority", spec.priority if spec.priority != "normal" else ""),
        ("price", price_text(spec, cluster)),
        *forecast,
        *[("note", note) for note in plan.notes],
    ]
    return fields([pair for pair in pairs if pair[1]])


def listing_text(listing: CodeListing) -> str:
    """Write which files would be sent, the largest first, and why each of them."""
    files = sorted(listing.files, key=lambda each: (-each.bytes, each.name))
    shown = files[:MOST_FILES]
    rows = [(size_text(each.bytes), each.name, each.reason) for each in shown]
    size = f"{count_text(len(files), 'file')}, {size_text(listing.bytes)}"
    lines = [f"sends     {size}, equal content is sent once", *_indented(rows)]
    if len(files) > len(shown):
        lines.append(f"  ... and {len(files) - len(shown)} smaller files; --json lists all")
    return "\n".join(lines)


def _indented(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [
        f"  {size.rjust(widths[0])}  {name.ljust(widths[1])}  {reason}"
        for size, name, reason in rows
    ]


def _servers_text(spec: JobSpec) -> str:
    if not spec.parameter_servers:
        return ""
    told = f"{spec.parameter_servers} for parameters"
    return f"{told}; rank 0 is the chief, the other ranks are its workers" if spec.chief else told


def _input_text(name: str, given: InputSpec) -> str:
    dataset = given.dataset
    file = f"/{given.file}" if given.file else ""
    size = f"{count_text(dataset.files, 'file')}, {size_text(dataset.bytes)}"
    text = f"{name} = {dataset.ref}{file} ({size}, {given.mode})"
    source = given.source
    if source is None:
        return text
    missing = f"{count_text(source.missing_files, 'file')}, {size_text(source.missing_bytes)}"
    told = f"would push {missing}" if source.missing_files else "in the store already"
    return f"{text} from {source.path}: {told}"


def _code_text(spec: JobSpec, code: Snapshot | None) -> str:
    if code is None:
        return "none"
    only = f"only {', '.join(spec.code_only)}; " if spec.code_only else ""
    return f"{spec.code} ({only}{count_text(code.num_files, 'file')}, {size_text(code.bytes)})"


def _left_out_text(spec: JobSpec, name: str) -> str:
    if name.rstrip("/") == RESULTS:
        return f"{name} (never travels: in the folder of a rank it is what comes back from the run)"
    if name.endswith("/"):
        return f"{name} (fetched from a run)"
    try:
        aim = str(Path(spec.code or "", name).readlink())
    except OSError:  # it went meanwhile
        aim = "nothing"
    return f"{name} (a link to {aim}, which is no code of the job; copy what it leads to)"


def _limits_text(spec: JobSpec) -> str:
    hang_s = spec.limits.hang_s
    hang = "hang off" if hang_s is None else f"hang {duration_text(hang_s)}"
    if spec.limits.wall_clock_s is None:
        return hang
    return f"{duration_text(spec.limits.wall_clock_s)} in all, {hang}"
