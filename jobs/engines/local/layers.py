"""Makes what a local job's own packages need before it is queued: a layer, and a pip for `setup`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import JobSpec
from jobs.engines.local.submission import inherited_environment
from jobs.host import console, trust
from jobs.host.project import require_trusted, sources_folder

_INSTALLS = re.compile(r"\b(pip3?|uv)\b")


def layer_folder(spec: JobSpec, python: Path) -> Path | None:
    """Name the layer of a job on the runtime of `python`; None for a job without requirements."""
    if not spec.requirements:
        return None
    from jobs.images.layers import layer_root
    from jobs.jobfile.requirements import fingerprint

    return layer_root(python, fingerprint(_code(spec), spec.requirements))


def make_layer(spec: JobSpec, python: Path) -> str | None:
    """Build the layer of a job unless it is there; gives its interpreter."""
    root = layer_folder(spec, python)
    if root is None or not spec.requirements:
        return None
    from jobs.host.progress import step
    from jobs.images.layers import build_layer
    from jobs.rank.layer import layer_python

    built = build_layer(
        root,
        python,
        _project(),
        folder=_code(spec),
        requirements=spec.requirements,
        # As ranks: no stray credential reaches the build of somebody's package.
        environ=inherited_environment(os.environ),
        report=step,
    )
    return layer_python(str(built))


def find_pip(spec: JobSpec, python: Path) -> str | None:
    """Give the folder of the pip that the job's `setup` uses; None where there is none to be had."""
    if not spec.setup:
        return None
    from jobs.host.progress import step
    from jobs.images.layers import pip_folder

    try:
        return str(pip_folder(python, _project(), report=step))
    except EnvironmentFailure as error:
        console.warn(f"`setup` has no pip: {error.message}")
        return None


def note_on_index(spec: JobSpec, environ: Mapping[str, str]) -> str | None:
    """Name the variables of a package index that `setup` would need and does not inherit.

    Their values may hold a password, which only a secret of the job hands on.
    """
    if not any(map(_INSTALLS.search, spec.setup)):
        return None
    from jobs.images.package_index import VARIABLES

    missing = [name for name in VARIABLES if environ.get(name)]
    if not missing or not {*spec.env, *spec.secrets}.isdisjoint(VARIABLES):
        return None
    told = ", ".join(f"`{name}`" for name in missing)
    secrets = ", ".join(f"{name}: {name.lower().replace('_', '-')}" for name in missing)
    it = "it" if len(missing) == 1 else "them"
    return (
        f"`setup` installs without {told}, which this shell has; "
        f"`secrets: {{{secrets}}}` hands {it} on, to the ranks, too"
    )


def _project() -> Path:
    """Find the project that names pip: this launch's own, else the one that one is in."""
    from jobs.images.layers import PIP_LOCK

    if (trust.INSTALLED / PIP_LOCK).is_file():
        return trust.INSTALLED
    project = sources_folder()
    require_trusted(project)
    return project


def _code(spec: JobSpec) -> Path:
    if spec.code is None:
        message = f"`requirements: {spec.requirements}` is a file of the code, and the job has none"
        raise LaunchError(message, hint="add `code: .` to take the job file's folder along")
    return Path(spec.code)
