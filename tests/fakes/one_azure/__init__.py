"""One subscription for both stand-ins: what `pulumi up` makes is what `launch` finds.

`tests/fakes/azure_native` keeps resources as files, `tests/fakes/azureml` runs jobs on them. Here
the clusters of the second are those of the first, and a change by `launch` is one that a refresh of
Pulumi sees. `az` is a program of a few commands over the same files.
"""

from __future__ import annotations

from tests.fakes.one_azure.subscription import OneAzure

__all__ = ["OneAzure"]
