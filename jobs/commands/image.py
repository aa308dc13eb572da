"""`launch image`: install images on this machine; build, push and promote them as containers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jobs.commands import completers, options
from jobs.commands.usage import make_app
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import Environment

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A folder of images/.", autocompletion=completers.images),
]
Variant = Annotated[Literal["cpu", "cuda"], typer.Option(help="Build for CPUs or for NVIDIA GPUs.")]


def init(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new image.")],
    base: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="IMAGE",
            help="Image whose packages and Dockerfile are copied.",
            autocompletion=completers.images,
        ),
    ] = "pytorch",
) -> None:
    """Write images/NAME: a Dockerfile, a list of packages and its lock, ready to be changed."""
    from jobs.host.project import sources_folder
    from jobs.images.starting import start_image

    folder = start_image(name, base, sources_folder())
    console.say(
        f"packages: images/{name}/requirements.in; after a change: launch image lock {name}"
    )
    console.say(f"this machine: launch image install {name}, then `image: {name}` in a job file")
    console.say(f"a container: launch image build {name}")
    console.out(str(folder))


def lock(*, name: Name) -> None:
    """Write an image's lock: exact versions of its packages, with hashes."""
    from jobs.host.progress import step
    from jobs.images.starting import lock_image

    console.out(str(lock_image(name, _trusted_folder(), report=step)))


def install(*, name: Name) -> None:
    """Make an image's runtime on this machine: a virtual environment from the image's lock."""
    from jobs.host.progress import step
    from jobs.images import runtimes as images

    root = images.build_runtime(name, _trusted_folder(), report=step)
    console.out(str(root / "bin" / "python"))


def build(*, name: Name, variant: Variant = "cpu") -> None:
    """Build an image as a container with buildah, podman or docker; the tag identifies its content."""
    from jobs.host.progress import BuildProgress, step
    from jobs.images.build import build_image, build_log, record_folder
    from jobs.images.engines import running_engine
    from jobs.images.recipes import read_recipe

    project = _trusted_folder()
    recipe = read_recipe(name, variant, project)
    engine = running_engine()
    began = time.monotonic()

    def begin() -> BuildProgress:
        log = build_log(recipe, project)
        console.say(f"building {recipe.reference} by {engine.name}; log: {log}")
        return BuildProgress("starting")

    if build_image(recipe, engine, project, progress=begin, report=step):
        took = console.duration_text(time.monotonic() - began)
        console.say(f"built in {took}; contents: {record_folder(recipe, project)}/sbom.cdx.json")
    else:
        console.say("it is there already: nothing that goes into it has changed")
    console.out(recipe.reference)


def push(
    *,
    name: Name,
    variant: Variant = "cpu",
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="HOST/PATH", help="Registry to push to (default: the environment's own)."
        ),
    ] = None,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Upload a built image to a registry; prints the setting that pins its digest."""
    from jobs.host.progress import BuildProgress
    from jobs.host.project import sources_folder
    from jobs.images.build import push_image
    from jobs.images.engines import running_engine
    from jobs.images.recipes import read_recipe

    project = sources_folder()
    recipe = read_recipe(name, variant, project)
    target = registry or _registry_of(stack, env)
    engine = running_engine()
    console.say(f"pushing {recipe.reference} to {target} by {engine.name}")
    pinned = push_image(recipe, engine, project, target, progress=BuildProgress("starting"))
    _say_setting(name, pinned, None)
    console.out(f"  trainyard:images:\n    {name}: {pinned} # {recipe.tag}")


def promote(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An image that the stack pins.",
            autocompletion=completers.pinned_images,
        ),
    ],
    to: options.ToStack,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Copy a pinned image to another stack's registry; prints the setting that pins its digest."""
    source, target = options.open_environment(stack, env), options.open_target(to)
    reference = _pinned(name, source)
    console.say(f"importing {reference} into the registry of stack {target.stack}")
    pinned = options.open_engine(target).import_image(reference, source)
    if target.images.get(name) == pinned:
        console.say(f"stack {target.stack} pins it already")
    _say_setting(name, pinned, target.stack)
    console.out(f"  trainyard:images:\n    {name}: {pinned}")


def _say_setting(name: str, pinned: str, stack: str | None) -> None:
    words = f" -s {stack}" if stack else ""
    console.say(f"\nto pin it: `pulumi config set --path trainyard:images.{name} {pinned}{words}`,")
    console.say(f"or this under `config:` in Pulumi.{stack or 'STACK'}.yaml:")


def _pinned(name: str, environment: Environment) -> str:
    from jobs.contracts.errors import LaunchError, NotFound

    if environment.registry is None:
        message = f"stack `{environment.stack}` has no registry: it runs images of this machine"
        hint = f"launch image push {name} -s STACK sends one from this machine to stack STACK"
        raise LaunchError(message, hint=hint)

    if reference := environment.images.get(name):
        return reference
    message = f"stack `{environment.stack}` pins no image `{name}`"
    there = ", ".join(sorted(environment.images))
    hint = f"it pins {there}" if there else f"launch image push {name} -s {environment.stack}"
    raise NotFound(message, hint=hint)


def _registry_of(stack: str, env: Path | None) -> str:
    from jobs.contracts.errors import LaunchError

    environment = options.open_environment(stack, env)
    if environment.registry is None:
        message = f"the environment of stack `{environment.stack}` has no registry"
        raise LaunchError(message, hint="--registry HOST/PATH, or -s a stack on Azure")
    return f"{environment.registry.login_server}/trainyard"


def list_images(*, json: options.Json = False) -> None:
    """List the images, with their runtimes and built containers."""
    from jobs.host.project import sources_folder
    from jobs.images.listing import images_table, list_all

    rows = list_all(sources_folder())
    if json:
        console.out_json(rows)
        return
    console.out(images_table(rows))


def path(*, name: Name) -> None:
    """Print the interpreter of an installed image, for IDEs and debuggers."""
    from jobs.host.project import sources_folder
    from jobs.images.runtimes import runtime_python

    console.out(str(runtime_python(name, sources_folder())))


def _trusted_folder() -> Path:
    """Find the project whose images are built; raise Refused unless it is trusted."""
    from jobs.host.project import require_trusted, sources_folder

    project = sources_folder()
    require_trusted(project)
    return project


app = make_app(
    {
        "init": init,
        "lock": lock,
        "install": install,
        "build": build,
        "push": push,
        "promote": promote,
        "path": path,
        "ls": list_images,
    }
)
