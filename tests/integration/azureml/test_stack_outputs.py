"""What the stack `dev` puts out is all that `launch` needs to work on what the stack declares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import FakeAzure
from tests.fakes.azureml.records import Cluster, Place
from tests.infra.cloud_declared import declare_stack, environment_of

IMAGE = f"registry.azurecr.io/python@sha256:{'a' * 64}"


def test_launch_plans_on_the_outputs_of_dev_and_finds_its_clusters(
    tmp_path: Path, runtimes: dict[str, Path]
) -> None:
    outputs = environment_of("dev")
    place = Place(
        subscription_id=outputs["subscription_id"],
        resource_group=outputs["resource_group"],
        workspace=outputs["workspace"]["name"],
        location=outputs["location"],
        data_account=outputs["storage"]["account"],
    )
    assert place.workspace_id == outputs["workspace"]["id"]
    with FakeAzure(tmp_path / "azure", runtimes=runtimes, place=place) as azure:
        launch = AzureLaunch(azure, tmp_path)
        azure.records.clusters.clear()
        for each in declare_stack("dev"):
            if each.type.endswith(":Compute"):
                name = each.inputs["computeName"]
                azure.records.clusters[name] = Cluster(name, as_sent(each.inputs))
        put_pulumi(launch, json.dumps(outputs))
        job = launch.write_job(image=IMAGE, cluster="gpu")
        planned = launch.type("plan", job, "-s", "dev", "--json", with_environment=False)
        listed = launch.type("cluster", "ls", "-s", "dev", "--json", with_environment=False)

    assert planned.code == 0, planned.err
    plan, gpu = json.loads(planned.out), outputs["clusters"]["gpu"]
    sent = plan["request"]["job"]["body"]["properties"]["computeId"]
    assert (plan["engine"], sent) == (
        "azureml",
        f"{outputs['workspace']['id']}/computes/{gpu['compute']}",
    )
    assert listed.code == 0, listed.err
    assert [
        (each["name"], each["size"], each["max_nodes"], each["state"])
        for each in json.loads(listed.out)
    ] == [
        (name, each["size"], each["max_nodes"], "steady")
        for name, each in outputs["clusters"].items()
    ]


def as_sent(inputs: dict[str, Any]) -> dict[str, Any]:
    """Pulumi's protocol knows no whole numbers; what goes to Azure has them."""
    return json.loads(json.dumps(inputs), parse_float=lambda text: int(float(text)))


def put_pulumi(launch: AzureLaunch, output: str) -> None:
    """A project with the stack dev, and a Pulumi that knows nothing but its output."""
    pulumi = launch.folder / ".venv" / "bin" / "pulumi"
    pulumi.parent.mkdir(parents=True)
    (launch.folder / "output.json").write_text(output)
    pulumi.write_text("#!/bin/sh\ncat output.json\n")
    pulumi.chmod(0o755)
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        (launch.folder / name).write_text("name: trainyard\n")
    assert launch.type("env", "trust", launch.folder, with_environment=False).code == 0
