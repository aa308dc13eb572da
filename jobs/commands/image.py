"""`launch image`: install images on this machine; build and push them as containers."""

from __future__ import annotations

import time
from pathlib import Path

from jobs.commands import completers as completion
from jobs.commands import options
from jobs.commands.parser import CommandParser
from jobs.host import console


def configure(parser: CommandParser) -> None:
    """Say what can be typed after it."""
    installed = parser.add_command(
        "install",
        "Make an image's runtime on this machine: a virtual environment from the image's lock.",
        install,
    )
    _add_name(installed)

    built = parser.add_command(
        "build",
        "Build an image as a container, by buildah, podman or docker; its tag names its content.",
        build,
    )
    _add_name(built)
    _add_variant(built)

    pushed = parser.add_command(
        "push",
        "Send a built image to a registry; prints the setting that pins it by digest.",
        push,
    )
    _add_name(pushed)
    _add_variant(pushed)
    pushed.add_argument(
        "--registry",
        metavar="HOST/PATH",
        help="Where to, instead of the environment's own registry.",
    )
    options.add_environment(pushed)

    listed = parser.add_command(
        "ls", "List the images: what is installed, and what is built as a container.", list_images
    )
    options.add_json(listed)


def _add_name(parser: CommandParser) -> None:
    name = parser.add_argument("name", metavar="NAME", help="A folder of images/.")
    completion.offer(name, completion.images)


def _add_variant(parser: CommandParser) -> None:
    from jobs.images.recipes import VARIANTS

    parser.add_argument(
        "--variant",
        choices=VARIANTS,
        default=VARIANTS[0],
        help=f"{' or '.join(VARIANTS)} ({VARIANTS[0]} is the default).",
    )


def install(*, name: str) -> None:
    """Make an image's runtime on this machine: a virtual environment from the image's lock."""
    from jobs.host.progress import step
    from jobs.images import runtimes as images

    root = images.build_runtime(name, _trusted_folder(), report=step)
    console.out(str(root / "bin" / "python"))


def build(*, name: str, variant: str) -> None:
    """Build an image as a container, by buildah, podman or docker; its tag names its content."""
    from jobs.host.progress import BuildProgress, step
    from jobs.images.build import build_image, build_log, record_folder
    from jobs.images.engines import find_engine
    from jobs.images.recipes import read_recipe

    project = _trusted_folder()
    recipe = read_recipe(name, variant, project)
    engine = find_engine()
    began = time.monotonic()

    def begin() -> BuildProgress:
        console.say(f"building {recipe.reference} by {engine.name}; log: {_log()}")
        return BuildProgress("starting")

    def _log() -> Path:
        return build_log(recipe, project)

    if build_image(recipe, engine, project, progress=begin, report=step):
        took = console.duration_text(time.monotonic() - began)
        console.say(f"built in {took}; contents: {record_folder(recipe, project)}/sbom.cdx.json")
    else:
        console.say("it is there already: nothing that goes into it has changed")
    console.out(recipe.reference)


def push(*, name: str, variant: str, registry: str | None, stack: str, env: Path | None) -> None:
    """Send a built image to a registry; prints the setting that pins it by digest."""
    from jobs.host.progress import BuildProgress
    from jobs.host.project import sources_folder
    from jobs.images.build import push_image
    from jobs.images.engines import find_engine
    from jobs.images.recipes import read_recipe

    project = sources_folder()
    recipe = read_recipe(name, variant, project)
    target = registry or _registry_of(stack, env)
    engine = find_engine()
    console.say(f"pushing {recipe.reference} to {target} by {engine.name}")
    pinned = push_image(recipe, engine, project, target, progress=BuildProgress("starting"))
    console.say(f"\nthe same as `pulumi config set --path trainyard:images.{name} {pinned}`,")
    console.say("or in the stack's Pulumi.<stack>.yaml, under `config:`")
    console.out(f"  trainyard:images:\n    {name}: {pinned} # {recipe.tag}")


def _registry_of(stack: str, env: Path | None) -> str:
    from jobs.contracts.errors import LaunchError
    from jobs.stacks.read import load_environment

    environment = load_environment(stack, env)
    if environment.registry is None:
        message = f"the environment of stack `{environment.stack}` has no registry"
        raise LaunchError(message, hint="--registry HOST/PATH, or -s a stack on Azure")
    return f"{environment.registry.login_server}/trainyard"


def list_images(*, json: bool) -> None:
    """List the images: what is installed, and what is built as a container."""
    from jobs.host.project import sources_folder
    from jobs.images.listing import list_all

    rows = list_all(sources_folder())
    if json:
        console.out_json(rows)
        return
    cells: list[list[str]] = []
    for row in rows:
        cells.append([row["name"], "runtime", "yes" if row["built"] else "no", row["runtime"]])
        for each in row["containers"]:
            built = {True: "yes", False: "no", None: "unknown"}[each["built"]]
            state = built if each["current"] else "old"
            cells.append([row["name"], each["variant"], state, each["reference"]])
    console.out(console.table(["IMAGE", "KIND", "BUILT", "WHERE"], cells))


def _trusted_folder() -> Path:
    """Give the project whose images are built, which runs programs of it."""
    from jobs.host.project import require_trusted, sources_folder

    project = sources_folder()
    require_trusted(project)
    return project
