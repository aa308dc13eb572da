"""Starts a policy pack's own analyzer server and speaks its gRPC, as the engine does."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import grpc
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime import proto  # the protocol that this module speaks
from pulumi.runtime.proto import analyzer_pb2_grpc

from jobs.contracts.errors import EnvironmentFailure

# `pulumi.policy` wants the engine's address, and calls it only to log that a pack broke.
NO_ENGINE = "127.0.0.1:1"
START_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 120.0
# As the engine allows: a stack's resources come in one message.
MAX_MESSAGE_BYTES = 400 * 1024 * 1024
STACK_TYPE = "pulumi:pulumi:Stack"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A rule as the pack describes it."""

    name: str
    description: str
    is_mandatory: bool


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """A violation of a rule by a resource; `urn` is '' for the stack."""

    policy: str
    urn: str
    message: str
    is_mandatory: bool


class Analyzer:
    """A running pack, made by `start_analyzer`."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub: Any = analyzer_pb2_grpc.AnalyzerStub(channel)

    def configure(self, *, project: str, stack: str) -> None:
        request = proto.AnalyzerStackConfigureRequest(project=project, stack=stack, dry_run=True)
        self._stub.ConfigureStack(request, timeout=CALL_TIMEOUT_S)

    def policies(self) -> list[Policy]:
        info = self._stub.GetAnalyzerInfo(empty_pb2.Empty(), timeout=CALL_TIMEOUT_S)
        return [
            Policy(
                name=each.name,
                description=each.description,
                is_mandatory=each.enforcementLevel == proto.MANDATORY,
            )
            for each in info.policies
        ]

    def analyze(self, resource: Mapping[str, Any]) -> list[Diagnostic]:
        """Judge one resource as a preview has it, by its inputs."""
        message = proto.AnalyzeRequest(
            type=resource["type"],
            urn=resource["urn"],
            name=_name(resource),
            properties=_struct(resource.get("inputs")),
            options=_options(resource),
        )
        return _diagnostics(self._stub.Analyze(message, timeout=CALL_TIMEOUT_S), resource["urn"])

    def analyze_stack(self, resources: Sequence[Mapping[str, Any]]) -> list[Diagnostic]:
        """Judge all of them together, by their outputs."""
        message = proto.AnalyzeStackRequest(resources=[_stack_resource(each) for each in resources])
        return _diagnostics(self._stub.AnalyzeStack(message, timeout=CALL_TIMEOUT_S), "")


@contextmanager
def start_analyzer(pack: Path, *, project: str, stack: str) -> Generator[Analyzer]:
    """Run the pack in a folder for one stack; it ends with the context.

    Raises EnvironmentFailure, with what the pack said, when it does not come up.
    """
    command = [sys.executable, "-u", "-m", "pulumi.policy", NO_ENGINE, str(pack)]
    env = {
        **os.environ,
        "PULUMI_PROJECT": project,
        "PULUMI_STACK": stack,
        "PULUMI_DRY_RUN": "true",
        "PULUMI_CONFIG": json.dumps({}),
    }
    server = subprocess.Popen(
        command, cwd=pack, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        port = _read_port(server, pack)
        limits = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=limits) as channel:
            analyzer = Analyzer(channel)
            analyzer.configure(project=project, stack=stack)
            yield analyzer
    except grpc.RpcError as error:
        message = f"the policy pack in {pack} broke: {_detail(error)}"
        raise EnvironmentFailure(message, hint="mend the rule that it names") from error
    finally:
        server.kill()
        server.communicate()


def _read_port(server: subprocess.Popen[bytes], pack: Path) -> int:
    """Read the port from the server's first line, as the engine does."""
    out = server.stdout
    assert out is not None
    deadline = time.monotonic() + START_TIMEOUT_S
    line = b""
    while not line.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        ready = select.select([out], [], [], max(left_s, 0))[0]
        more = os.read(out.fileno(), 100) if ready else b""
        if not more:
            break
        line += more
    text = line.decode(errors="replace").strip()
    if text.isdecimal():
        return int(text)
    server.kill()
    said = _tail(server.stderr)
    message = f"the policy pack in {pack} did not start" + (f":\n{said}" if said else "")
    raise EnvironmentFailure(message, hint=f"python -m pulumi.policy {NO_ENGINE} {pack}")


def _tail(stream: IO[bytes] | None) -> str:
    text = stream.read().decode(errors="replace") if stream else ""
    return "\n".join(text.strip().splitlines()[-8:])


def _detail(error: grpc.RpcError) -> str:
    # A failed call is an RpcError and a Call, which has the details.
    return error.details() or "" if isinstance(error, grpc.Call) else str(error)


def _stack_resource(resource: Mapping[str, Any]) -> proto.AnalyzerResource:
    made_from = cast("Mapping[str, list[str]]", resource.get("propertyDependencies") or {})
    return proto.AnalyzerResource(
        type=resource["type"],
        urn=resource["urn"],
        name=_name(resource),
        properties=_struct(resource.get("outputs")),
        options=_options(resource),
        parent=resource.get("parent", ""),
        dependencies=resource.get("dependencies") or [],
        propertyDependencies={
            key: proto.AnalyzerPropertyDependencies(urns=urns)
            for key, urns in made_from.items()
            if urns
        },
    )


def _options(resource: Mapping[str, Any]) -> proto.AnalyzerResourceOptions:
    return proto.AnalyzerResourceOptions(
        protect=bool(resource.get("protect")),
        ignoreChanges=resource.get("ignoreChanges") or [],
        parent=resource.get("parent", ""),
    )


def _name(resource: Mapping[str, Any]) -> str:
    return resource["urn"].rpartition("::")[2]


def _struct(properties: Mapping[str, Any] | None) -> struct_pb2.Struct:
    # `__defaults` and their like are the engine's own, which no analyzer sees.
    shown = {k: v for k, v in (properties or {}).items() if not k.startswith("__")}
    return json_format.ParseDict(shown, struct_pb2.Struct())


def _diagnostics(response: Any, urn: str) -> list[Diagnostic]:
    return [
        Diagnostic(
            policy=each.policyName,
            urn=each.urn or urn,
            message=each.message,
            is_mandatory=each.enforcementLevel == proto.MANDATORY,
        )
        for each in response.diagnostics
    ]
