"""Runs Pulumi's command line in a project and explains its failures."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.contracts.errors import EnvironmentFailure, Refused
from jobs.host import trust
from jobs.host.project import require_trusted
from jobs.stacks.backend import read_record

if TYPE_CHECKING:
    import subprocess

ANSWER_TIMEOUT_S = 120
_NO_LOGIN = re.compile(r"PULUMI_ACCESS_TOKEN must be set|not (yet )?logged in|invalid access token")
_NO_AZURE = re.compile(r"DefaultAzureCredential|AADSTS\d+|[Pp]lease run 'az login'")
# The state is a service's, or where PULUMI_BACKEND_URL says; docs/azure-state.md makes one.
_LOGIN_HINT = (
    "uv run pulumi login, or export PULUMI_BACKEND_URL=... where the state is in a bucket "
    "(docs/azure-state.md); to run jobs only: --env FILE, which the stack's owner exports"
)


def run_pulumi(root: Path, arguments: list[str], *, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
    result = start_pulumi(root, arguments, timeout_s=timeout_s)
    if result.returncode != 0:
        said = (result.stdout + result.stderr).decode(errors="replace").strip()
        command = f"pulumi {' '.join(arguments)}"
        message = f"`{command}` failed:\n{said}"
        if "stack is currently locked" in said:
            raise Refused(message, hint="wait for its owner; `pulumi cancel` if the owner is gone")
        raise pulumi_failed(said, command=command, message=message)
    return result.stdout


def start_pulumi(
    root: Path, arguments: list[str], *, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    import subprocess  # an environment from the cache, as for `launch ls`, needs none

    require_trusted(root)
    pulumi = root / ".venv" / "bin" / "pulumi"
    if not pulumi.exists() and root == trust.INSTALLED:
        # Its environment may lie elsewhere; to another project its Pulumi would tell of this one.
        pulumi = Path(sys.executable).with_name("pulumi")
    if not pulumi.exists():
        message = f"{root / '.venv' / 'bin' / 'pulumi'} is missing"
        raise EnvironmentFailure(message, hint="`make setup` installs it")
    try:
        return subprocess.run(
            [pulumi, *arguments, "--non-interactive"],
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"`pulumi {arguments[0]}` did not end within {timeout_s:.0f} s"
        hint = "does the backend answer? see PULUMI_BACKEND_URL; then type the same again"
        raise EnvironmentFailure(message, hint=hint) from error


def export_record(root: Path, stack: str) -> dict[str, Any]:
    """Export the stack: its `deployment` is the record, None before the first `up`."""
    return msgspec.json.decode(run_pulumi(root, ["stack", "export", "-s", stack]))


def recorded(root: Path, stack: str, state: Path | None) -> dict[str, Any]:
    """Read the stack's record from its state file, else from Pulumi."""
    return read_record(state) if state else export_record(root, stack)["deployment"] or {}


def last_words(output: bytes) -> str:
    """Find Pulumi's own error, else its last line; what follows an error are its details."""
    lines = output.decode(errors="replace").strip().splitlines()
    told = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "")
    return told.removeprefix("error: ").strip() or "it printed nothing"


def pulumi_failed(said: str, *, command: str, message: str = "") -> EnvironmentFailure:
    """Build the error for a failed command by what it `said`; `message` replaces the usual text."""
    message = message or f"`{command}` failed: {said}"
    # First: among the logins that it tried, Azure's library also lists others that are not there.
    if _NO_AZURE.search(said):
        return EnvironmentFailure(message, hint="az login, then type the same again")
    if _NO_LOGIN.search(said):
        message = f"`{command}` failed: Pulumi is not logged in"
        return EnvironmentFailure(message, hint=_LOGIN_HINT)
    return EnvironmentFailure(message, hint=f"`{command}` in the project's folder prints all of it")
