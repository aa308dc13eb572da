"""Finds Pulumi on PATH, fetches its official release, or builds it from pinned Go modules."""

from __future__ import annotations

import hashlib
import os
import platform
import queue
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPResponse
from pathlib import Path
from typing import cast

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.cache import content_key, exclusive, run_logged
from tools.phases import Phases
from tools.project import Project

OLDEST = (3, 250)
HOST = "pulumi-language-python"

RELEASE = "3.255.0"
RELEASE_URL = "https://get.pulumi.com/releases/sdk/pulumi-v{version}-linux-{arch}.tar.gz"
RELEASE_SHA256 = {
    "x64": "cf559568e2c32f7fae56ea3de8ae5fa48973ba8c5aa9dd2b3dc0c8898fe50dba",
    "arm64": "699fbc6ea848d997e9b3645487f108d27b1b55ec807c7576406131e6e080f0e3",
}
ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}
ANSWER_S = 5
STALL_S = 15

SDK_MODULE = "github.com/pulumi/pulumi/sdk/v3"
CLI_PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
HOST_PACKAGE = f"{SDK_MODULE}/python/cmd/{HOST}"
SCRIPTS = ("python/cmd/pulumi-language-python-exec", "python/dist/pulumi-resource-pulumi-python")
BUILD_FLAGS = ("-trimpath", "-mod=readonly")
LINK_FLAGS = "-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={version}"
BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOWORK": "off"}


def ensure_pulumi(project: Project, phases: Phases) -> Path:
    """Find or install Pulumi; returns the folder of `pulumi` and its Python language host."""
    with phases.phase("Pulumi") as phase:
        found = find_installed(project)
        if found is not None:
            phase.note(f"found at {found}")
            return found
        kept = find_kept(project)
        if kept is not None:
            phase.note("from the cache")
            return kept
        problem = fetch_release(project, phases)
        if problem is None:
            phase.note(f"official release {RELEASE}")
            return release_folder(project)
        phase.note(f"no official release ({problem})")
    with phases.phase("Pulumi compiled from Go modules (about 4 minutes)"):
        return build_from_modules(project, phases)


def find_installed(project: Project) -> Path | None:
    """Find the folder of a Pulumi on PATH that is new enough and has its language host."""
    # Not our own wrapper, which an activated environment puts on PATH.
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(entry for entry in entries if Path(entry) != project.venv / "bin")
    pulumi = shutil.which("pulumi", path=path)
    if pulumi is None:
        return None
    version = subprocess.run(
        [pulumi, "version"], capture_output=True, encoding="utf-8", check=False
    ).stdout
    match = re.match(r"v?(\d+)\.(\d+)\.", version)
    if match is None or tuple(map(int, match.groups())) < OLDEST:
        return None
    folders = (Path(pulumi).parent, Path(pulumi).resolve().parent)
    return next((folder for folder in folders if (folder / HOST).exists()), None)


def home(project: Project) -> dict[str, str]:
    """Build an environment in which Pulumi writes nothing outside this clone."""
    folder = project.state / "pulumi-home"
    return {**os.environ, "PULUMI_HOME": str(folder), "PULUMI_SKIP_UPDATE_CHECK": "true"}


def find_kept(project: Project) -> Path | None:
    folders = (release_folder(project), build_folder(project))
    return next((folder for folder in folders if (folder / "pulumi").exists()), None)


def release_folder(project: Project) -> Path:
    return project.cache / "pulumi" / content_key([RELEASE, *RELEASE_SHA256.values(), machine()])


def machine() -> str:
    return f"{platform.system()}-{platform.machine()}"


def fetch_release(project: Project, phases: Phases, *, url: str = RELEASE_URL) -> str | None:
    """Fetch the official release into the cache; returns the reason where it cannot be had."""
    arch = ARCHITECTURES.get(platform.machine())
    if platform.system() != "Linux" or arch is None:
        return f"none is pinned for {machine()}"
    folder = release_folder(project)
    with exclusive(folder.with_name(f"{folder.name}.lock"), what="Pulumi", report=phases.phase):
        if (folder / "pulumi").exists():
            return None  # another clone's set-up has fetched it meanwhile
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        archive = partial / "pulumi.tar.gz"
        try:
            download(url.format(version=RELEASE, arch=arch), archive, sha256=RELEASE_SHA256[arch])
            shutil.unpack_archive(archive, partial)
            shutil.rmtree(folder, ignore_errors=True)
            (partial / "pulumi").rename(folder)
        except (OSError, ValueError) as error:
            return str(getattr(error, "reason", error)) or type(error).__name__
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return None


