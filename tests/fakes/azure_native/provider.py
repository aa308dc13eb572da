"""Speaks the provider's side of Pulumi's protocol, with the behaviour of azure-native 3.x.

Followed: provider/pkg/provider/provider.go of pulumi/pulumi-azure-native. What is not in the inputs
is unknown at preview; a resource that is there is not created; a replacement deletes first; a
refresh moves those inputs whose outputs moved.
"""

# ruff: noqa: N802  (the protocol names the methods)

from __future__ import annotations

import copy
import os
import signal
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty

from tests.fakes import azure_native
from tests.fakes.azure_native import differences, judge
from tests.fakes.azure_native.errors import Cancelled, Failed, Refused
from tests.fakes.azure_native.kinds import KINDS, Kind, fill_path, read_path
from tests.fakes.azure_native.service import Service, make_outputs
from tests.fakes.azure_native.store import Record, Store
from tests.fakes.azure_native.tables import FOUND
from tests.fakes.azure_native.wire import UNKNOWN, pack, unpack


def import_stubs() -> tuple[Any, Any, Any]:
    """Pulumi's generated messages, without the SDK around them (0.2 s less at each start)."""
    import importlib.util

    spec = importlib.util.find_spec("pulumi")
    assert spec is not None, "this Python has no pulumi"
    (folder,) = spec.submodule_search_locations or []
    for name, part in (("pulumi", ""), ("pulumi.runtime", "runtime")):
        bare = types.ModuleType(name)
        bare.__path__ = [str(Path(folder) / part)]
        sys.modules.setdefault(name, bare)
    from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

    return plugin_pb2, provider_pb2, provider_pb2_grpc


plugin_pb2, pb, pb_grpc = import_stubs()

DIFF_KINDS = {
    "add": pb.PropertyDiff.ADD,
    "delete": pb.PropertyDiff.DELETE,
    "update": pb.PropertyDiff.UPDATE,
}
VERSION = "3.29.0"


class Provider(pb_grpc.ResourceProviderServicer):
    """One provider process."""

    def __init__(self, folder: Path) -> None:
        self._store = Store(folder)
        self._service = Service(self._store)
        self._judging = os.environ.get(FOUND) != ""

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=VERSION)

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return pb.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        return pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:
        return pb.ConfigureResponse(supportsPreview=True, supports_autonaming_configuration=True)

    def Cancel(self, request: Any, context: Any) -> Any:
        self._service.stopping.set()
        return Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        self._note("invoke", request.tok)
        if request.tok != "azure-native:authorization:getClientConfig":
            context.abort(grpc.StatusCode.UNKNOWN, f"Invoke type {request.tok} not found")
        answer = {
            "clientId": azure_native.CLIENT_ID,
            "objectId": azure_native.OBJECT_ID,
            "subscriptionId": azure_native.SUBSCRIPTION_ID,
            "tenantId": azure_native.TENANT_ID,
        }
        return pb.InvokeResponse(**{"return": pack(answer)})

    def Check(self, request: Any, context: Any) -> Any:
        kind = find_kind(request.urn)
        inputs = unpack(request.news)
        inputs.setdefault("azureApiVersion", kind.api_version)
        reasons = [
            f"missing required property '{name}'" for name in kind.parameters if name not in inputs
        ] or self._judge(kind, inputs)
        self._note("check", request.urn, error="; ".join(reasons) or None)
        failures = [pb.CheckFailure(reason=reason) for reason in reasons]
        return pb.CheckResponse(inputs=pack(inputs), failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:
        kind = find_kind(request.urn)
        news, seen = unpack(request.news), unpack(request.olds)
        changes = differences.find_changes(unpack(request.old_inputs), news)
        replacing = differences.find_replacing(changes, kind.replacing, news, seen)
        detailed = {
            # Each kind's own replacing variant follows it: ADD, ADD_REPLACE, DELETE ...
            path: pb.PropertyDiff(kind=DIFF_KINDS[change] + (path in replacing), inputDiff=True)
            for path, change in changes.items()
        }
        some = pb.DiffResponse.DIFF_SOME if changes else pb.DiffResponse.DIFF_NONE
        return pb.DiffResponse(
            changes=some,
            replaces=replacing,
            deleteBeforeReplace=bool(replacing),
            diffs=sorted({path.partition(".")[0].partition("[")[0] for path in changes}),
            detailedDiff=detailed,
            hasDetailedDiff=True,
        )

    def Create(self, request: Any, context: Any) -> Any:
        kind = find_kind(request.urn)
        inputs = unpack(request.properties)
        if request.preview:
            return pb.CreateResponse(properties=pack(preview_outputs(kind, inputs, {})))
        resource_id = fill_path(kind, inputs, azure_native.SUBSCRIPTION_ID)
        outputs = self._write(self._service.create, kind, resource_id, inputs, context)
        return pb.CreateResponse(id=resource_id, properties=pack(outputs))

    def Update(self, request: Any, context: Any) -> Any:
        kind = find_kind(request.urn)
        inputs = unpack(request.news)
        if request.preview:
            outputs = preview_outputs(kind, inputs, unpack(request.olds))
            return pb.UpdateResponse(properties=pack(outputs))
        outputs = self._write(self._service.update, kind, request.id, inputs, context)
        return pb.UpdateResponse(properties=pack(outputs))

    def Read(self, request: Any, context: Any) -> Any:
        kind = find_kind(request.urn)
        try:
            outputs = self._service.read(kind, request.id)
        except Refused as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        self._note("read", request.urn, error=None if outputs else "NotFound")
        if outputs is None:
            return pb.ReadResponse()
        seen = readable_inputs(kind, outputs)
        if request.HasField("inputs") and request.inputs.fields:
            before = readable_inputs(kind, unpack(request.properties))
            inputs = differences.follow(unpack(request.inputs), before, seen)
        else:
            inputs = {**read_path(kind, request.id), **seen}
        return pb.ReadResponse(id=request.id, properties=pack(outputs), inputs=pack(inputs))

    def Delete(self, request: Any, context: Any) -> Any:
        kind = find_kind(request.urn)
        try:
            self._service.delete(kind, request.id)
        except (Refused, Cancelled) as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error) or "context canceled")
        return Empty()

    def _write(
        self, write: Any, kind: Kind, resource_id: str, inputs: Record, context: Any
    ) -> Record:
        """Create or update; what was accepted and failed is told with what is there."""
        reasons = self._judge(kind, inputs)
        if reasons:
            self._note("judge", resource_id, error="; ".join(reasons))
            context.abort(grpc.StatusCode.UNKNOWN, f'Code="BadRequest" Message="{reasons}"')
        try:
            return write(kind, resource_id, inputs)
        except Failed as error:
            outputs = self._service.read(kind, resource_id) or {}
            abort_partial(context, str(error), resource_id, outputs, inputs)
        except Cancelled:
            outputs = self._service.read(kind, resource_id)
            if outputs is None:
                context.abort(grpc.StatusCode.CANCELLED, "context canceled")
            abort_partial(context, "context canceled", resource_id, outputs, inputs)
        except Exception as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise
        raise AssertionError

    def _judge(self, kind: Kind, inputs: Record) -> list[str]:
        return judge.judge(kind.token, inputs) if self._judging else []

    def _note(self, operation: str, urn: str, *, error: str | None = None) -> None:
        self._store.note({"operation": operation, "urn": urn, "error": error})


