"""Data assets: the body that Azure ML's own SDK would send."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.spec import DatasetVersion, Environment
from jobs.engines.azure_ml.data_assets import asset_body, datastore_uri
from tests.fakes.gangs import make_environment

# Data(...)._to_rest_object() of azure-ai-ml 1.35.2 for the same name, path, tags and description.
GOLDEN = Path(__file__).parents[2] / "golden" / "data_asset_azure_ai_ml_1.35.2.json"
DIGITS = DatasetVersion(name="digits", version=3, digest="ab" * 32, files=4, bytes=1000)


@pytest.fixture
def environment(tmp_path) -> Environment:
    made = make_environment(tmp_path)
    return msgspec.structs.replace(
        made,
        engine="azureml",
        subscription_id="00000000-0000-0000-0000-000000000000",
        resource_group="group",
        workspace=msgspec.structs.replace(made.workspace, name="work"),
    )


def test_the_body_is_that_of_azure_ais_own_sdk(environment):
    assert asset_body(DIGITS, environment) == json.loads(GOLDEN.read_text())


def test_a_registered_version_points_to_where_it_lies(environment):
    dataset = msgspec.structs.replace(DIGITS, prefix="raw/p/")
    assert datastore_uri(dataset, environment).endswith("/datastores/data/paths/raw/p/")
