"""Images imported from one stack's registry into another's: the request, refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import Registry
from jobs.engines.azure_ml.client import Reply
from jobs.engines.azure_ml.registry import import_body, import_image
from tests.fakes.cloud_stack import DIGEST, make_cloud_environment

SOURCE = make_cloud_environment(registry=Registry(login_server="devreg.azurecr.io"))
TARGET = make_cloud_environment(
    stack="test", resource_group="T", registry=Registry(login_server="testreg.azurecr.io")
)
PATH = f"trainyard/pytorch@{DIGEST}"
RESOURCE = "/subscriptions/S/resourceGroups/{}/providers/Microsoft.ContainerRegistry/registries/{}"


class Asked:
    """A client that keeps what is posted; `is_over` tells whether the import ends in time."""

    environment = TARGET

    def __init__(self, *, is_over: bool = True) -> None:
        self.posted: list[tuple[str, Any]] = []
        self._is_over = is_over

    def post(self, path: str, body: Any, *, api_version: str, what: str) -> Reply:
        assert (api_version, what) == ("2023-07-01", f"importing devreg.azurecr.io/{PATH}")
        self.posted.append((path, body))
        return Reply(status=202, headers={}, body={})

    def wait(self, reply: Reply, *, timeout_s: float, what: str) -> bool:
        assert (reply.status, timeout_s > 0) == (202, True)
        return self._is_over


def test_the_digest_is_the_same_in_both_registries() -> None:
    client: Any = Asked()
    made = import_image(f"devreg.azurecr.io/{PATH}", SOURCE, client)
    assert made == f"testreg.azurecr.io/{PATH}"
    body = {
        "source": {"resourceId": RESOURCE.format("G", "devreg"), "sourceImage": PATH},
        "targetTags": ["trainyard/pytorch:promoted-aaaaaaaaaaaa"],
        "mode": "Force",
    }
    assert client.posted == [(f"{RESOURCE.format('T', 'testreg')}/importImage", body)]


def test_an_image_of_a_public_registry_is_named_by_its_host() -> None:
    body = import_body(f"mcr.microsoft.com/{PATH}", SOURCE)
    assert body["source"] == {"registryUri": "mcr.microsoft.com", "sourceImage": PATH}


def test_what_the_target_has_is_not_imported() -> None:
    client: Any = Asked()
    assert import_image(f"testreg.azurecr.io/{PATH}", SOURCE, client).startswith("testreg.")
    assert client.posted == []


def test_an_import_that_takes_too_long_is_said() -> None:
    client: Any = Asked(is_over=False)
    with pytest.raises(EnvironmentFailure, match="is not over after 60 min"):
        import_image(f"devreg.azurecr.io/{PATH}", SOURCE, client)


@pytest.mark.parametrize(
    "reference",
    ["devreg.azurecr.io/trainyard/pytorch:cuda-1", "pytorch", f"devreg.azurecr.io/../x@{DIGEST}"],
)
def test_a_reference_without_digest_is_refused(reference: str) -> None:
    client: Any = Asked()
    with pytest.raises(LaunchError, match="is not pinned by a digest"):
        import_image(reference, SOURCE, client)
    assert client.posted == []


@pytest.mark.parametrize("registry", [None, Registry(login_server="registry.example.org")])
def test_a_stack_without_registry_on_azure_is_refused(registry: Registry | None) -> None:
    client: Any = Asked()
    client.environment = msgspec.structs.replace(TARGET, registry=registry)
    with pytest.raises(LaunchError, match="stack `test` has no registry on Azure"):
        import_image(f"devreg.azurecr.io/{PATH}", SOURCE, client)
