"""Remove the runs of the first API: as those of azureml, but the studio goes on showing them."""

from __future__ import annotations

from jobs.engines.azure_ml.removal import CloudRemoval
from jobs.host import console


class V1Removal(CloudRemoval):
    """Removal of the runs that this machine started through azureml-core."""

    def hide_jobs(self, run: str) -> None:
        """Hide nothing: azureml-core archives no run, and our list is of this machine's folders."""
        console.warn(f"the studio goes on listing {run}: azureml-core cannot archive it")
