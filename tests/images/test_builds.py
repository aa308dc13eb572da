"""Real builds of the containers for CPU: on Debian laid by debootstrap, by buildah in a chroot.

Two nodes then have an image's files: its own mpirun starts a rank on each over its own sshd, and they train.
Its packages are compared with those of Azure ML's base images, and its files are searched for what was
only lent to the build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jobs.host.progress import BuildProgress
from jobs.images.build import build_image, build_log, record_folder
from jobs.images.engines import find_engine
from jobs.images.package_index import find_settings
from jobs.images.recipes import Recipe, read_recipe
from tests.busy import Bound
from tests.fakes.containers import buildah, buildah_storage
from tests.fakes.nodes import Node, two_nodes
from tests.images.test_azure_ml_contract import CONTRACT, wanted_packages
from tests.images.two_nodes import (
    check_ranks,
    check_trained,
    check_weights,
    lay_run,
    mnist,
    of_pytorch,
    of_tensorflow,
    others_scripts,
    resnet_tf,
    train_by_environment,
    train_by_mpirun,
)

ROOT = Path(__file__).parents[2]
BASE = "localhost/base/bookworm:debootstrap"
# A setting of the package index that does nothing, and that only the build may see.
CANARY = f"canary-{os.getpid()}-{time.time_ns():x}.example"
# Layers, the container that they are made in and the one that is looked at: 3 x 6 GB at the most.
DISK_GB = 25
WORKSPACE = "/workspace"

pytestmark = [pytest.mark.faults, pytest.mark.images, pytest.mark.timeout(5400)]


@dataclass(frozen=True, kw_only=True)
class Framework:
    """What an image's framework is called, and what its ranks train."""

    module: str
    # Prints what a compiled graph makes of three ones.
    compiled: str
    command: Callable[[str], Sequence[str]]
    # Of ranks that nobody but the platform starts, and their variables.
    strategy: str
    variables: Callable[[int, Sequence[str]], Mapping[str, str]]
    check: Callable[[Path, str], object]


TENSORFLOW = Framework(
    module="tensorflow",
    compiled="import tensorflow as tf; f = tf.function(lambda x: x * 2 + 1, jit_compile=True); "
    "print(f(tf.ones(3)).numpy().tolist())",
    command=resnet_tf,
    strategy="mwms",
    variables=of_tensorflow,
    check=check_ranks,
)
FRAMEWORKS = {
    "pytorch": Framework(
        module="torch",
        compiled="import torch; print(torch.compile(lambda x: x * 2 + 1)(torch.ones(3)).tolist())",
        command=mnist,
        strategy="ddp",
        variables=of_pytorch,
        check=check_trained,
    ),
    "tensorflow": TENSORFLOW,
    "tensorflow-keras2": replace(TENSORFLOW, command=others_scripts, check=check_weights),
}


@dataclass(frozen=True, kw_only=True)
class Built:
    """The image, a container of it, and where its files are."""

    framework: Framework
    recipe: Recipe
    project: Path
    container: str
    files: Path

    def run(self, *command: str) -> str:
        """Run a command inside, as the image's own user; gives what it prints."""
        return buildah("run", self.container, "--", *command)


@pytest.fixture(scope="module", params=FRAMEWORKS)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Built]:
    """The image, built from the files as they are, on a base made here."""
    folder = tmp_path_factory.mktemp("images")
    if shutil.which("debootstrap") is None:
        pytest.skip("debootstrap is not installed (apt-get install debootstrap)")
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < DISK_GB:
        pytest.skip(f"{free_gb:.0f} GB are free in {folder}; the build takes {DISK_GB}")
    with pytest.MonkeyPatch.context() as patch, buildah_storage(folder / "buildah", patch):
        make_base(folder / "base")
        patch.setenv("PIP_TRUSTED_HOST", CANARY)
        project = copy_project(request.param, folder / "project")
        recipe = read_recipe(request.param, "cpu", project)
        assert build_image(
            recipe,
            find_engine(),
            project,
            progress=lambda: BuildProgress("starting"),
            report=nullcontext,
        )
        container = buildah("from", "--pull-never", recipe.reference)
        yield Built(
            framework=FRAMEWORKS[request.param],
            recipe=recipe,
            project=project,
            container=container,
            files=Path(buildah("mount", container)),
        )


