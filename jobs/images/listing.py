"""Lists the images: each one's runtime, and its containers on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.host import console
from jobs.images.engines import find_engine
from jobs.images.recipes import REPOSITORY, VARIANTS, read_recipe
from jobs.images.runtimes import ImageState, describe
from jobs.images.runtimes import list_images as list_names


class ContainerState(TypedDict):
    """A container image that this machine has, or could build from the files as they are."""

    variant: str
    reference: str
    built: bool | None  # None where the engine does not say
    current: bool  # made of the files as they are


class ListedImage(ImageState):
    """An image's runtime and containers."""

    containers: list[ContainerState]


def list_all(project: Path) -> list[ListedImage]:
    """List the project's images; without an engine nothing is there as a container."""
    built = _built()
    return [
        ListedImage(**describe(name, project), containers=_containers(name, project, built))
        for name in list_names(project)
    ]


def _built() -> list[str] | None:
    """List the engine's images; None where it does not say."""
    try:
        engine = find_engine()
    except EnvironmentFailure:
        return []
    try:
        return engine.references()
    except EnvironmentFailure as error:
        console.warn(error.message)
        return None


def _containers(name: str, project: Path, built: list[str] | None) -> list[ContainerState]:
    rows: list[ContainerState] = []
    for variant in VARIANTS:
        try:
            reference = read_recipe(name, variant, project).reference
        except LaunchError:  # no such variant, or no lock that it can be built from
            continue
        is_built = None if built is None else reference in built
        rows.append(
            ContainerState(variant=variant, reference=reference, built=is_built, current=True)
        )
        prefix = f"{REPOSITORY}/{name}:{variant}-"
        rows += [
            ContainerState(variant=variant, reference=each, built=True, current=False)
            for each in sorted(built or ())
            if each.startswith(prefix) and each != reference
        ]
    return rows


def images_table(rows: Sequence[ListedImage]) -> str:
    """Lay out the images: a row for the runtime, and one a container."""
    cells: list[list[str]] = []
    for row in rows:
        where = row["runtime"] or "none; `launch doctor` says why"
        cells.append([row["name"], "runtime", "yes" if row["built"] else "no", where])
        for each in row["containers"]:
            built = {True: "yes", False: "no", None: "unknown"}[each["built"]]
            state = built if each["current"] else "old"
            cells.append([row["name"], each["variant"], state, each["reference"]])
    return console.table(["IMAGE", "KIND", "BUILT", "WHERE"], cells)
