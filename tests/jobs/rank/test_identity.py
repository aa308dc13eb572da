"""A node's token: from Azure ML's own service, or from the machine's metadata service."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.rank.identity import STORAGE, Identity, NodeFailure, with_identity
from tests.fakes.instance_metadata import InstanceMetadata, instance_metadata
from tests.fakes.scripted_server import answer, scripted_server


def identity(service: InstanceMetadata, **environ: str) -> Identity:
    host = service.url.partition("/metadata")[0]
    named = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": host}
    return Identity({**named, **environ}, pauses_s=(0.0,))


def test_the_metadata_service_gives_one_token_that_is_kept_while_it_lasts() -> None:
    with instance_metadata() as service:
        service.identities = {"a-client": "token"}
        asked = identity(service, DEFAULT_IDENTITY_CLIENT_ID="a-client")
        assert [asked.token(STORAGE) for _ in range(3)] == ["token-1"] * 3
        asked.forget(STORAGE)
        assert asked.token(STORAGE) == "token-2"


def test_a_token_near_its_end_is_replaced_and_kept_where_none_comes() -> None:
    with instance_metadata() as service:
        service.identities, service.lifetime_s = {"": "token"}, 300
        asked = identity(service)
        assert [asked.token(STORAGE), asked.token(STORAGE)] == ["token-1", "token-2"]
        service.answer = 500
        assert asked.token(STORAGE) == "token-2"


def test_a_date_in_place_of_seconds_is_no_reason_to_fail() -> None:
    with instance_metadata() as service:
        service.identities = {"": "token"}
        service.expires_on = time.strftime("%m/%d/%Y %H:%M:%S +00:00")
        assert identity(service).token(STORAGE) == "token-1"


def test_a_node_without_an_identity_is_told_what_it_lacks() -> None:
    with instance_metadata() as service:
        with pytest.raises(NodeFailure) as refused:
            identity(service, DEFAULT_IDENTITY_CLIENT_ID="unknown").token(STORAGE)
    assert str(refused.value) == (
        "the cluster's identity gets no token for https://storage.azure.com/: 400 Bad Request"
    )
    assert refused.value.hint == "the cluster needs a managed identity: pulumi up sets it"


def test_a_job_that_acts_as_its_sender_asks_for_the_senders_token() -> None:
    token = answer(200, b'{"access_token": "mine", "expires_on": "4102444800"}')
    with scripted_server(lambda asked: token) as server:
        environ = {"TRAINYARD_IDENTITY": "user", "OBO_ENDPOINT": f"{server.url}/OBO/token"}
        assert Identity(environ).token(STORAGE) == "mine"
    resource = "resource=https%3A%2F%2Fstorage.azure.com%2F"
    assert [each.target for each in server.asked] == [f"/account/data/OBO/token?{resource}"]


def test_a_job_that_acts_as_its_sender_never_takes_the_clusters_token() -> None:
    with instance_metadata() as service:
        service.identities = {"": "token"}
        with pytest.raises(NodeFailure) as refused:
            identity(service, TRAINYARD_IDENTITY="user").token(STORAGE)
    assert str(refused.value) == (
        "the job gets no token of its sender for https://storage.azure.com/: "
        "Azure ML has not set OBO_ENDPOINT"
    )
    assert refused.value.hint == "send it without `identity: user`, as the cluster's identity"


def test_rank_without_an_identity_has_that_of_its_containers_first_process(tmp_path: Path) -> None:
    """sshd starts what mpirun asks for, without what Azure ML has told the container."""
    first = tmp_path / "environ"
    first.write_bytes(
        b"MSI_ENDPOINT=http://127.0.0.1:1/token\0MSI_SECRET=s=1\0HOME=/root\0odd\xff\0"
    )
    found = with_identity({"PATH": "/bin"}, first_process=str(first))
    assert found == {
        "PATH": "/bin",
        "MSI_ENDPOINT": "http://127.0.0.1:1/token",
        "MSI_SECRET": "s=1",
    }
    told = {"MSI_ENDPOINT": "http://127.0.0.1:2/token", "MSI_SECRET": "t"}
    assert with_identity(told, first_process=str(first)) == told
    assert with_identity({}, first_process=str(tmp_path / "none")) == {}
