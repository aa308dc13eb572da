"""An image as Azure ML knows it: one version of an `environment`, named by what is in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import Environment, JobSpec
from jobs.engines.azure_ml.states import mapping, text_in

if TYPE_CHECKING:
    from jobs.engines.azure_ml.client import Wire
    from jobs.images.recipes import Recipe

# Stands in a body for the address of what the image is built from, until that is sent.
CONTEXT = "<CONTEXT>"
_LONGEST_NAME = 200
_BUILD_ONLY_MOUNT = re.compile(r"--mount=type=secret,\S+\s*\\?\s*")
_LENT_FOLDER = re.compile(r"RUN --mount=type=bind,source=(\S+?),target=(\S+)\s*\\?\s*")


class ImageVersion(Struct, frozen=True, kw_only=True):
    """The environment version of an image: the same name for the same image, whoever makes it."""

    name: str
    version: str
    body: dict[str, Any]

    def path(self, workspace: str) -> str:
        """Its path in Resource Manager, which is also the id that a job names."""
        return f"{workspace}/environments/{self.name}/versions/{self.version}"


def version_for(spec: JobSpec, environment: Environment) -> ImageVersion:
    """The version that a job needs. Reads images/<name>/ of the project for a bare name.

    Raises NotFound where the project has no such image.
    """
    if is_reference(spec.image):
        return image_version(spec.image)
    return built_version(_recipe(spec, environment))


def is_reference(image: str) -> bool:
    """Whether it names an image of a registry, and no folder of images/."""
    return any(mark in image for mark in "/:@")


def image_version(reference: str) -> ImageVersion:
    """The version of an image that a registry has (pure)."""
    repository = reference.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return ImageVersion(
        name=_name(repository),
        version=hashlib.sha256(reference.encode()).hexdigest()[:16],
        body={"properties": {"image": reference, "isAnonymous": False, "isArchived": False}},
    )


def built_version(recipe: Recipe) -> ImageVersion:
    """The version of an image that the workspace builds from images/<name>/ (pure)."""
    build = {"contextUri": CONTEXT, "dockerfilePath": recipe.dockerfile}
    return ImageVersion(
        name=_name(recipe.image),
        version=recipe.tag,
        body={"properties": {"build": build, "isAnonymous": False, "isArchived": False}},
    )


def send_version(version: ImageVersion, spec: JobSpec, wire: Wire) -> None:
    """Make the version known to the workspace, with what it is built from where it is.

    Raises EnvironmentFailure where another image has that name there.
    """
    what = "naming the image"
    path = version.path(wire.workspace)
    properties: dict[str, Any] = version.body["properties"]
    if is_reference(spec.image):
        answer = wire.put(path, version.body, what=what).body
        image = text_in(mapping(answer.get("properties")), "image")
        if image not in ("", properties["image"]):
            raise _not_ours(version)
        return
    # Also where there is such a version: what it is built from is compared.
    build = {**properties["build"], "contextUri": _send_context(spec, wire)}
    found = wire.find(path, what=what)
    if found is None:
        wire.put(path, {"properties": {**properties, "build": build}}, what=what)
    elif not _is_built_so(mapping(found.get("properties")), build):
        raise _not_ours(version)


def _is_built_so(properties: Mapping[str, Any], build: Mapping[str, str]) -> bool:
    """Whether a version that is there is built from that context.

    An address in a form of Azure ML's own, which cannot be compared, passes.
    """
    told = mapping(properties.get("build"))
    uri = text_in(told, "contextUri").partition("?")[0].rstrip("/")
    is_same = uri == build["contextUri"] or (bool(uri) and not uri.startswith("https://"))
    file = text_in(told, "dockerfilePath").removeprefix("./")
    return is_same and file == build["dockerfilePath"] and not properties.get("image")


def _not_ours(version: ImageVersion) -> EnvironmentFailure:
    message = (
        f"the workspace has another image as `{version.name}:{version.version}` than this job's"
    )
    hint = "somebody made it by hand: tell whoever owns the stack, or name another image"
    return EnvironmentFailure(message, hint=hint)


def plain_dockerfile(text: str, arguments: Mapping[str, str]) -> str:
    """The same recipe for a builder that takes no arguments and may be without BuildKit (pure).

    Arguments become the defaults of their ARG lines; secrets, which nobody gives there, are left
    out; a folder that is lent to one step is copied.
    """
    for name, value in arguments.items():
        line = re.compile(rf"^ARG[ \t]+{name}(=\S*)?[ \t]*$", re.MULTILINE)
        text = line.sub(lambda _, name=name, value=value: f"ARG {name}={value}", text)
    text = _BUILD_ONLY_MOUNT.sub("", text)
    return _LENT_FOLDER.sub(r"COPY \1 \2\nRUN ", text)


def _send_context(spec: JobSpec, wire: Wire) -> str:
    from jobs.blobs.files import outgoing
    from jobs.engines.azure_ml.uploads import upload

    recipe = _recipe(spec, wire.environment)
    files = [
        outgoing(place, path)[0]
        for place, path in recipe.files.items()
        if place != recipe.dockerfile
    ]
    dockerfile = recipe.files[recipe.dockerfile].read_text(encoding="utf-8")
    made = {recipe.dockerfile: plain_dockerfile(dockerfile, recipe.arguments).encode()}
    name = f"{_name(recipe.image)}-{recipe.tag}"
    return upload(wire, name, files, made, what=f"sending images/{recipe.image}")


def _recipe(spec: JobSpec, environment: Environment) -> Recipe:
    from jobs.host.project import sources_folder
    from jobs.images.recipes import read_recipe

    has_gpus = environment.clusters[spec.cluster].gpus_per_node > 0
    return read_recipe(spec.image, "cuda" if has_gpus else "cpu", sources_folder())


def _name(text: str) -> str:
    """What Azure ML allows in a name."""
    return f"trainyard-{re.sub(r'[^A-Za-z0-9_-]', '-', text)}"[:_LONGEST_NAME]
