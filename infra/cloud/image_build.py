"""Chooses the cluster on which Azure ML builds a stack's images (pure).

The registry's own builder cannot read a store that is closed to all but some networks. Then Azure ML builds
on a compute of the workspace without GPUs, whose identity pushes the image:
https://learn.microsoft.com/azure/machine-learning/how-to-configure-private-link
https://learn.microsoft.com/azure/machine-learning/how-to-managed-network#configure-image-builds
"""

from __future__ import annotations

from infra.cloud.context import Context


def build_cluster(context: Context) -> str | None:
    """Name the cluster that builds images: the first without GPUs of a public dev stack.

    None for stacks that take pushed images only: nodes of a private network reach no base image.
    """
    if context.settings.stage != "dev" or context.is_private:
        return None
    clusters = context.settings.clusters.items()
    return next((key for key, each in clusters if not each.hardware.gpus), None)
