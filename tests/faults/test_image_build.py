"""A real build of the pytorch container: on Debian laid by debootstrap, by buildah in a chroot.

The image is then entered as its own user, two ranks train in it under its own mpirun, and its
files are searched for what was only lent to the build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jobs.host.progress import BuildProgress
from jobs.images.build import build_image, build_log, record_folder
from jobs.images.engines import find_engine
from jobs.images.package_index import find_settings
from jobs.images.recipes import Recipe, read_recipe
from jobs.rank.program import rank_program
from tests.fakes.containers import buildah, buildah_storage
from trainer.data.disk.events import Events
from trainer.data.pictures.idx import read_idx
from trainer.data.prepare.digits import prepare_digits

ROOT = Path(__file__).parents[2]
BASE = "localhost/base/bookworm:debootstrap"
# A setting of the package index that does nothing, and that only the build may see.
CANARY = f"canary-{os.getpid()}-{time.time_ns():x}.example"
# Layers, the container that they are made in and the one that is looked at: 3 x 6 GB at the most.
DISK_GB = 25
HOME = "/home/trainer"

pytestmark = [pytest.mark.faults, pytest.mark.timeout(5400)]


@dataclass(frozen=True, kw_only=True)
class Built:
    """The image, a container of it, and where its files are."""

    recipe: Recipe
    project: Path
    container: str
    files: Path

    def run(self, *command: str, volumes: tuple[str, ...] = ()) -> str:
        """Run a command inside, as the image's own user; gives what it prints."""
        mounts = [part for volume in volumes for part in ("--volume", volume)]
        return buildah("run", *mounts, self.container, "--", *command)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
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
        project = copy_project(folder / "project")
        recipe = read_recipe("pytorch", "cpu", project)
        assert build_image(
            recipe,
            find_engine(),
            project,
            progress=lambda: BuildProgress("starting"),
            report=nullcontext,
        )
        container = buildah("from", "--pull-never", recipe.reference)
        yield Built(
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
        pytest.skip(f"debootstrap failed: {laid.stdout[-500:]}")
    for leftover in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(folder / leftover)
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, folder, "/")
    buildah("commit", "--quiet", container, BASE)
    buildah("rm", container)
    shutil.rmtree(folder)


def copy_project(folder: Path) -> Path:
    """The images and trainers as they are, on our base."""
    for part in ("images", "trainer"):
        shutil.copytree(ROOT / part, folder / part)
    path = folder / "images" / "pytorch" / "Dockerfile"
    text, count = re.subn(
        r"^ARG BASE_IMAGE=.*$", f"ARG BASE_IMAGE={BASE}", path.read_text(), flags=re.MULTILINE
    )
    assert count == 1
    path.write_text(text)
    return folder


def test_the_same_content_is_there_already(built: Built) -> None:
    began = time.monotonic()
    assert not build_image(
        built.recipe,
        find_engine(),
        built.project,
        progress=lambda: BuildProgress("starting"),
        report=nullcontext,
    )
    assert time.monotonic() - began < 60


def test_two_ranks_train_in_it_under_its_own_mpirun(built: Built, tmp_path: Path) -> None:
    """As an engine starts it: rank.pyz travels beside the code, the trainers are the image's."""
    digits, run = tmp_path / "digits", tmp_path / "run"
    prepare_digits(digits, Events(as_json=True))
    assert read_idx(digits, "t10k-labels-idx1-ubyte")
    for name in ("code", "nodes", "logs", "ranks", "outputs/model", "checkpoints"):
        (run / name).mkdir(parents=True)
    (run / "rank.pyz").write_bytes(rank_program())
    program = ["python", "-m", "trainer.pytorch.mnist", "--data", "/data"]
    job = {
        "run_dir": f"{HOME}/run",
        "command": [*program, "--strategy", "horovod", "--epochs", "4"],
        "outputs": ["model"],
    }
    (run / "rank.json").write_text(json.dumps(job))
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 10001, 10001)
    transports = ("--mca", "btl", "self,sm", "--mca", "pml", "ob1")
    built.run(
        *("mpirun", "-np", "2", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", *transports),
        *("python", "-I", "-S", "run/rank.pyz", "run/rank.json"),
        volumes=(f"{digits}:/data:ro", f"{run}:{HOME}/run"),
    )
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["strategy"], summary["world_size"]) == ("horovod", 2)
    assert summary["test_accuracy"] > 0.9
    digests = summary["weights_sha256"]
    assert digests == [digests[0]] * 2


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


def test_the_user_is_nobody_and_can_write_at_home_alone(built: Built) -> None:
    assert built.run("id", "-u") == "10001"
    script = "for each in / /opt /opt/runtime /opt/trainyard /usr /etc ~; do [ -w $each ] && echo $each; done; :"
    assert built.run("sh", "-c", script) == HOME
    # Their own modules are there compiled, so that no start compiles them again.
    assert list(built.files.glob("opt/runtime/lib/python3.*/site-packages/torch/__pycache__/*.pyc"))


def test_no_cache_and_no_tool_of_the_build_is_left(built: Built) -> None:
    left = [
        *built.files.glob("var/lib/apt/lists/*"),
        *built.files.glob("var/cache/apt/*"),
        *built.files.glob("root/.cache"),
        *built.files.glob("home/*/.cache"),
        *built.files.glob("build"),
        *built.files.glob("opt/build"),
        *built.files.glob("run/secrets/*"),
        *built.files.glob("usr/bin/*g++*"),
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
    assert ours == {
        "title": "Trainyard: pytorch",
        "description": "PyTorch, Horovod with Gloo and Open MPI, Trainyard's trainers",
        "source": "",
        "revision": "",
        "version": "0.1.0",
        "base.name": BASE,
        "base.digest": "",
    }
    assert described["OCIv1"]["created"] == "1980-01-01T00:00:00Z"
    assert described["OCIv1"]["config"]["User"] == "10001:10001"