def make_base(folder: Path) -> None:
    """Lay a minimal Debian and import it as an image, since no registry may be in reach."""
    laid = subprocess.run(
        ["debootstrap", "--variant=minbase", "bookworm", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if laid.returncode:
        said = laid.stdout[-500:]
        pytest.fail(f"the environment of the tests: debootstrap failed: {said}", pytrace=False)
    for leftover in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(folder / leftover)
    # As in Debian's own images: nothing that is installed starts a service.
    policy = folder / "usr" / "sbin" / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    policy.chmod(0o755)
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, folder, "/")
    buildah("commit", "--quiet", container, BASE)
    buildah("rm", container)
    shutil.rmtree(folder)


def copy_project(image: str, folder: Path) -> Path:
    """The images and trainers as they are, on our base."""
    for part in ("images", "trainer"):
        shutil.copytree(ROOT / part, folder / part)
    path = folder / "images" / image / "Dockerfile"
    text, count = re.subn(
        r"^ARG BASE_IMAGE=.*$", f"ARG BASE_IMAGE={BASE}", path.read_text(), flags=re.MULTILINE
    )
    assert count == 1
    path.write_text(text)
    return folder


def test_the_same_content_is_there_already(built: Built) -> None:
    bound = Bound(60)
    assert not build_image(
        built.recipe,
        find_engine(),
        built.project,
        progress=lambda: BuildProgress("starting"),
        report=nullcontext,
    )
    bound.check()


@pytest.fixture(scope="module")
def nodes(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    with two_nodes(tmp_path_factory.mktemp("nodes"), built.files) as pair:
        yield pair


def variables(built: Built) -> dict[str, str]:
    """The image's own, as a container of it has them, and where the run is."""
    described = json.loads(buildah("inspect", "--type", "image", built.recipe.reference))
    given = dict(each.split("=", 1) for each in described["OCIv1"]["config"]["Env"])
    return {**given, "HOME": "/root", "AT": WORKSPACE}


@pytest.mark.parametrize("options", [(), ("-x", "PATH")], ids=["as it is", "with PATH passed on"])
def test_ranks_of_two_nodes_train_in_it_under_its_own_mpirun(
    built: Built, nodes: tuple[Node, Node], options: tuple[str, ...]
) -> None:
    """As an engine starts it: rank.pyz travels beside the code, the trainers are the image's."""
    folder = built.files / WORKSPACE.strip("/")
    framework = built.framework
    lay_run(folder, framework.command("horovod"), seen_at=WORKSPACE)
    train_by_mpirun(nodes[0], variables(built), options=options)
    framework.check(folder, "horovod")
    shutil.rmtree(folder / "run")


def test_ranks_of_two_nodes_train_in_it_by_their_variables(
    built: Built, nodes: tuple[Node, Node]
) -> None:
    folder = built.files / WORKSPACE.strip("/")
    framework = built.framework
    lay_run(folder, framework.command(framework.strategy), seen_at=WORKSPACE)
    train_by_environment(nodes, variables(built), framework.variables)
    framework.check(folder, framework.strategy)
    shutil.rmtree(folder / "run")


def test_it_has_what_azure_mls_base_images_have(built: Built) -> None:
    listed = built.run("dpkg-query", "-W", "-f", "${Package}\n").splitlines()
    named = {name for name, said in CONTRACT["packages"].items() if said.startswith("ours, by ")}
    assert (named | wanted_packages()) - set(listed) == set()
    # As it is: with its own keys, and the folder that sshd insists on.
    assert built.run("/usr/sbin/sshd", "-t") == ""
    assert "--enable-prte-prefix-by-default" in built.run("prte_info", "--config")


def test_a_compiled_graph_finds_its_compiler_and_headers(built: Built) -> None:
    assert built.run("python", "-c", built.framework.compiled) == "[3.0, 3.0, 3.0]"


def test_the_bill_of_materials_is_what_is_installed(built: Built) -> None:
    record = record_folder(built.recipe, built.project) / "sbom.cdx.json"
    inside = built.files / "opt" / "trainyard" / "sbom.cdx.json"
    assert record.read_bytes() == inside.read_bytes()
    listed = {
        each["purl"].partition("?")[0] for each in json.loads(record.read_text())["components"]
    }
    metadata = built.files.glob("opt/runtime/lib/python3.*/site-packages/*.dist-info/METADATA")
    installed = {pypi_url(path.read_text(encoding="utf-8")) for path in metadata}
    packages = built.run("dpkg-query", "-W", "-f", "${Package} ${Version}\n").splitlines()
    debian = {len(each.split()) for each in packages}
    assert debian == {2}
    assert {each for each in listed if each.startswith("pkg:pypi/")} == installed
    assert len([each for each in listed if each.startswith("pkg:deb/")]) == len(packages)


def pypi_url(metadata: str) -> str:
    name, version = (
        re.search(rf"^{key}: (.+)$", metadata, re.MULTILINE)[1] for key in ("Name", "Version")
    )
    return f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{version}"


def test_it_starts_as_root_with_compiled_modules(built: Built) -> None:
    assert built.run("sh", "-c", "id -u; pwd") == f"0\n{WORKSPACE}"
    # So that no start compiles them again, whoever the user is.
    packages = "opt/runtime/lib/python3.*/site-packages"
    assert list(built.files.glob(f"{packages}/{built.framework.module}/__pycache__/*.pyc"))


def test_no_cache_and_no_tool_of_the_build_is_left(built: Built) -> None:
    left = [
        *built.files.glob("var/lib/apt/lists/*"),
        *built.files.glob("var/cache/apt/*"),
        *built.files.glob("root/.cache"),
        *built.files.glob("home/*/.cache"),
        *built.files.glob("build"),
        *built.files.glob("opt/build"),
        *built.files.glob("run/secrets/*"),
    ]
    assert left == []


def test_nothing_that_was_lent_to_the_build_is_in_it(built: Built) -> None:
    """The package index's host and its settings: in no file, label, history or variable."""
    settings = find_settings(os.environ, Path.home())
    words = " ".join(settings.values()).split()
    hosts = {urlsplit(word).hostname or word for word in words} - {"pypi.org"}
    assert CANARY in hosts
    described = buildah("inspect", "--type", "image", built.recipe.reference)
    assert [host for host in hosts if host in described] == []
    # The log stays on this machine and names no setting, either.
    log = build_log(built.recipe, built.project).read_text(errors="replace")
    assert CANARY not in log
    patterns = [part for host in hosts for part in ("-e", host)]
    found = subprocess.run(
        ["grep", "-rlF", *patterns, built.files], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (1, "")


def test_the_labels_say_what_it_was_made_from(built: Built) -> None:
    described = json.loads(buildah("inspect", "--type", "image", built.recipe.reference))
    labels = described["OCIv1"]["config"]["Labels"]
    prefix = "org.opencontainers.image."
    ours = {key.removeprefix(prefix): value for key, value in labels.items() if prefix in key}
    image = built.recipe.image
    assert ours == {
        "title": f"Trainyard: {image}",
        "description": f"The packages of images/{image}, Horovod with Gloo and Open MPI, Trainyard's trainers",
        "source": "",
        "revision": "",
        "version": "0.1.0",
        "base.name": BASE,
        "base.digest": "",
    }
    assert described["OCIv1"]["created"] == "1980-01-01T00:00:00Z"
    assert described["OCIv1"]["config"]["User"] == "root:root"
