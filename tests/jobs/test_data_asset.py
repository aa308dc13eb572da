"""Data assets: the body that Azure ML's own SDK would send, written to a stand-in for ARM."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from jobs import data_asset
from jobs.data_asset import API_VERSION, archive_asset, asset_body, datastore_uri, make_asset
from jobs.errors import EnvironmentFailure
from jobs.spec import DatasetVersion, Environment
from tests.fakes.fake_arm import FakeArm, fake_arm
from tests.fakes.gangs import make_environment

# Data(...)._to_rest_object() of azure-ai-ml 1.35.2 for the same name, path, tags and description.
GOLDEN = Path(__file__).parent / "golden" / "data_asset_azure_ai_ml_1.35.2.json"
DIGITS = DatasetVersion(name="digits", version=3, digest="ab" * 32, files=4, bytes=1000)
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
PATH = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/group/providers"
    "/Microsoft.MachineLearningServices/workspaces/work/data/digits/versions/3"
    f"?api-version={API_VERSION}"
)


@pytest.fixture
def environment(tmp_path) -> Environment:
    made = make_environment(tmp_path)
    return msgspec.structs.replace(
        made,
        engine="azureml",
        subscription_id=SUBSCRIPTION,
        resource_group="group",
        workspace=msgspec.structs.replace(made.workspace, name="work"),
    )


@pytest.fixture
def arm(monkeypatch):
    with fake_arm() as arm:
        monkeypatch.setattr(data_asset, "MANAGEMENT", arm.endpoint)
        yield arm


def client(arm: FakeArm):
    """Without a credential, which loopback does not ask for."""
    core = pytest.importorskip("azure.core", reason="the extra `azure` is not installed")
    from azure.core.pipeline.policies import RetryPolicy

    retry = RetryPolicy(retry_total=2, retry_backoff_factor=0)
    return core.PipelineClient(arm.endpoint, policies=[retry])


def test_the_body_is_that_of_azure_ais_own_sdk(environment):
    assert asset_body(DIGITS, environment) == json.loads(GOLDEN.read_text())


def test_a_registered_version_points_to_where_it_lies(environment):
    dataset = msgspec.structs.replace(DIGITS, prefix="raw/p/")
    assert datastore_uri(dataset, environment).endswith("/datastores/data/paths/raw/p/")


def test_it_is_written_once_and_may_be_written_again(environment, arm):
    make_asset(DIGITS, environment, client(arm))
    make_asset(DIGITS, environment, client(arm))
    assert arm.requests == [("PUT", PATH), ("PUT", PATH)]
    assert arm.resources == {PATH: json.loads(GOLDEN.read_text())}


def test_that_of_a_removed_version_is_archived(environment, arm):
    make_asset(DIGITS, environment, client(arm))
    archive_asset(DIGITS, environment, client(arm))
    expected = json.loads(GOLDEN.read_text())
    expected["properties"]["isArchived"] = True
    assert arm.resources == {PATH: expected}
    arm.answers = [(403, {}, {})]
    with pytest.raises(EnvironmentFailure, match="is removed, but its data asset is still") as e:
        archive_asset(DIGITS, environment, client(arm))
    assert e.value.hint.endswith("then az ml data archive --name digits --version 3")


def test_throttling_is_waited_out(environment, arm):
    arm.answers = [(429, {"Retry-After": "0"}, {}), (503, {}, {})]
    make_asset(DIGITS, environment, client(arm))
    assert len(arm.requests) == 3
    assert PATH in arm.resources


@pytest.mark.parametrize(
    ("status", "answer", "message", "hint"),
    [
        (403, {"error": {"message": "no\nmore"}}, "answered 403: no$", "the role AzureML Data"),
        (409, {"error": {"message": "taken"}}, "answered 409: taken$", "type the same again"),
        (400, ["odd"], r'answered 400: \["odd"\]$', "type the same again"),
    ],
)
def test_a_refusal_says_that_the_version_stays(environment, arm, status, answer, message, hint):
    arm.answers = [(status, {}, answer)]
    with pytest.raises(EnvironmentFailure, match=rf"`digits@3` is in the store, .*{message}") as e:
        make_asset(DIGITS, environment, client(arm))
    assert e.value.hint.startswith(hint)


def test_nobody_there_is_an_error_of_one_line(environment, arm):
    gone = client(arm)
    arm_url, arm.endpoint = arm.endpoint, ""
    data_asset.MANAGEMENT = arm_url.rsplit(":", 1)[0] + ":9"
    with pytest.raises(EnvironmentFailure, match="is in the store, but has no data asset: ") as e:
        make_asset(DIGITS, environment, gone)
    assert "\n" not in e.value.message


def test_a_name_that_azure_ml_does_not_allow_is_named(environment):
    dataset = msgspec.structs.replace(DIGITS, name="digits.v2")
    with pytest.raises(EnvironmentFailure, match=r"`digits.v2@3` cannot be a data asset"):
        make_asset(dataset, environment)
