"""Writes the folder of a new image, from one that the project has, and the locks of any."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.host.cache import Report, run_logged
from jobs.images.recipes import dockerfile_of
from jobs.images.runtimes import find_uv, list_images, lock_file, uv_environment

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")
_COMMAND = re.compile(r"^#\s+uv (pip compile .*)$", re.MULTILINE)


def start_image(name: str, base: str, project: Path) -> Path:
    """Write images/NAME with the packages, locks and Dockerfile of `base`; gives the folder.

    Raises LaunchError for a name that no image can have or that is taken, NotFound for a base that
    is not there.
    """
    source = dockerfile_of(base, project).parent
    if not NAME.fullmatch(name):
        message = f"invalid image name `{name}`"
        raise LaunchError(message, hint="small letters, digits and hyphens, such as `my-torch`")
    folder = source.with_name(name)
    if folder.exists():
        message = f"{folder} is there already"
        raise LaunchError(message, hint=f"edit its requirements.in, then: launch image lock {name}")
    dockerfile = (source / "Dockerfile").read_text(encoding="utf-8")
    folder.mkdir()
    for path in sorted([*source.glob("*.in"), *source.glob("requirements*.txt")]):
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    written = dockerfile_text(dockerfile, base, name)
    (folder / "Dockerfile").write_text(written, encoding="utf-8")
    return folder


def dockerfile_text(text: str, base: str, name: str) -> str:
    """Rewrite a whole Dockerfile for another image of the same packages; bases alone stay."""
    return re.sub(rf"(images/|Trainyard: |--name ){re.escape(base)}\b", rf"\g<1>{name}", text)


def lock_image(name: str, project: Path, *, report: Report) -> Path:
    """Write an image's locks from its packages: exact versions, with hashes; gives the first lock.

    Raises NotFound for an image that is not there, EnvironmentFailure where uv fails.
    """
    if name not in list_images(project):
        lock_file(name, project)
    folder = project / "images" / name
    uv = find_uv(project)
    for packages in sorted(folder.glob("requirements*.in")):
        place = packages.relative_to(project)
        with report(f"{place}: versions and hashes looked up"):
            run_logged(
                [uv, *lock_command(packages), "--quiet"],
                what=f"locking {place}",
                log=project / ".trainyard" / "logs" / f"image-{name}.log",
                env=uv_environment(uv),
                cwd=folder,
                hint=f"check {place} and the package index, then: launch image lock {name}",
            )
    return lock_file(name, project)


def lock_command(packages: Path) -> list[str]:
    """Give the words of uv that lock a file of packages: those of its last lock, where it has one."""
    lock = packages.with_suffix(".txt")
    found = _COMMAND.search(lock.read_text(encoding="utf-8")) if lock.exists() else None
    if found is not None:
        return shlex.split(found[1])
    options = ["--generate-hashes", "--universal", "--python-version", "3.11"]
    return ["pip", "compile", *options, packages.name, "-o", lock.name]
