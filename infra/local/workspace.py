"""Declares the local stack's workspace: a folder that `launch` keeps its runs in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pulumi


@dataclass(frozen=True, kw_only=True)
class LocalWorkspaceArgs:
    """`folder` is absolute; `launch` makes it, and what is in it, when the first run needs it."""

    folder: Path


class LocalWorkspace(pulumi.ComponentResource):
    """Names the folder. Makes nothing: the folder and the runs in it outlive the stack."""

    def __init__(
        self, name: str, args: LocalWorkspaceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:local:Workspace", name, None, opts)
        self.name = name
        self.endpoint = args.folder.as_uri()
        self.register_outputs({"endpoint": self.endpoint})
