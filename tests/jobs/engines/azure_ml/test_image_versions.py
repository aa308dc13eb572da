"""An image as Azure ML knows it."""

from __future__ import annotations

import re

import pytest

from jobs.contracts.errors import LaunchError, NotFound
from jobs.engines.azure_ml.image_versions import (
    CONTEXT,
    built_version,
    image_reference,
    image_version,
    plain_dockerfile,
    version_for,
)
from jobs.images.recipes import read_recipe
from jobs.images.runtimes import PROJECT
from tests.fakes.cloud_stack import DIGEST, IMAGE, WORKSPACE, make_cloud_environment
from tests.fakes.gangs import make_spec


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        (IMAGE, "trainyard-pytorch"),
        ("docker.io/library/python:3.11", "trainyard-python"),
        ("host:5000/a/my.image_2", "trainyard-my-image_2"),
        (f"repo@{DIGEST}", "trainyard-repo"),
    ],
)
def test_an_image_is_named_after_its_repository(reference, name):
    version = image_version(reference)
    assert version.name == name
    assert version.path(WORKSPACE) == f"{WORKSPACE}/environments/{name}/versions/{version.version}"
    assert re.fullmatch("[0-9a-f]{16}", version.version)


def test_other_images_are_other_versions():
    assert image_version("a/x:1").version != image_version("b/x:1").version


def test_a_bare_name_is_built_from_its_folder_for_the_cluster():
    spec = make_spec(["python"], image="pytorch", cluster="gpu")
    version = version_for(spec, make_cloud_environment())
    assert version == built_version(read_recipe("pytorch", "cuda", PROJECT))
    assert version.body == {
        "properties": {
            "build": {"contextUri": CONTEXT, "dockerfilePath": "images/pytorch/Dockerfile"},
            "isAnonymous": False,
            "isArchived": False,
        }
    }


def test_a_bare_name_without_a_folder_is_refused():
    with pytest.raises(NotFound):
        version_for(make_spec(["python"], image="nothing"), make_cloud_environment())


@pytest.mark.parametrize("image", ["pytorch", "tensorflow"])
def test_a_builder_gets_a_dockerfile_that_needs_nothing_else(image):
    recipe = read_recipe(image, "cuda", PROJECT)
    plain = plain_dockerfile(recipe.text, recipe.arguments)
    assert "--mount" not in plain
    assert f"ARG BASE_IMAGE={recipe.arguments['BASE_IMAGE']}\n" in plain
    assert f"ARG BUILD_IMAGE={recipe.arguments['BUILD_IMAGE']}\n" in plain
    assert "ARG GPU_OPERATIONS=nccl\n" in plain
    assert plain.count(f"ARG IMAGE={image}\n") == 2
    assert f"ARG FRAMEWORK={image}\n" in plain
    assert "COPY images /tmp/images\nRUN /opt/runtime/bin/python /tmp/images/sbom.py" in plain
    # Every line that goes on ends in a backslash, and none that does not.
    for line, following in zip(plain.splitlines(), plain.splitlines()[1:], strict=False):
        assert line.endswith("\\") == following.startswith("    "), line


@pytest.mark.parametrize(
    ("image", "reference"), [("pytorch", IMAGE), ("other.example/x:1", "other.example/x:1")]
)
def test_an_image_is_the_pinned_reference(image: str, reference: str) -> None:
    assert image_reference(image, make_cloud_environment(stack="prod")) == reference


@pytest.mark.parametrize("stack", ["dev", "dev-alice"])
def test_a_dev_stack_leaves_an_image_that_it_does_not_pin_to_its_workspace(stack: str) -> None:
    assert image_reference("mine", make_cloud_environment(stack=stack)) == "mine"


def test_a_private_dev_stack_builds_none() -> None:
    environment = make_cloud_environment(network="private")
    with pytest.raises(LaunchError) as refused:
        image_reference("mine", environment)
    assert refused.value.message == "stack `dev` has no image `mine`"
    assert (refused.value.hint or "").startswith("launch image push makes one")


def test_a_dev_stack_without_a_cluster_that_builds_says_so() -> None:
    stack = make_cloud_environment()
    environment = make_cloud_environment(clusters={"gpu": stack.clusters["gpu"]})
    assert image_reference("pytorch", environment) == IMAGE
    with pytest.raises(LaunchError) as refused:
        image_reference("mine", environment)
    assert refused.value.message == (
        "stack `dev` has no image `mine`, and no cluster without GPUs to build it on"
    )
    assert (refused.value.hint or "").startswith("launch image push makes one")


def test_an_unknown_image_names_the_nearest() -> None:
    with pytest.raises(LaunchError) as caught:
        image_reference("pytorhc", make_cloud_environment(stack="prod"))
    assert caught.value.message == "stack `prod` has no image `pytorhc`"
    assert caught.value.hint == "did you mean `pytorch`?"
