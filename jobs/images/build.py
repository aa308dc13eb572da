"""Builds and pushes the container images of a project, and keeps a record of each build."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

from jobs.contracts.errors import EnvironmentFailure, NotFound
from jobs.host.cache import Report, exclusive
from jobs.host.files import write_file
from jobs.host.git import GitFailure, Repository
from jobs.host.private import make_folder
from jobs.host.progress import BuildProgress, run_watched
from jobs.images.engines import ContainerEngine
from jobs.images.package_index import lend
from jobs.images.recipes import TIMESTAMP_S, Recipe, lay_context

SBOM = "/opt/trainyard/sbom.cdx.json"
SBOM_LIMIT_BYTES = 64 << 20
CREDENTIALS = re.compile(r"//[^/@]*@")


class BuildRecord(TypedDict):
    """Facts kept of a build, beside its bill of materials."""

    reference: str
    engine: str
    base: str
    arguments: dict[str, str]
    revision: str
    built: str
    duration_s: float


def build_image(
    recipe: Recipe,
    engine: ContainerEngine,
    project: Path,
    *,
    progress: Callable[[], BuildProgress],
    report: Report,
) -> bool:
    """Build an image unless its content is there already; says whether it had to.

    Raises EnvironmentFailure with the failing step's last lines.
    """
    folder = record_folder(recipe, project)
    lock = folder.with_name(f"{folder.name}.lock")
    with exclusive(lock, what=recipe.reference, report=report):
        is_new = not engine.has(recipe.reference)
        if is_new:
            began = time.monotonic()
            _start_build(recipe, engine, project, progress())
            _write_record(recipe, engine, project, duration_s=time.monotonic() - began)
        bill = folder / "sbom.cdx.json"
        if is_new or not bill.exists():
            content = engine.read_file(recipe.reference, SBOM, limit_bytes=SBOM_LIMIT_BYTES)
            make_folder(bill.parent)
            write_file(bill, content)
    return is_new


def record_folder(recipe: Recipe, project: Path) -> Path:
    """Give the folder of a build's record and bill of materials."""
    return project / ".trainyard" / "images" / f"{recipe.image}-{recipe.tag}"


def build_log(recipe: Recipe, project: Path) -> Path:
    return project / ".trainyard" / "logs" / f"image-{recipe.image}-{recipe.variant}.log"


def push_image(
    recipe: Recipe,
    engine: ContainerEngine,
    project: Path,
    registry: str,
    *,
    progress: BuildProgress,
) -> str:
    """Send a built image to HOST/PATH; gives the reference that pins it by digest.

    Raises NotFound where it is not built, EnvironmentFailure where the registry refuses.
    """
    if not engine.has(recipe.reference):
        message = f"{recipe.reference} is not built on this machine"
        hint = f"launch image build {recipe.image} --variant {recipe.variant}"
        raise NotFound(message, hint=hint)
    repository = f"{registry.rstrip('/')}/{recipe.image}"
    target = f"{repository}:{recipe.tag}"
    log = build_log(recipe, project)
    host = registry.partition("/")[0]
    with tempfile.TemporaryDirectory() as temporary:
        digest_file = Path(temporary) / "digest"
        for command in engine.push(recipe.reference, target, digest_file):
            hint = f"{engine.name} login {host}, if access was refused"
            run_watched(command, what=f"pushing {target}", log=log, progress=progress, hint=hint)
        digest = engine.pushed_digest(target, digest_file)
    return f"{repository}@{digest}"


def _start_build(
    recipe: Recipe, engine: ContainerEngine, project: Path, progress: BuildProgress
) -> None:
    log = build_log(recipe, project)
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="trainyard-image-") as temporary:
        context, lent = Path(temporary) / "context", Path(temporary) / "lent"
        context.mkdir()
        lent.mkdir(mode=0o700)
        lay_context(recipe, context)
        command = engine.build(
            context=context,
            dockerfile=context / recipe.dockerfile,
            reference=recipe.reference,
            arguments={**recipe.arguments, **_labels(recipe, project)},
            secrets=lend(lent, os.environ, Path.home()),
            timestamp_s=TIMESTAMP_S,
        )
        hint = "check that the base image, Debian's mirror and the package index can be reached"
        run_watched(
            command, what=f"building {recipe.reference}", log=log, progress=progress, hint=hint
        )
    if not engine.has(recipe.reference):
        message = f"{engine.name} ended without an error and without {recipe.reference}"
        raise EnvironmentFailure(message, hint=f"see {log}")


def _labels(recipe: Recipe, project: Path) -> dict[str, str]:
    """Give the values of the labels; none of them changes the build."""
    from importlib.metadata import version

    name, digest = recipe.base
    return {
        "BASE_NAME": name,
        "BASE_DIGEST": digest,
        "REVISION": _revision(recipe, project),
        "SOURCE": _source(project),
        "VERSION": version("trainyard"),
    }


def _revision(recipe: Recipe, project: Path) -> str:
    """Give the checked-out commit, marked if the image's files differ from it; empty without git."""
    repository = Repository(project)
    try:
        commit = repository.commit()
        changed = repository.is_changed(sorted(recipe.files))
    except GitFailure:
        return ""
    return f"{commit}-dirty" if changed else commit


def _source(project: Path) -> str:
    """Give the public address of the project's origin; empty where there is none."""
    try:
        origin = Repository(project).origin()
    except GitFailure:
        return ""
    short = re.fullmatch(r"[\w.-]+@([\w.-]+):([\w./-]+)", origin)
    if short:
        origin = f"https://{short[1]}/{short[2]}"
    return CREDENTIALS.sub("//", origin) if origin.startswith("https://") else ""


def _write_record(
    recipe: Recipe, engine: ContainerEngine, project: Path, *, duration_s: float
) -> None:
    record = BuildRecord(
        reference=recipe.reference,
        engine=engine.name,
        base=recipe.arguments["BASE_IMAGE"],
        arguments=dict(recipe.arguments),
        revision=_revision(recipe, project),
        built=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 1),
    )
    folder = record_folder(recipe, project)
    make_folder(folder)
    (folder / "build.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