def download(url: str, target: Path, *, sha256: str) -> None:
    """Fetch one file. Raises OSError within seconds where nobody answers, ValueError for other
    content than was pinned."""
    digest = hashlib.sha256()
    with open_url(url) as response, target.open("wb") as out:
        while block := response.read(1 << 20):
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != sha256:
        message = f"{url} has the sha256 {digest.hexdigest()}, not the pinned one"
        raise ValueError(message)


def open_url(url: str) -> HTTPResponse:
    """Open a URL; a name server that never answers counts as a timeout."""
    answers: queue.SimpleQueue[HTTPResponse | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(cast("HTTPResponse", urllib.request.urlopen(url, timeout=STALL_S)))  # noqa: S310
        except urllib.error.HTTPError as error:
            error.close()  # it is an answer, too, and holds its socket
            answers.put(error)
        except OSError as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=ANSWER_S)
    except queue.Empty:
        message = f"no answer within {ANSWER_S} s"
        raise TimeoutError(message) from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def build_folder(project: Project) -> Path:
    manifests = [
        (project.root / "tools" / "pulumi" / part / name).read_bytes()
        for part in ("cli", "host")
        for name in ("go.mod", "go.sum")
    ]
    recipe = [*BUILD_FLAGS, LINK_FLAGS, CLI_PACKAGE, HOST_PACKAGE, *SCRIPTS]
    settings = [f"{name}={value}" for name, value in BUILD_ENVIRONMENT.items()]
    return project.cache / "pulumi" / content_key([*manifests, *recipe, *settings, machine()])


def build_from_modules(project: Project, phases: Phases) -> Path:
    """Compile the CLI and its language host; `go install` refuses both, hence the go.mod files."""
    go = shutil.which("go")
    if go is None:
        message = "Pulumi has to be compiled, and Go is not on PATH"
        raise EnvironmentFailure(
            message, hint="install Go 1.25 or newer, or Pulumi 3.250 or newer, and try again"
        )
    folder = build_folder(project)
    modules = project.root / "tools" / "pulumi"
    log = project.log("pulumi")
    env = go_environment(project)
    with exclusive(
        folder.with_name(f"{folder.name}.lock"), what="Pulumi", report=phases.phase
    ) as lock:
        if (folder / "pulumi").exists():
            return folder
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        builds = ((CLI_PACKAGE, modules / "cli", "pulumi"), (HOST_PACKAGE, modules / "host", HOST))
        for package, source, program in builds:
            link = LINK_FLAGS.format(version=pinned_version(source / "go.mod"))
            run_logged(
                [go, "build", *BUILD_FLAGS, "-ldflags", link, "-o", partial / program, package],
                what=f"compiling {program}",
                log=log,
                env=env,
                cwd=source,
                keep=[lock],
                hint="is the Go module proxy within reach? `go version` must be 1.25 or newer",
            )
        copy_scripts(go, modules / "cli", partial, env)
        run_logged(
            [partial / "pulumi", "version"], what="the compiled pulumi", log=log, env=home(project)
        )
        partial.rename(folder)
    return folder


def go_environment(project: Project) -> dict[str, str]:
    """Build the environment of Go, whose telemetry then stays in this clone."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return {
        # What `go env -w` has set: a proxy, say.
        "GOENV": str(config / "go" / "env"),
        **os.environ,
        **BUILD_ENVIRONMENT,
        # No variable says where telemetry goes, but this one, under which Go has its settings too.
        "XDG_CONFIG_HOME": str(project.state / "config"),
    }


def pinned_version(go_mod: Path) -> str:
    match = re.search(
        r"^require \S+ (v\S+)$", go_mod.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert match is not None, f"{go_mod} pins nothing"
    return match[1]


def copy_scripts(go: str, module: Path, target: Path, env: Mapping[str, str]) -> None:
    """Take the host's helper scripts from the SDK module that the CLI was built with."""
    sdk = subprocess.run(
        [go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", SDK_MODULE],
        cwd=module,
        env=env,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout.strip()
    for script in SCRIPTS:
        copy = target / Path(script).name
        shutil.copyfile(Path(sdk) / script, copy)
        copy.chmod(0o755)
