"""Composes the local stack: the store, the workspace, the clusters."""

from __future__ import annotations

import pulumi

from infra.local.azurite import DATA_CONTAINER, RUNS_CONTAINER, Azurite, AzuriteArgs
from infra.local.cluster import LocalCluster, LocalClusterArgs
from infra.local.machine import inspect_machine
from infra.local.settings import LocalSettings
from infra.local.workspace import LocalWorkspace, LocalWorkspaceArgs


class LocalPlatform(pulumi.ComponentResource):
    """The resources that `launch` needs on one machine."""

    def __init__(
        self, name: str, settings: LocalSettings, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:local:Platform", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        machine = inspect_machine()
        self.settings = settings
        self.data_container, self.runs_container = DATA_CONTAINER, RUNS_CONTAINER
        self.workspace = LocalWorkspace(
            f"{name}-workspace", LocalWorkspaceArgs(folder=settings.workspace.folder), child
        )
        self.clusters = {
            cluster: LocalCluster(
                cluster,
                LocalClusterArgs(
                    num_nodes=args.nodes,
                    processes_per_node=args.processes_per_node,
                    node=machine.share(args.nodes),
                ),
                child,
            )
            for cluster, args in settings.clusters.items()
        }
        self.storage = Azurite(
            f"{name}-storage",
            AzuriteArgs(
                folder=settings.storage.folder,
                port=settings.storage.port,
                workspace=settings.workspace.folder,
                node=settings.tools.node,
                azurite=settings.tools.azurite,
            ),
            pulumi.ResourceOptions(
                parent=self,
                # Only for the order: what is named here is deleted after the store, so that a
                # `destroy` that the store refuses leaves all of it. `depends_on` looks through
                # a component at its children, and these have none.
                replace_with=[self.workspace, *self.clusters.values()],
            ),
        )
        self.register_outputs({})
