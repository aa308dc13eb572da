"""Azure ML models of registered versions: the SDK's own body, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.datasets.lineage import Lineage
from jobs.datasets.records import DatasetRecord
from jobs.engines.azure_ml.models import make_model, model_body
from jobs.engines.azure_ml.refusals import explain
from tests.fakes.cloud_stack import WORKSPACE, make_cloud_environment
from tests.fakes.put_client import PutClient

# Model(...)._to_rest_object() of azure-ai-ml 1.35.2 for the same name, path, tags and description.
GOLDEN = Path(__file__).parents[2] / "golden" / "model_azure_ai_ml_1.35.2.json"
MADE = make_cloud_environment()
ENVIRONMENT = msgspec.structs.replace(
    MADE,
    subscription_id="00000000-0000-0000-0000-000000000000",
    resource_group="group",
    workspace=msgspec.structs.replace(MADE.workspace, name="work"),
)
LINEAGE = Lineage(
    run="digits-1",
    stack="dev",
    job="digits",
    output="model",
    inputs={},
    code_digest=None,
    commit=None,
    is_changed=False,
    image="pytorch",
    image_digest=None,
    figures={},
)
MODEL = DatasetRecord(
    schema=1,
    name="digits",
    version=3,
    digest="ab" * 32,
    files=4,
    bytes=1000,
    created="",
    lineage=LINEAGE,
)


def test_the_body_is_that_of_azure_ais_own_sdk() -> None:
    client: Any = PutClient(ENVIRONMENT)
    make_model(MODEL, client)
    path = f"{WORKSPACE}/models/digits/versions/3"
    assert client.put_bodies == [(path, json.loads(GOLDEN.read_text()))]
    assert model_body(MODEL, ENVIRONMENT) == json.loads(GOLDEN.read_text())


def test_a_refusal_says_that_the_version_stays() -> None:
    body = json.dumps({"error": {"code": "Code", "message": "odd"}}).encode()
    client: Any = PutClient(
        ENVIRONMENT, explain(400, body, environment=ENVIRONMENT, what="", host="https://x")
    )
    with pytest.raises(EnvironmentFailure) as raised:
        make_model(MODEL, client)
    expected = (
        "`digits@3` is in the store, but is not an Azure ML model: Azure answered 400 Code: odd"
    )
    assert raised.value.message == expected
    assert raised.value.hint
    assert raised.value.hint.startswith("type the same again")


def test_a_name_that_azure_ml_does_not_allow_is_named() -> None:
    client: Any = PutClient(ENVIRONMENT)
    with pytest.raises(EnvironmentFailure, match=r"`digits.v2@3` cannot be an Azure ML model"):
        make_model(msgspec.structs.replace(MODEL, name="digits.v2"), client)
    assert client.put_bodies == []
