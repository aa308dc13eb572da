"""Reads a job file, a job of the catalog or a script; every mistake named with line and column."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import JobFile
from jobs.jobfile.decode import decode
from jobs.jobfile.find import CATALOG, find_job, names_in, path_of
from jobs.jobfile.inputs import check_input, with_long_inputs, with_paths
from jobs.jobfile.notebook import is_notebook, with_numbers
from jobs.jobfile.placeholders import check_placeholders
from jobs.jobfile.program_options import Option, check_arguments, read_options
from jobs.jobfile.written import is_script, refuse_home, write_job
from jobs.jobfile.yaml_tree import (
    MOST_BYTES,
    Node,
    parse_override,
    parse_yaml,
    with_joined_surrogates,
    with_override,
)

# Editors take the schema's address from this key of a JSON (or YAML) file.
SCHEMA_KEY = "$schema"
# What rank/main.py sets; a job that set them would part ranks from each other.
RESERVED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
RESERVED_PREFIX = "TRAINYARD_"
TRAINER = "trainer"
NOTEBOOK_PROGRAMS = ("jupyter", "papermill", "trainyard")


@dataclass(frozen=True, kw_only=True)
class CodeLocation:
    """Place of a job's code: an absolute folder, the sub-folders that travel (all when empty)."""

    folder: str
    only: tuple[str, ...] = ()
    # Paths in that folder, with forward slashes.
    script: str | None = None
    requirements: str | None = None


@dataclass(frozen=True, kw_only=True)
class LoadedJob:
    """A job and where it came from: paths in it are relative to `folder`.

    `sentences` tell how the job of a script without a job file came about.
    """

    job: JobFile
    source: str
    folder: Path
    code: CodeLocation | None
    sentences: tuple[str, ...] = ()


def load_job(
    name: str,
    overrides: Sequence[str] = (),
    options: Mapping[str, str] = {},
    arguments: Sequence[str] = (),
) -> LoadedJob:
    """Read a job file, a job of the catalog or a script, with `--set` and its options.

    `options` maps keys of the job file to the values that options gave them; `arguments` are those
    of a script. Raises NotFound for an unknown job, LaunchError for every mistake in it and for
    paths that lead nowhere.
    """
    if arguments and not is_script(Path(name)):
        message = f"unexpected argument: {arguments[0]}; `{name}` is not a script"
        raise LaunchError(message, hint="--set args.KEY=VALUE changes an argument of a job")
    path = find_job(name)
    if not is_script(path):
        root = override(read_tree(path, name), overrides, options)
        return load_tree(root, name, path.parent)
    written = write_job(path, name, arguments)
    decided = parse_yaml(written.text, f"the job of {name}")
    loaded = load_tree(override(decided, overrides, options), name, path.parent)
    first, *others = written.sentences
    told = f"{first}{_changes(decode_job(decided), loaded.job)}"
    return replace(loaded, sentences=(told, *others))


def _changes(decided: JobFile, job: JobFile) -> str:
    """Word what the command line changed of the image, launcher and size that a script got."""
    keys = ["image", "launcher", "processes_per_node"]
    if decided.processes_per_node == 1:  # it said "one process", not one per GPU
        keys.insert(2, "nodes")
    changed = [key for key in keys if getattr(job, key) != getattr(decided, key)]
    told = [f"{key} {getattr(job, key)}" for key in changed]
    return f"; the command line changes this: {', '.join(told)}" if told else ""


def load_tree(root: Node, name: str, folder: Path) -> LoadedJob:
    """Decode the tree as the job `name` whose paths are relative to `folder`; find its code."""
    job = decode_job(root)
    folder = folder.resolve()
    code = _locate_code(job, folder, name)
    require_known_arguments(job, root, _program_options(job, code))
    # The catalog's own folder holds no data: what is typed for its jobs lies where it is typed.
    base = Path.cwd() if folder == CATALOG else folder
    job = locate_inputs(job, root, base, keep_out=(folder, *_program_paths(job, code)))
    if job.requirements is not None:
        code = _with_requirements(job.requirements, code, folder, name)
    return LoadedJob(job=job, source=name, folder=folder, code=code)


def require_known_arguments(job: JobFile, root: Node, known: Mapping[str, Option]) -> None:
    """Check the `args` by the program's options, where they are known; `root` tells their places."""
    if known and isinstance(job.args, Mapping):
        check_arguments(job.args, known, lambda key: _place(root, "args", key))


def options_of_job(name: str) -> dict[str, Option]:
    """Give the options of a job's program by their names; none where it is not one of ours."""
    path = find_job(name)
    job = decode_job(read_tree(path, name))
    return _program_options(job, _locate_code(job, path.parent.resolve(), name))


