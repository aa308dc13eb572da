"""Declares the local stack's blob store: an Azurite process as a dynamic Pulumi resource.

The one dynamic provider. Pulumi pickles it by reference and runs it in a process of its own,
so what it does lives in functions that need no Pulumi.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

from infra.local import azurite_server
from infra.local.azurite_server import Server
from infra.local.running import find_running
from infra.local.storage_folder import AzuriteError

ACCOUNT = "trainyard"
DATA_CONTAINER = "data"
RUNS_CONTAINER = "runs"
DECLARED = ("account", "folder", "port", "workspace", "containers", "node", "azurite")
# A new folder is a new store; everything else is the same store, restarted.
REPLACING = ("folder",)

Props = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class AzuriteArgs:
    """Folder and port of the store; `workspace` is the folder whose runs would use it."""

    folder: Path
    port: int
    workspace: Path
    node: str
    azurite: str


class AzuriteProvider(dynamic.ResourceProvider):
    """Starts, restarts, finds and ends the process; its data is never deleted."""

    # Nothing in it is secret; encrypted it would change at every `up`.
    serialize_as_secret_always = False

    def check(self, _olds: Props, news: Props) -> dynamic.CheckResult:
        """Refuse what cannot work before anything is changed."""
        failures: list[dynamic.CheckFailure] = []
        if not Path(news["folder"]).is_absolute():
            failures.append(dynamic.CheckFailure("folder", "is not absolute"))
        # Only a move is checked here: a replacement is checked without its olds, while our own
        # server still holds the port. A new store's port is checked when it starts.
        if _olds and _olds.get("port") != news["port"]:
            try:
                azurite_server.check_port(int(news["port"]))
            except AzuriteError as error:
                failures.append(dynamic.CheckFailure("port", str(error)))
        return dynamic.CheckResult(news, failures)

    def diff(self, _id: str, _olds: Props, _news: Props) -> dynamic.DiffResult:
        """Compare what was declared, nothing else."""
        changed = [name for name in DECLARED if _olds.get(name) != _news.get(name)]
        return dynamic.DiffResult(
            changes=bool(changed),
            replaces=[name for name in REPLACING if name in changed],
            stables=[],
            # The old one holds the port that the new one wants.
            delete_before_replace=True,
        )

    def create(self, props: Props) -> dynamic.CreateResult:
        """Start the server, or take over one that an interrupted `up` has started already."""
        with _shown_without_traceback():
            azurite_server.start(Path(props["folder"]), _wanted(props))
            return dynamic.CreateResult(props["folder"], _declared(props))

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        """Look for the process: gone when it does not answer; its real settings when it does."""
        folder = Path(props["folder"])
        server = azurite_server.read_server(folder)
        if server is None or not server.is_running:
            return dynamic.ReadResult("", {})
        missing = azurite_server.find_missing_containers(folder, server)
        if missing is None:
            return dynamic.ReadResult("", {})
        found = _declared(props) | {
            "account": server.account,
            "port": server.port,
            "node": server.node,
            "azurite": server.azurite,
            "containers": [name for name in server.containers if name not in missing],
        }
        return dynamic.ReadResult(id_, found, dict(found))

    def update(self, _id: str, _olds: Props, _news: Props) -> dynamic.UpdateResult:
        """Restart the server in place, with its data; refused while a run is on."""
        with _shown_without_traceback():
            wanted = _wanted(_news)
            current = azurite_server.read_server(Path(_news["folder"]))
            if current is not None and current.is_running and current.command != wanted:
                _refuse_while_running(_olds, "restart the store")
            azurite_server.start(Path(_news["folder"]), wanted)
            return dynamic.UpdateResult(_declared(_news))

    def delete(self, _id: str, _props: Props) -> None:
        """End the server, keep its data; refused while a run is on. Silent when it is gone."""
        with _shown_without_traceback():
            _refuse_while_running(_props, "end the store")
            azurite_server.stop(Path(_props["folder"]))
            print(f"kept: datasets in {_props['folder']}, runs in {_props['workspace']}")  # noqa: T201


class Azurite(dynamic.Resource, module="local", name="Azurite"):
    """The store as the program sees it; its outputs are what was declared."""

    account: pulumi.Output[str]
    folder: pulumi.Output[str]
    port: pulumi.Output[int]

    def __init__(
        self, name: str, args: AzuriteArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        props: Props = {
            "account": ACCOUNT,
            "folder": str(args.folder),
            "port": args.port,
            "workspace": str(args.workspace),
            "containers": [DATA_CONTAINER, RUNS_CONTAINER],
            "node": args.node,
            "azurite": args.azurite,
        }
        super().__init__(AzuriteProvider(), name, props, opts)
        self.blob_endpoint = pulumi.Output.concat(
            "http://127.0.0.1:", self.port.apply(lambda port: str(int(port))), "/", self.account
        )


def _wanted(props: Mapping[str, Any]) -> Server:
    return Server(
        account=props["account"],
        port=int(props["port"]),
        node=props["node"],
        azurite=props["azurite"],
        containers=tuple(props["containers"]),
    )


def _declared(props: Mapping[str, Any]) -> Props:
    return {name: props[name] for name in DECLARED}


def _refuse_while_running(props: Mapping[str, Any], act: str) -> None:
    if running := find_running(Path(props["workspace"])):
        message = (
            f"will not {act} while a run is on: {', '.join(running)}; "
            f"`launch wait {running[0]}` or `launch cancel {running[0]}` first"
        )
        raise AzuriteError(message)


@contextmanager
def _shown_without_traceback() -> Generator[None]:
    """Leave the frames out of the traceback that Pulumi's provider process prints."""
    try:
        yield
    except AzuriteError:
        sys.tracebacklimit = 0
        raise
