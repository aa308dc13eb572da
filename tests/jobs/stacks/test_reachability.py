"""`launch env check` tells services of Azure that answer from those behind a firewall, or gone."""

from __future__ import annotations

import json
from contextlib import ExitStack

import msgspec
import pytest

from jobs.contracts.spec import (
    Cluster,
    Containers,
    Environment,
    KeyVault,
    Registry,
    Storage,
    Workspace,
)
from jobs.stacks.reachability import PartCheck, check_environment
from tests.fakes import tls
from tests.fakes.scripted_server import answer, scripted_server
from tests.ports import free_port

UNAUTHORIZED = answer(401, b"{}", WWW_Authenticate="Bearer")
LETS_IN = "connect by VPN or peering, or add the address to `allowed_ips` of the stack"


@pytest.fixture
def services(tmp_path, monkeypatch):
    """The four services of an environment over TLS; what each answers is the test's to say."""
    certificate = tls.certificate_of_localhost(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    says = dict.fromkeys(("storage", "workspace", "vault", "registry"), UNAUTHORIZED)
    servers = {}
    with ExitStack() as stack:
        for name in says:
            answering = lambda _, name=name: says[name]  # noqa: E731
            servers[name] = stack.enter_context(
                scripted_server(answering, tls=tls.serving(certificate))
            )
        yield Services(says, servers)


class Services:
    def __init__(self, says, servers):
        self.says = says
        self.servers = servers

    def host(self, name):
        return f"localhost:{self.servers[name].port}"

    @property
    def environment(self):
        return Environment(
            schema=1,
            stack="test",
            engine="azureml",
            location="westeurope",
            subscription_id="00000000-0000-0000-0000-000000000000",
            resource_group="ty-test",
            workspace=Workspace(name="w", id="w", endpoint=f"https://{self.host('workspace')}"),
            storage=Storage(
                account="ty",
                blob_endpoint=f"https://{self.host('storage')}/",
                containers=Containers(data="data", runs="runs"),
            ),
            registry=Registry(login_server=self.host("registry")),
            key_vault=KeyVault(uri=f"https://{self.host('vault')}/"),
            clusters={},
            images={},
        )

    def check(self):
        return {each.part: each for each in check_environment(self.environment)}


def refusal(**body):
    return answer(403, json.dumps(body).encode())


def test_a_service_that_asks_who_we_are_can_be_used(services):
    # What Azure says to an unsigned request that its firewall lets in, service by service.
    services.says["storage"] = answer(409, x_ms_error_code="PublicAccessNotPermitted")
    services.says["workspace"] = answer(404)
    assert list(services.check().values()) == [
        PartCheck(part="storage", ok=True, detail=f"https://{services.host('storage')}/ answers"),
        PartCheck(
            part="workspace", ok=True, detail=f"https://{services.host('workspace')}/ answers"
        ),
        PartCheck(
            part="key vault",
            ok=True,
            detail=f"https://{services.host('vault')}/secrets answers; its firewall is tested only "
            "after signing in",
        ),
        PartCheck(
            part="registry", ok=True, detail=f"https://{services.host('registry')}/v2/ answers"
        ),
    ]
    assert [server.asked[0].target for server in services.servers.values()] == [
        "/?comp=list",
        "/",
        "/secrets?api-version=7.4",
        "/v2/",
    ]
    services.says["storage"] = answer(403, b"<Error><Code>AuthenticationFailed</Code></Error>")
    assert services.check()["storage"].ok
    assert all("authorization" not in s.asked[0].headers for s in services.servers.values())


def test_a_firewall_is_called_one_by_the_name_that_it_gives(services):
    services.says["storage"] = answer(403, x_ms_error_code="AuthorizationFailure")
    services.says["vault"] = refusal(
        error={"code": "Forbidden", "innererror": {"code": "ForbiddenByFirewall"}}
    )
    services.says["registry"] = refusal(errors=[{"code": "DENIED", "message": "client with IP"}])
    services.says["workspace"] = answer(403, b"no")
    found = services.check()
    for part, place, said in (
        ("storage", f"{services.host('storage')}/", "403 AuthorizationFailure"),
        ("key vault", f"{services.host('vault')}/secrets", "403 ForbiddenByFirewall"),
        ("registry", f"{services.host('registry')}/v2/", "403 DENIED"),
        ("workspace", f"{services.host('workspace')}/", "403"),
    ):
        detail = (
            f"the firewall of https://{place} blocks this machine's address ({said}): {LETS_IN}"
        )
        assert found[part] == PartCheck(part=part, ok=False, detail=detail)


def test_a_refusal_whose_body_is_damaged_or_stops_is_the_refusal_all_the_same(
    services, monkeypatch
):
    monkeypatch.setattr("jobs.stacks.reachability.TIMEOUT_S", 3)
    nested = b'{"error":' + b'{"innererror":' * 5000 + b"{}" + b"}" * 5001
    services.says["storage"] = answer(403, b"par", Content_Length="500")
    services.says["workspace"] = answer(403, b'{"error":{"code":"\xff"}}')
    services.says["vault"] = answer(403, nested)
    services.says["registry"] = answer(401, b"par", Content_Length="500")
    found = services.check()
    for part, place in (
        ("storage", f"{services.host('storage')}/"),
        ("workspace", f"{services.host('workspace')}/"),
        ("key vault", f"{services.host('vault')}/secrets"),
    ):
        detail = f"the firewall of https://{place} blocks this machine's address (403): {LETS_IN}"
        assert found[part] == PartCheck(part=part, ok=False, detail=detail)
    assert found["registry"].ok


def test_what_fails_or_hangs_up_cannot_be_used(services):
    services.says["storage"] = answer(503, x_ms_error_code="ServerBusy")
    services.says["workspace"] = b"close"
    found = services.check()
    where = services.host("storage")
    assert found["storage"].detail == f"https://{where}/ answers 503 ServerBusy"
    assert not found["storage"].ok
    where = services.host("workspace")
    assert found["workspace"].detail.startswith(f"no answer from https://{where}/: ")
    assert not found["workspace"].ok


def test_a_name_that_is_not_known_a_port_that_is_closed_and_a_strange_certificate(
    services, monkeypatch
):
    closed = f"127.0.0.1:{free_port()}"
    changed = msgspec.structs.replace(
        services.environment,
        registry=Registry(login_server="ty.azurecr.invalid"),
        key_vault=KeyVault(uri=f"https://{closed}/"),
    )
    monkeypatch.delenv("SSL_CERT_FILE")
    found = {each.part: each for each in check_environment(changed)}
    assert not any(each.ok for each in found.values())
    assert found["registry"].detail.startswith("no answer from https://ty.azurecr.invalid/v2/")
    assert "refused" in found["key vault"].detail
    assert "self-signed certificate" in found["storage"].detail


def test_an_azure_environment_without_vault_and_registry_has_two_services(services):
    cluster = Cluster(
        compute="gpu-1a2b3c",
        size="Standard_NC4as_T4_v3",
        gpus_per_node=1,
        cpus_per_node=4,
        processes_per_node=1,
        rdma=False,
        priority="low_priority",
        min_nodes=0,
        max_nodes=2,
        idle_s=120,
        price_per_node_hour=None,
        currency=None,
    )
    changed = msgspec.structs.replace(
        services.environment, registry=None, key_vault=None, clusters={"gpu": cluster}
    )
    assert [each.part for each in check_environment(changed)] == [
        "storage",
        "workspace",
        "cluster gpu",
    ]
