"""Name images as Azure ML knows them: versions of an `environment`, by what is in them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Environment, JobSpec
from jobs.images.references import is_reference

if TYPE_CHECKING:
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
        """Give the version's path in Resource Manager, which is also the id that a job names."""
        return f"{workspace}/environments/{self.name}/versions/{self.version}"


def version_for(spec: JobSpec, environment: Environment) -> ImageVersion:
    """Make the version that a job needs; reads images/<name>/ of the project for a bare name.

    Raises NotFound where the project has no such image.
    """
    if is_reference(spec.image):
        return image_version(spec.image)
    return built_version(recipe_of(spec, environment))


def image_reference(image: str, environment: Environment) -> str:
    """Give the reference that the stack pins for an image; raises LaunchError for an unknown one.

    A dev stack's workspace builds what is not pinned itself, from images/<name>, on a cluster without
    GPUs; not in a private network, whose nodes reach no base image.
    """
    if image in environment.images or is_reference(image):
        return environment.images.get(image, image)
    is_dev = re.fullmatch(r"dev(-.*)?", environment.stack) is not None
    is_built = is_dev and environment.network != "private"
    if is_built and any(each.gpus_per_node == 0 for each in environment.clusters.values()):
        return image
    message = f"stack `{environment.stack}` has no image `{image}`"
    if is_built:
        message += ", and no cluster without GPUs to build it on"
    near = get_close_matches(image, list(environment.images), n=1)
    hint = (
        f"did you mean `{near[0]}`?"
        if near
        else "launch image push makes one; or `image:` a registry's reference"
    )
    raise LaunchError(message, hint=hint)


def image_version(reference: str) -> ImageVersion:
    """Make the version of an image that a registry has (pure)."""
    repository = reference.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return ImageVersion(
        name=image_name(repository),
        version=hashlib.sha256(reference.encode()).hexdigest()[:16],
        body={"properties": {"image": reference, "isAnonymous": False, "isArchived": False}},
    )


def built_version(recipe: Recipe) -> ImageVersion:
    """Make the version of an image that the workspace builds from images/<name>/ (pure)."""
    build = {"contextUri": CONTEXT, "dockerfilePath": recipe.dockerfile}
    return ImageVersion(
        name=image_name(recipe.image),
        version=recipe.tag,
        body={"properties": {"build": build, "isAnonymous": False, "isArchived": False}},
    )


def plain_dockerfile(text: str, arguments: Mapping[str, str]) -> str:
    """Rewrite a recipe for a builder that takes no arguments and may be without BuildKit (pure).

    Arguments become the defaults of their ARG lines; secrets, which nobody gives there, are left
    out; a folder that is lent to one step is copied.
    """
    for name, value in arguments.items():
        line = re.compile(rf"^ARG[ \t]+{name}(=\S*)?[ \t]*$", re.MULTILINE)
        text = line.sub(lambda _, name=name, value=value: f"ARG {name}={value}", text)
    text = _BUILD_ONLY_MOUNT.sub("", text)
    return _LENT_FOLDER.sub(r"COPY \1 \2\nRUN ", text)


def recipe_of(spec: JobSpec, environment: Environment) -> Recipe:
    """Read images/<name>/ of the project, for the GPUs of the job's cluster or for none."""
    from jobs.host.project import sources_folder
    from jobs.images.recipes import read_recipe

    has_gpus = environment.clusters[spec.cluster].gpus_per_node > 0
    return read_recipe(spec.image, "cuda" if has_gpus else "cpu", sources_folder())


def image_name(text: str) -> str:
    """Make a name that Azure ML allows."""
    return f"trainyard-{re.sub(r'[^A-Za-z0-9_-]', '-', text)}"[:_LONGEST_NAME]
