"""A stand-in for Azure Machine Learning, on loopback: `with FakeAzure(folder) as azure: ...`.

A program that runs with `azure.environ` reaches Azure's real names through a proxy that ends TLS:
management.azure.com, REGION.api.azureml.ms, ACCOUNT.blob.core.windows.net, NAME.vault.azure.net,
login.microsoftonline.com, prices.azure.com; every other name is refused. It is let in as a service
principal (EnvironmentCredential). `azure.environment()` is the stack output for it.

Real are
- the storage: Azurite, with TLS, keys, SAS, bearer tokens, leases, ETags;
- the jobs: their command runs, in a copy of the uploaded code for each node, as so many processes
  as the distribution says, under Open MPI's `mpirun` for Mpi, with the variables that Azure ML sets.
  Inputs come from Azurite; logs go there while they are written (append blobs), as do ./outputs,
  ./logs and mounted outputs. Cancelling is SIGTERM, then SIGKILL;
- the judgement of requests: by the REST models that azure-ai-ml bundles (judge.py), never by our
  code. A property that they do not have, or lack, is answered with 400.

Fake are
- Azure's answers: they are what azure-ai-ml 1.35.2 and azureml-core 1.61 accept (both are driven
  against it in tests/integration/azureml), with the texts of errors as users have quoted them;
- nodes: folders and process groups of this machine, all at 127.0.0.1. A mount is a folder that all
  jobs share and that is copied to Azurite a moment later, so it renames atomically where blobfuse
  does not. A cluster counts its nodes; starting one takes no time;
- images: a part of the image's name picks a local interpreter (`runtimes`), first on PATH. Nothing
  is pulled or built;
- Entra ID: tokens are unsigned; who asks matters to the vault only, roles do not;
- MLflow: MLFLOW_TRACKING_URI is set as on Azure, and nobody answers there. Jobs get no run token,
  so a trainer that tracks its figures says so and goes on;
- quotas are told, and kept by nobody: script "quota" to be short of one.

What goes wrong is scripted: `azure.script(throttled(path="*/jobs/*"))`, `azure.script(JobTrouble(
what="preempted", when="step 200"))`, `azure.tokens.expire()`, `azure.delete_workspace()`; see
troubles.py. How Azure may differ for good is switched on by name: `azure.deviations.add(
Deviation.PRIVATE_HOST_ONLY)`; see tests/fakes/deviations.py. A defect of the stand-in itself is
raised when the context ends.

Who answers: tokens.py (login, node identity), arm.py, computes.py, jobs.py and subscription.py
(Resource Manager),
history.py (run history), snapshots.py (what azureml-core asks), vault.py, prices.py; proxy.py and
fake.py bring requests to them. runner.py takes a job through its states and tells its end
(words.py), nodes.py runs it, specs.py says which processes that makes, shipping.py brings what they
write to Azurite (blobs.py).
"""

from __future__ import annotations

from tests.fakes.azureml.fake import FakeAzure
from tests.fakes.azureml.messages import Request
from tests.fakes.azureml.records import Job, Place
from tests.fakes.azureml.troubles import (
    JobTrouble,
    RequestTrouble,
    broken,
    conflict,
    firewall,
    forbidden,
    lost_reply,
    lost_request,
    throttled,
    wrong_tenant,
)
from tests.fakes.deviations import Deviation

__all__ = [
    "Deviation",
    "FakeAzure",
    "Job",
    "JobTrouble",
    "Place",
    "Request",
    "RequestTrouble",
    "broken",
    "conflict",
    "firewall",
    "forbidden",
    "lost_reply",
    "lost_request",
    "throttled",
    "wrong_tenant",
]
