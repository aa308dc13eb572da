"""The programs that build container images: buildah, podman and docker, told apart by argv alone.

Credentials are the engine's own (`buildah login`, `docker login`); none passes through here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jobs.contracts.errors import EnvironmentFailure

# buildah needs no daemon and no right to run containers, podman no daemon. The first two share
# their images and logins.
ENGINES: tuple[EngineName, ...] = ("buildah", "podman", "docker")
EngineName = Literal["buildah", "podman", "docker"]
# Those that also run what they have.
RUNNERS: tuple[EngineName, ...] = ("podman", "docker")
QUERY_TIMEOUT_S = 60.0
FIRST_START_TIMEOUT_S = 600.0  # podman without root may copy the image for the user
PULL_TIMEOUT_S = 4 * 3600.0  # tens of GB over a slow line
_LOOPBACK = re.compile(r"(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?")


@dataclass(frozen=True, kw_only=True)
class ContainerEngine:
    """A program that builds container images, and the arguments that it takes."""

    name: EngineName
    program: Path

    def build(
        self,
        *,
        context: Path,
        dockerfile: Path,
        reference: str,
        arguments: Mapping[str, str],
        secrets: Mapping[str, Path],
        timestamp_s: int,
    ) -> list[str]:
        """Give the command that builds an image; its output is the engine's talk."""
        options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        options += [f"--secret=id={name},src={path}" for name, path in secrets.items()]
        options += [f"--file={dockerfile}", f"--tag={reference}"]
        if self.name == "docker":
            fixed = ["--progress=plain", f"--build-arg=SOURCE_DATE_EPOCH={timestamp_s}"]
        else:
            fixed = ["--format=oci", f"--timestamp={timestamp_s}"]
        return [str(self.program), "build", *fixed, *options, str(context)]

    def has(self, reference: str) -> bool:
        """Tell whether the image is on this machine."""
        what = ["--type", "image"] if self.name == "buildah" else []
        verb = ["inspect"] if self.name == "buildah" else ["image", "inspect"]
        return self._ask([*verb, *what, reference]).returncode == 0

    def require_running(self) -> None:
        """Raise EnvironmentFailure where the daemon does not answer; only docker needs one."""
        if self.name != "docker":
            return
        answer = self._ask(["version", "--format", "{{.Server.Version}}"])
        if answer.returncode == 0:
            return
        said = answer.stderr.decode(errors="replace").strip() or "no reason given"
        message = f"docker is on PATH, but its daemon does not answer: {said.splitlines()[-1]}"
        start = "sudo systemctl start docker"
        if "permission denied" in said.lower():
            start = "sudo usermod -aG docker $USER, then log in again"
        hint = f"{start}; or apt-get install podman, which needs no daemon"
        raise EnvironmentFailure(message, hint=hint)

    def references(self) -> list[str]:
        """List the images on this machine by name and tag. Raises EnvironmentFailure."""
        name = ".Name" if self.name == "buildah" else ".Repository"
        answer = self._ask(["images", "--format", f"{{{{{name}}}}}:{{{{.Tag}}}}"])
        if answer.returncode:
            raise self._failure(answer, "cannot list its images")
        return answer.stdout.decode().split()

    def read_file(self, reference: str, path: str, *, limit_bytes: int) -> bytes:
        """Read a file of an image. Raises EnvironmentFailure where it is not to be had."""
        made = self._ask(["from" if self.name == "buildah" else "create", reference])
        if made.returncode:
            raise self._failure(made, f"cannot open {reference}")
        container = made.stdout.decode().split()[-1]
        try:
            if self.name == "buildah":
                answer = self._ask(["run", container, "--", "cat", path])
                content = answer.stdout
            else:
                answer = self._ask(["cp", f"{container}:{path}", "-"])
                content = _only_file(answer.stdout) if answer.returncode == 0 else b""
        finally:
            self._ask(["rm", container])
        if answer.returncode:
            raise self._failure(answer, f"{reference} has no {path}")
        if len(content) > limit_bytes:
            message = f"{path} of {reference} is larger than {limit_bytes} bytes"
            hint = f"build it again, or look at it with {self.name}"
            raise EnvironmentFailure(message, hint=hint)
        return content

    def push(self, reference: str, target: str, digest_file: Path) -> list[list[str]]:
        """Give the commands that send an image; the digest is in the file, or to be asked for."""
        if self.name == "docker":
            return [self._command("tag", reference, target), self._command("push", target)]
        # A registry on this machine (a test's, or a mirror) has no certificate; docker knows so.
        plain = ["--tls-verify=false"] if _LOOPBACK.fullmatch(target.partition("/")[0]) else []
        options = [*plain, f"--digestfile={digest_file}"]
        return [self._command("push", *options, reference, f"docker://{target}")]

    def pushed_digest(self, target: str, digest_file: Path) -> str:
        """Give the digest under which the registry keeps the pushed image."""
        if self.name != "docker":
            return digest_file.read_text(encoding="utf-8").strip()
        asked = ["image", "inspect", "--format", "{{json .RepoDigests}}", target]
        answer = self._ask(asked)
        repository = target.rpartition(":")[0]
        known: list[str] = json.loads(answer.stdout) if answer.returncode == 0 else []
        found = [each.partition("@")[2] for each in known if each.startswith(f"{repository}@")]
        if not found:
            raise self._failure(answer, f"does not know the digest of {target}")
        return found[0]

    def pull(self, reference: str) -> None:
        """Fetch an image. Raises EnvironmentFailure where the registry or the engine refuses."""
        answer = self._ask(["pull", "--quiet", reference], timeout_s=PULL_TIMEOUT_S)
        if answer.returncode:
            name = reference.partition("/")[0] if "." in reference.partition("/")[0] else ""
            hint = (
                f"{self.name} login {name}".rstrip()
                + ", if access was refused; or correct `image:`"
            )
            raise self._failure(answer, f"cannot fetch {reference}", hint=hint)

    def image_id(self, reference: str) -> str | None:
        """Give the id of an image of this machine: it names the content; None without one."""
        answer = self._ask(["image", "inspect", "--format", "{{.Id}}", reference])
        if answer.returncode:
            return None
        found = answer.stdout.decode(errors="replace").strip().removeprefix("sha256:")
        return f"sha256:{found}" if re.fullmatch(r"[0-9a-f]{64}", found) else None

    def try_program(
        self, reference: str, command: Sequence[str], *, options: Sequence[str], needs: str
    ) -> None:
        """Run a command in a container of an image. Raises EnvironmentFailure where it fails."""
        fixed = ["--rm", "--pull=never", "--network=none", f"--entrypoint={command[0]}"]
        words = ["run", *fixed, *options, reference, *command[1:]]
        answer = self._ask(words, timeout_s=FIRST_START_TIMEOUT_S)
        if answer.returncode:
            tried = " ".join([self.name, "run", "--rm", "-it", *options, reference])
            hint = f"ranks need {needs}; try: {tried}"
            raise self._failure(answer, f"cannot run ranks in {reference}", hint=hint)

    def _command(self, *arguments: str) -> list[str]:
        return [str(self.program), *arguments]

    def _ask(
        self, arguments: Sequence[str], *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> subprocess.CompletedProcess[bytes]:
        command = self._command(*arguments)
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            message = f"{self.name} does not answer: {error}"
            raise EnvironmentFailure(message, hint=f"try: {' '.join(command)}") from error

    def _failure(
        self, answer: subprocess.CompletedProcess[bytes], what: str, *, hint: str | None = None
    ) -> EnvironmentFailure:
        lines = answer.stderr.decode(errors="replace").strip().splitlines()
        message = f"{self.name} {what}" + (f": {lines[-1]}" if lines else "")
        return EnvironmentFailure(message, hint=hint or f"try: {self.program} images")


def running_engine() -> ContainerEngine:
    """Find the engine that builds and pushes; raises EnvironmentFailure where none can."""
    engine = find_engine()
    engine.require_running()
    return engine


def find_engine(
    names: Sequence[EngineName] = ENGINES,
    *,
    purpose: str = "for containers",
    hint: str = "apt-get install buildah; to run jobs on this machine: launch image install NAME",
) -> ContainerEngine:
    """Find the first engine that is on PATH. Raises EnvironmentFailure where none is."""
    for name in names:
        program = shutil.which(name)
        if program:
            return ContainerEngine(name=name, program=Path(program))
    told = ", ".join(names)
    message = f"none of {told} is on PATH, and one is needed {purpose}"
    raise EnvironmentFailure(message, hint=hint)


def find_runner() -> ContainerEngine:
    """Find the engine that runs containers. Raises EnvironmentFailure where there is none."""
    hint = "apt-get install podman; or use a folder of images/: launch image ls"
    return find_engine(RUNNERS, purpose="to run a registry's image on this machine", hint=hint)


def _only_file(archive: bytes) -> bytes:
    import io
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        member = next(each for each in opened if each.isfile())
        file = opened.extractfile(member)
        assert file is not None, "a regular file opens"
        return file.read()
