"""The data asset of a dataset's version: written, written again, archived, refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import DatasetVersion
from jobs.engines.azure_ml.data_assets import archive_asset, asset_body, make_asset
from jobs.engines.azure_ml.refusals import explain
from tests.fakes.cloud_stack import WORKSPACE, make_cloud_environment
from tests.fakes.put_client import PutClient

DIGITS = DatasetVersion(name="digits", version=3, digest="ab" * 32, files=4, bytes=1000)
ENVIRONMENT = make_cloud_environment()
PATH = f"{WORKSPACE}/data/digits/versions/3"


def refused(status: int, message: str) -> EnvironmentFailure:
    body = json.dumps({"error": {"code": "Code", "message": message}}).encode()
    return explain(status, body, environment=ENVIRONMENT, what="", host="https://x")


def test_a_version_is_written_below_its_name_and_archived_there() -> None:
    client: Any = PutClient(ENVIRONMENT)
    make_asset(DIGITS, client)
    archive_asset(DIGITS, client)
    assert client.put_bodies == [
        (PATH, asset_body(DIGITS, ENVIRONMENT)),
        (PATH, asset_body(DIGITS, ENVIRONMENT, is_archived=True)),
    ]


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (
            refused(403, "no"),
            "our roles do not allow us: no",
            "the owner of the stack adds our group",
        ),
        (
            refused(409, "taken\nmore"),
            "Azure is busy with another change of the same resource: taken",
            "type the same",
        ),
        (
            refused(400, "odd"),
            "Azure answered 400 Code: odd",
            "type the same again: files that were",
        ),
        (EnvironmentFailure("not logged in", hint="az login"), "not logged in", "az login; then"),
    ],
)
def test_a_refusal_says_that_the_version_stays(
    error: EnvironmentFailure, message: str, hint: str
) -> None:
    client: Any = PutClient(ENVIRONMENT, error)
    with pytest.raises(EnvironmentFailure) as raised:
        make_asset(DIGITS, client)
    expected = f"`digits@3` is in the store, but has no data asset: {message}"
    assert raised.value.message == expected
    assert raised.value.hint
    assert raised.value.hint.startswith(hint)
    with pytest.raises(
        EnvironmentFailure, match="is removed, but its data asset is still"
    ) as raised:
        archive_asset(DIGITS, client)
    assert raised.value.hint
    assert raised.value.hint.endswith("az ml data archive --name digits --version 3")


def test_a_name_that_azure_ml_does_not_allow_is_named() -> None:
    dataset = msgspec.structs.replace(DIGITS, name="digits.v2")
    client: Any = PutClient(ENVIRONMENT)
    with pytest.raises(EnvironmentFailure, match=r"`digits.v2@3` cannot be a data asset"):
        make_asset(dataset, client)
