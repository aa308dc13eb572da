"""A stand-in for the provider `azure-native` and for the Azure behind it.

`install(folder, python=...)` writes an executable `pulumi-resource-azure-native`; a test puts
`folder` on PATH and names a second folder in TRAINYARD_FAKE_AZURE, which is then the subscription
(ids below). The real engine and the real SDK do the rest. In the subscription's folder lie:

resources.json   {"resources": {ID IN LOWER CASE: {id, token, inputs, outputs, created}},
                 "deleted": soft-deleted vaults and workspaces, "sizes": see below,
                 "identities": how often each was made}
                 A test may edit it between runs: that is drift, and how a resource that no stack
                 knows gets in. `outputs` is what a refresh reads.
calls.jsonl      one line a request when it is answered: operation, urn or id, token, attempt, error;
                 and one with `hangs` when it begins to hang.
troubles.json    what goes wrong, all of it optional:
    {"latency_s": 0.2,         every create, update and delete takes so long; its effect is in the
                               middle, so that a kill finds things made that no record has
     "replication_s": 5,       a new identity is no principal before so long (eventual consistency)
     "taken_names": ["x"],     global names that someone else has
     "failures": [{
        "operation": "create",   or update, delete, read
        "type": "*:Compute",     glob over the token `azure-native:machinelearningservices:Compute`
        "name": "gpu-*",         glob over the physical name, the id's last part
        "times": 2,              default 1; null for always. Used up, it is taken out of the file
        "how": "refuse",         or "fail" (accepted, then failed: the resource stays, Failed),
                                 "hang" (nothing made, no answer), "hang-after" (made, no answer)
        "status": 409, "code": "QuotaExceeded", "message": "...",
        "retry_after_s": 0.1}]}  of statuses that the real provider retries (408 429 500 502-504)
`QUOTA`, `THROTTLED`, `HANG` ... are ready-made failures: `QUOTA | {"name": "gpu-*"}`.

What it refuses and why is in service.py and refusals.py; what a change means in differences.py and
kinds.py; whether a request is well-formed is judged by Microsoft's own models (judge.py). An
AmlCompute of a name that existed keeps its first size, silently, as Azure does
(Azure/azure-rest-api-specs issue 18889): `sizes` remembers.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

SUBSCRIPTION_ID = "5b1c7d1e-0000-4000-8000-00000000a2ee"
TENANT_ID = "7e4a11d0-0000-4000-8000-00000000a2ee"
CLIENT_ID = "c11e4700-0000-4000-8000-00000000a2ee"
OBJECT_ID = "0b1ec700-0000-4000-8000-00000000a2ee"

FOLDER = "TRAINYARD_FAKE_AZURE"
PROGRAM = "pulumi-resource-azure-native"
ROOT = Path(__file__).parents[3]

COMPUTE = {"operation": "create", "type": "*:machinelearningservices:Compute"}
QUOTA: dict[str, Any] = COMPUTE | {
    "status": 400,
    "code": "ClusterCoreQuotaReached",
    "message": "Operation results in exceeding quota limits of Core. Maximum allowed: 0.",
}
THROTTLED: dict[str, Any] = {
    "operation": "create",
    "status": 429,
    "code": "TooManyRequests",
    "message": "The request is being throttled.",
    "retry_after_s": 0.05,
}
HANG: dict[str, Any] = {"operation": "create", "how": "hang"}
HANG_AFTER: dict[str, Any] = {"operation": "create", "how": "hang-after"}
FAILS_LATER: dict[str, Any] = {
    "operation": "create",
    "how": "fail",
    "status": 500,
    "code": "InternalServerError",
    "message": "An internal error occurred.",
}


def install(folder: Path, python: str, *, judging: bool = True) -> None:
    """Write the provider's executable, run by `python`, which must have grpc and pulumi.

    Not judging, it needs nothing but that Python. Raises EnvironmentFailure where Microsoft's
    models have to be installed and cannot be.
    """
    from tests.fakes.azure_native.tables import FOUND, find_tables

    tables = find_tables() if judging else ""
    folder.mkdir(parents=True, exist_ok=True)
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.fakes.azure_native.provider import main\n"
        "main()\n"
    )
    program = folder / PROGRAM
    program.write_text(
        f"#!/bin/sh\nexport {FOUND}={shlex.quote(str(tables))}\n"
        f'exec {shlex.quote(python)} -c {shlex.quote(code)} "$@"\n'
    )
    program.chmod(0o755)