def find_kind(urn: str) -> Kind:
    token = urn.split("::")[2].rpartition("$")[2]
    if token not in KINDS:
        message = f"the stand-in knows no {token}: a row of tests/fakes/azure_native/kinds.py"
        raise NotImplementedError(message)
    return KINDS[token]


def preview_outputs(kind: Kind, inputs: Record, old: Record) -> Record:
    """Known inputs stay known; what only the service knows does not, but a name and a place."""
    outputs = make_outputs(kind, "/unknown", inputs)
    for place in kind.told:
        *parents, last = place.split(".")
        inner = outputs
        for parent in parents:
            inner = inner[parent]
        inner[last] = UNKNOWN
    kept = {key: old[key] for key in ("name", "location") if key in old}
    return outputs | kept


def readable_inputs(kind: Kind, outputs: Record) -> Record:
    """Outputs without what is only ever read."""
    seen = copy.deepcopy(outputs)
    for place in kind.told - set(kind.parameters):
        _drop(seen, place.split("."))
    ids = seen.get("identity", {}).get("userAssignedIdentities")
    if ids is not None:
        seen["identity"]["userAssignedIdentities"] = sorted(ids)
    return seen


def _drop(values: Record, path: list[str]) -> None:
    """Take a value out, and what is empty without it."""
    first, *rest = path
    if rest and first in values:
        _drop(values[first], rest)
    if not rest or values.get(first) == {}:
        values.pop(first, None)


def abort_partial(
    context: Any, reason: str, resource_id: str, outputs: Record, inputs: Record
) -> None:
    """Fail with a resource that exists: google.rpc.Status with Pulumi's ErrorResourceInitFailed."""
    detail = AnyMessage()
    detail.Pack(
        pb.ErrorResourceInitFailed(
            id=resource_id, properties=pack(outputs), reasons=[reason], inputs=pack(inputs)
        )
    )
    text, packed = reason.encode(), detail.SerializeToString()
    code = grpc.StatusCode.UNKNOWN
    status = b"".join(
        [
            bytes([0x08, code.value[0]]),
            b"\x12" + varint(len(text)) + text,
            b"\x1a" + varint(len(packed)) + packed,
        ]
    )
    context.set_trailing_metadata((("grpc-status-details-bin", status),))
    context.abort(code, reason)


def varint(number: int) -> bytes:
    """A protobuf length."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def end_with_engine(parent: int) -> None:
    """Stop when the engine is gone, killed or not: nobody else would."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)


def main() -> None:
    """Serve on a free port, told on stdout, until the engine is gone."""
    parent = os.getppid()
    # How the engine ends a provider: at once, like a compiled one; nothing is under way then.
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    folder = Path(os.environ[azure_native.FOLDER])
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(max_workers=64), options=options)
    pb_grpc.add_ResourceProviderServicer_to_server(Provider(folder), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    threading.Thread(target=end_with_engine, args=(parent,), daemon=True).start()
    print(port, flush=True)
    server.wait_for_termination()
