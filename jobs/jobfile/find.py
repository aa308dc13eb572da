"""Finds the file of a job by its path or catalog name."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from jobs.contracts.errors import LaunchError, NotFound
from jobs.jobfile.written import SUFFIXES as SCRIPTS
from jobs.jobfile.written import is_script
from jobs.jobfile.yaml_tree import brief

CATALOG = Path(__file__).parents[1] / "catalog"
SUFFIXES = (".yaml", ".yml", ".json")


def find_job(name: str) -> Path:
    """Find the file that a path or a catalog name stands for."""
    is_path = name.endswith((*SUFFIXES, *SCRIPTS)) or os.sep in name or "/" in name
    if is_path or (name not in catalog_names() and name and path_of(name, "JOB").exists()):
        path = path_of(name, "JOB")
        if path.is_file():
            return path
        if path.is_dir():
            message = f"`{name}` is a folder, not a job file"
            inside = _job_files(path)
            hint = (
                f"type the path of a job file in it: {path / inside[0]}"
                if inside
                else "type the path of a job file"
            )
            raise LaunchError(message, hint=hint)
        what = "script" if is_script(path) else "job file"
        message = f"the {what} `{name}` does not exist"
        raise NotFound(message, hint=_nearest_job(path.name, path.parent))
    if name in catalog_names():
        return CATALOG / f"{name}.yaml"
    message = f"there is no job `{name}`"
    raise NotFound(message, hint=_nearest_job(name, Path()))


def require_catalog_name(name: str) -> None:
    """Raise NotFound, with the nearest name, unless the catalog has a job of this name."""
    if name not in catalog_names():
        message = f"the catalog has no job `{name}`"
        near = get_close_matches(name, catalog_names(), n=1)
        raise NotFound(message, hint=f"did you mean `{near[0]}`?" if near else "launch jobs")


def catalog_names() -> list[str]:
    """List the names of the ready-made jobs."""
    return sorted(file.stem for file in CATALOG.glob("*.yaml"))


def path_of(text: str, source: str, folder: Path = Path()) -> Path:
    """Convert a path that somebody wrote, which may be of nothing; `source` is where it stands.

    Raises LaunchError for what can be no path: too long a name, the home of nobody.
    """
    try:
        path = Path(text).expanduser()
        (folder / path).resolve().exists()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"{source}: `{brief(text)}` is not a path: {reason}"
        raise LaunchError(message, hint="paths are relative to the job file") from None
    return path


def names_in(folder: Path) -> list[str]:
    """List the names of what is in a folder; none where it cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []


def _nearest_job(name: str, folder: Path) -> str:
    files = [*_job_files(folder), *(file for file in names_in(folder) if file.endswith(SCRIPTS))]
    jobs = {file: str(folder / file) for file in files}
    near = get_close_matches(name, [*jobs, *catalog_names()], n=1)
    if not near and f"{name}.yaml" in jobs:
        near = [f"{name}.yaml"]
    if near:
        return f"did you mean `{jobs.get(near[0], near[0])}`?"
    return f"type the path of a job file, or a job of the catalog: {', '.join(catalog_names())}"


def _job_files(folder: Path) -> list[str]:
    """List the names of possible job files."""
    files = [file for file in names_in(folder) if file.endswith(SUFFIXES)]
    return [file for file in files if not file.startswith("Pulumi.")]
