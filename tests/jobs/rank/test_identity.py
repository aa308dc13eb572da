"""A node's token: from Azure ML's own service, or from the machine's metadata service."""

from __future__ import annotations

import time

import pytest

from jobs.rank.identity import STORAGE, Identity, RankError
from tests.fakes.instance_metadata import InstanceMetadata, instance_metadata


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
        with pytest.raises(RankError) as refused:
            identity(service, DEFAULT_IDENTITY_CLIENT_ID="unknown").token(STORAGE)
    assert str(refused.value) == (
        "the cluster's identity gets no token for https://storage.azure.com/: 400 Bad Request"
    )
    assert refused.value.hint == "the cluster needs a managed identity: pulumi up sets it"