def read_tree(path: Path, name: str) -> Node:
    """Read the file as a tree of located values."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        message = f"cannot read the job file `{name}`: {error.strerror}"
        raise LaunchError(message, hint=f"ls -l {name}") from None
    except UnicodeDecodeError as error:
        message = f"the job file `{name}` is not UTF-8 text (byte {error.start})"
        raise LaunchError(message, hint="save it as UTF-8") from None
    if len(content) > MOST_BYTES:
        message = f"the job file `{name}` has more than {MOST_BYTES >> 20} MB"
        raise LaunchError(message, hint="is it a job file? put data into other files")
    if path.suffix == ".json":
        text = with_joined_surrogates(text)
    return parse_yaml(text, name if path.parent != CATALOG else f"catalog/{path.name}")


def override(root: Node, overrides: Sequence[str], options: Mapping[str, str]) -> Node:
    """Set the values that the command line gives; the options come last."""
    for assignment in overrides:
        root = with_override(root, *parse_override(assignment))
    for key, value in options.items():
        option = f"--{key.replace('_', '-')} {value}"
        root = with_override(root, *parse_override(f"{key}={value}", option))
    return root


def decode_job(root: Node) -> JobFile:
    """Decode the tree as a job file; checks its keys one by one and against each other."""
    root = with_long_inputs(root)
    job = with_numbers(decode(root, JobFile, ignored=(SCHEMA_KEY,)), root)
    _check_program(job, root)
    _check_variables(job, root)
    _check_case(job, root)
    for name, each in job.inputs.items():
        check_input(name, each, _place(root, "inputs", name))
    check_placeholders(job, root)
    return job


def locate_inputs(
    job: JobFile, root: Node, base: Path, *, keep_out: tuple[Path, ...] = ()
) -> JobFile:
    """Make the paths of inputs absolute; they are relative to `base`.

    Raises LaunchError for one that is not there, or that holds a path of `keep_out`: the job's own.
    """
    where = {name: _place(root, "inputs", name) for name in job.inputs}
    paths = {
        name: base / path_of(each.path, where[name], base)
        for name, each in job.inputs.items()
        if each.path is not None
    }
    return with_paths(job, paths, where, keep_out=keep_out)


def _check_program(job: JobFile, root: Node) -> None:
    programs = [key for key in ("module", "script", "command") if getattr(job, key)]
    if len(programs) != 1:
        given = " and ".join(f"`{key}`" for key in programs) or "none of them"
        message = f"{root.where}: a job has one of `module`, `script`, `command`; here is {given}"
        raise LaunchError(message, hint="for your own program: `script: train.py`")
    if job.parameter_servers and job.launcher != "tensorflow":
        message = f"{_place(root, 'parameter_servers')}: only the launcher `tensorflow` has them"
        raise LaunchError(message, hint="remove `parameter_servers`")
    if job.chief and not job.parameter_servers:
        message = f"{_place(root, 'chief')}: a chief needs parameter servers to coordinate"
        raise LaunchError(message, hint="parameter_servers: 1, or remove `chief`")
    if job.command and not _takes_notebooks(job.command):
        for word in job.command:
            if is_notebook(word):
                raise _refused_notebook(word, _place(root, "command"))


def _takes_notebooks(command: Sequence[str]) -> bool:
    """Tell whether the program, or the module after `-m`, is one that executes notebooks."""
    programs = [Path(command[0]).name]
    if "-m" in command[:-1]:
        programs.append(command[command.index("-m") + 1])
    return any(re.split(r"[-.]", each)[0] in NOTEBOOK_PROGRAMS for each in programs)


def _refused_notebook(word: str, where: str) -> LaunchError:
    """Refuse a notebook for Python: to it the JSON is one expression, and nothing is trained."""
    message = f"{where}: `{word}` is a notebook, which Python cannot run"
    return LaunchError(message, hint=f"`script: {word}` in place of `command`")


def _check_variables(job: JobFile, root: Node) -> None:
    for key in ("env", "secrets"):
        for name in getattr(job, key):
            if name in RESERVED or name.startswith(RESERVED_PREFIX):
                message = f"{_place(root, key, name)}: `{name}` is set by launch for every rank"
                raise LaunchError(message, hint="use another name")
    for name in job.secrets:
        if name in job.env:
            message = f"{_place(root, 'secrets', name)}: `{name}` is in `env`, too"
            raise LaunchError(message, hint="keep one of them")


def _check_case(job: JobFile, root: Node) -> None:
    """Refuse two inputs, or two outputs, whose names differ by case alone: they have one variable."""
    for key in ("inputs", "outputs"):
        first: dict[str, str] = {}
        for name in getattr(job, key):
            if (other := first.setdefault(name.upper(), name)) != name:
                variable = f"{RESERVED_PREFIX}{key[:-1].upper()}_{name.upper()}"
                message = f"{_place(root, key, name)}: `{other}` and `{name}` are both {variable}"
                raise LaunchError(message, hint="give them names that differ by more than case")


def _program_options(job: JobFile, code: CodeLocation | None) -> dict[str, Option]:
    from jobs.host.project import is_project

    if code is None or job.module is None or job.module.split(".")[0] != TRAINER:
        return {}
    is_ours = job.code is None or is_project(Path(code.folder))
    return read_options(job.module, Path(code.folder)) if is_ours else {}


def _locate_code(job: JobFile, folder: Path, source: str) -> CodeLocation | None:
    """Find the folder that travels, before anything starts.

    `code:` where it is given. Without it: the folder of the job file for a `script`, our own
    programs for a `module: trainer.*` (refused where another `trainer` lies beside the job file),
    and nothing for the rest.
    """
    if job.code is None and job.module and job.module.split(".")[0] == TRAINER:
        from jobs.host.project import require_trusted, sources_folder

        folder_of_ours = sources_folder()
        require_trusted(folder_of_ours)
        if folder != folder_of_ours.resolve():
            _refuse_forgotten_code(job, folder, source)
        return CodeLocation(folder=str(folder_of_ours), only=(TRAINER,))
    if job.code is None and job.script is None:
        _refuse_forgotten_code(job, folder, source)
        return None
    code = (folder / path_of(job.code or ".", source, folder)).resolve()
    if not code.is_dir():
        what = "is not a folder" if code.exists() else "is not there"
        message = f"{source}: the folder `code: {job.code}` {what} ({code})"
        raise LaunchError(message, hint="paths are relative to the job file")
    if job.code is None:
        refuse_home(code, source, "put the job file and the script into their own folder")
    return CodeLocation(folder=str(code), script=_find_script(job, folder, code, source))


def _program_paths(job: JobFile, code: CodeLocation | None) -> list[Path]:
    """List what has to travel as code."""
    if code is None:
        return []
    program = code.script or (job.module or "").replace(".", "/")
    return [Path(code.folder), Path(code.folder, program)]


def _find_script(job: JobFile, folder: Path, code: Path, source: str) -> str | None:
    if job.script is None:
        return None
    script = (folder / path_of(job.script, source, folder)).resolve()
    if not script.is_file():
        what = "is a folder" if script.is_dir() else "is not there"
        message = f"{source}: the script `{job.script}` {what} ({script})"
        near = get_close_matches(script.name, names_in(script.parent), n=1)
        hint = f"did you mean `{near[0]}`?" if near else "paths are relative to the job file"
        raise LaunchError(message, hint=hint)
    if not script.is_relative_to(code):
        message = f"{source}: the script `{job.script}` is outside the copied folder ({code})"
        raise LaunchError(message, hint="choose a folder that contains it, e.g. `code: ..`")
    return script.relative_to(code).as_posix()


def _with_requirements(
    requirements: str, code: CodeLocation | None, folder: Path, source: str
) -> CodeLocation:
    """Find the requirements file in the folder that travels."""
    from jobs.jobfile.requirements import fingerprint

    if code is None or code.only:
        message = f"{source}: `requirements: {requirements}` does not travel with this job's code"
        raise LaunchError(message, hint="add `code: .` to take the job file's folder along")
    path = folder / path_of(requirements, source, folder)
    place = os.path.relpath(path.resolve(), code.folder)
    fingerprint(Path(code.folder), place)
    return replace(code, requirements=Path(place).as_posix())


def _refuse_forgotten_code(job: JobFile, folder: Path, source: str) -> None:
    """Refuse a program beside the job file that would not be found where the ranks run."""
    if job.module:
        top = job.module.split(".")[0]
        candidates = [top, f"{top}.py"]
    else:
        candidates = [word for word in job.command or () if not word.startswith(("-", "/"))]
    beside = next((name for name in candidates if _is_beside(folder, name)), None)
    if beside:
        message = f"{source}: `{beside}` lies beside the job file, but the job has no `code:`"
        raise LaunchError(message, hint="add `code: .` to copy the job file's folder")


def _is_beside(folder: Path, name: str) -> bool:
    try:
        return folder != CATALOG and (folder / name).exists()
    except (OSError, ValueError):  # a word too long for a name, or with a NUL
        return False


def _place(root: Node, *path: str) -> str:
    node = root
    for key in path:
        if not isinstance(node.value, dict) or key not in node.value:
            break
        entry = node.value[key]
        node = Node(where=entry.where, value=entry.node.value)
    return node.where
