"""Declares a cluster of the local stack: shares of this machine that count as nodes."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from infra.local.machine import Machine
from infra.naming import physical_name

SIZE = "local"


@dataclass(frozen=True, kw_only=True)
class LocalClusterArgs:
    """Number of nodes, a node's default number of ranks, and a node's share of the machine."""

    num_nodes: int
    processes_per_node: int
    node: Machine


class LocalCluster(pulumi.ComponentResource):
    """Names the shares. Makes nothing: supervisors claim nodes in the workspace's folder."""

    def __init__(
        self, name: str, args: LocalClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:local:Cluster", name, None, opts)
        self.name = name
        self.args = args
        self.size = SIZE
        # Runs claim whole nodes, so their number may change under them; what a node is may not.
        self.compute = physical_name(
            name, {"size": SIZE, "processes_per_node": args.processes_per_node}
        )
        self.register_outputs({"compute": self.compute, "nodes": args.num_nodes})
