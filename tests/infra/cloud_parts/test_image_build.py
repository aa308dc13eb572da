"""Azure ML builds images of a public dev stack on its first cluster without GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from infra.cloud.context import make_context
from infra.cloud.image_build import build_cluster
from tests.infra.cloud_declared import SUBSCRIPTION, settings_of

GPU = {"size": "Standard_NC4as_T4_v3", "priority": "low_priority", "max_nodes": 2, "idle_s": 120}
CPU = {**GPU, "size": "Standard_D4ds_v4"}


@pytest.mark.parametrize(
    ("stack", "changes", "cluster"),
    [
        ("dev", {}, "cpu"),
        ("dev", {"clusters": {"a": GPU, "b": CPU, "c": CPU}}, "b"),
        ("dev", {"clusters": {"a": GPU}}, None),
        ("dev", {"network": "private", "allowed_ips": []}, None),
        ("test", {}, None),
        ("prod", {}, None),
    ],
)
def test_images_are_built_where_nodes_reach_packages_and_no_gpu_waits(
    stack: str, changes: dict[str, Any], cluster: str | None
) -> None:
    context = make_context(settings_of(stack, **changes), subscription_id=SUBSCRIPTION)
    assert build_cluster(context) == cluster
