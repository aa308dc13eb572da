"""What a failure of Pulumi means, and what to type next (pure)."""

from __future__ import annotations

import re

from jobs.contracts.errors import EnvironmentFailure

_NO_LOGIN = re.compile(r"PULUMI_ACCESS_TOKEN must be set|not (yet )?logged in|invalid access token")
_NO_AZURE = re.compile(r"DefaultAzureCredential|AADSTS\d+|[Pp]lease run 'az login'")
# The state is a service's, or where PULUMI_BACKEND_URL says; docs/azure-state.md makes one.
_LOGIN_HINT = "pulumi login, or export PULUMI_BACKEND_URL=... where the state is in a bucket"


def last_words(output: bytes) -> str:
    """Pulumi's own error, else its last line; what follows an error are its details."""
    lines = output.decode(errors="replace").strip().splitlines()
    told = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "")
    return told.removeprefix("error: ").strip() or "it said nothing"


def pulumi_failed(said: str, *, command: str, message: str = "") -> EnvironmentFailure:
    """The error for a command that failed, by what it `said`; `message` where that is told better."""
    if _NO_LOGIN.search(said):
        message = f"`{command}` failed: Pulumi is not logged in"
        return EnvironmentFailure(message, hint=_LOGIN_HINT)
    message = message or f"`{command}` failed: {said}"
    if _NO_AZURE.search(said):
        return EnvironmentFailure(message, hint="az login, then the same again")
    return EnvironmentFailure(message, hint=f"`{command}` in the project's folder says all of it")
