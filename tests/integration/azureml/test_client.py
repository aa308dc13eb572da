"""What asks Azure: pages, tokens that end, pauses that Azure asks for, and no other host."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.core.exceptions import ServiceRequestError

from jobs.contracts.errors import EnvironmentFailure, Unreached
from jobs.contracts.spec import DatasetVersion, JobSpec
from jobs.engines.azure_ml import image_versions as environments
from jobs.engines.azure_ml import uploads
from jobs.engines.azure_ml.client import MANAGEMENT, ArmClient, Reply
from jobs.engines.azure_ml.data_assets import archive_asset, datastore_uri, make_asset
from jobs.engines.azure_ml.image_versions import ImageVersion
from jobs.engines.azure_ml.refusals import CloudRefusal, PlaceMissing, WorkspaceGone
from jobs.engines.azure_ml.submission import cancel_job
from jobs.engines.azure_ml.uploads import NotCompared, send_version, upload
from jobs.images.recipes import Recipe
from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import (
    FakeAzure,
    JobTrouble,
    RequestTrouble,
    broken,
    lost_reply,
    throttled,
    wrong_tenant,
)
from tests.fakes.gangs import make_spec

COMPUTES = "2023-08-01-preview"


def test_a_page_is_asked_for_when_the_one_before_is_used_up(
    azure: FakeAzure, arm_client: ArmClient
):
    azure.records.add_past_jobs(250, compute="cpu-1a2b3c")
    seen = len(azure.requests(path="/jobs"))
    jobs = arm_client.pages(f"{arm_client.workspace}/jobs", query={"listViewType": "ActiveOnly"})
    first = [each["name"] for each in islice(jobs, 100)]
    assert len(azure.requests(path="/jobs")) - seen == 1
    rest = [each["name"] for each in jobs]
    assert len(azure.requests(path="/jobs")) - seen == 3
    assert len({*first, *rest}) == 250


def test_a_token_is_asked_for_once_and_again_when_it_is_refused(
    azure: FakeAzure, arm_client: ArmClient
):
    seen = len(azure.requests(method="POST", path="/oauth2/v2.0/token"))
    for _ in range(3):
        arm_client.get(arm_client.workspace)
    assert len(azure.requests(method="POST", path="/oauth2/v2.0/token")) - seen == 1
    azure.tokens.expire()
    assert arm_client.get(arm_client.workspace)["name"] == azure.place.workspace
    assert len(azure.requests(method="POST", path="/oauth2/v2.0/token")) - seen == 2


def test_a_pause_that_azure_asks_for_is_kept_and_talked_about(
    azure: FakeAzure,
    arm_client: ArmClient,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("jobs.engines.azure_ml.client.SILENCE_S", 1.0)
    azure.script(throttled(retry_after_s=1, path="*/workspaces/*"))
    arm_client.get(arm_client.workspace)
    first, second = azure.requests(method="GET", path=arm_client.workspace)[-2:]
    assert second.when_s - first.when_s >= 1
    assert capsys.readouterr().err == "Azure asks us to wait 1 s\n"


def test_a_pause_of_many_minutes_is_cut_short(
    azure: FakeAzure,
    arm_client: ArmClient,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("jobs.engines.azure_ml.client.LONGEST_PAUSE_S", 1.0)
    azure.script(throttled(retry_after_s=600, path="*/workspaces/*"))
    arm_client.get(arm_client.workspace)
    first, second = azure.requests(method="GET", path=arm_client.workspace)[-2:]
    assert 1 <= second.when_s - first.when_s < 600
    told = "Azure asks us to wait 600 s; it is tried again after 1 s\n"
    assert capsys.readouterr().err == told


def test_a_post_whose_answer_was_lost_is_sent_again(azure: FakeAzure, arm_client: ArmClient):
    path = f"{arm_client.workspace}/computes/cpu-1a2b3c/listNodes"
    azure.script(lost_reply(path="*/listnodes", method="POST"), broken(path="*/listnodes"))
    assert arm_client.post(path, api_version=COMPUTES).status == 200
    assert len(azure.requests(method="POST", path="/listNodes")) == 3


def test_what_is_not_there_is_none_and_what_has_no_workspace_is_an_error(
    azure: FakeAzure, arm_client: ArmClient
):
    path = f"{arm_client.workspace}/jobs/nothing"
    assert arm_client.find(path) is None
    with pytest.raises(CloudRefusal) as caught:
        arm_client.get(path, what="asking")
    assert (caught.value.status, caught.value.message.partition(":")[0]) == (404, "asking")
    azure.delete_workspace()
    try:
        with pytest.raises(WorkspaceGone):
            arm_client.find(path)
    finally:
        azure.records.is_workspace_deleted = False


def test_a_subscription_that_is_not_seen_is_no_job_that_is_gone(
    azure: FakeAzure, arm_client: ArmClient
):
    message = "The subscription 'S' could not be found."
    code, host = "SubscriptionNotFound", "management.azure.com"
    azure.script(RequestTrouble(status=404, code=code, message=message, host=host))
    with pytest.raises(PlaceMissing, match="is not visible to this login"):
        arm_client.find(f"{arm_client.workspace}/jobs/nothing")


def test_another_tenant_is_named(azure: FakeAzure, arm_client: ArmClient):
    azure.script(wrong_tenant())
    with pytest.raises(CloudRefusal) as caught:
        arm_client.get(arm_client.workspace)
    assert caught.value.message.startswith("logged in to tenant ")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("az login --tenant ")


@pytest.mark.parametrize(
    "link",
    [
        "https://evil.example/next",
        "http://management.azure.com/next",
        "https://management.azure.com@evil.example/next",
        "https://management.azure.com:444/next",
        "https://api.azureml.ms.evil.example/next",
        "https://1.workspace.westeurope.api.azureml.ms.evil.example/next",
        "https://x.experiments.azureml.net.evil.example/next",
        "https://experiments.azureml.net/next",
    ],
)
def test_our_token_goes_to_no_other_host(arm_client: ArmClient, link: str):
    reply = Reply(status=202, headers={"location": link, "retry-after": "0"}, body={})
    with pytest.raises(EnvironmentFailure, match="is not an address of Azure ML"):
        arm_client.wait(reply, timeout_s=5)


@pytest.mark.parametrize(
    "host",
    [
        "swedencentral.api.azureml.ms",
        "3a9e1c70-0000-4000-8000-0000000a3171.workspace.swedencentral.api.azureml.ms",
        "westeurope.experiments.azureml.net",
    ],
)
def test_a_workspace_may_be_at_any_host_of_azures(arm_client: ArmClient, host: str):
    workspace = msgspec.structs.replace(
        arm_client.environment.workspace, endpoint=f"https://{host}/"
    )
    there = msgspec.structs.replace(arm_client.environment, workspace=workspace)
    ArmClient(there).require_endpoint()
    assert ArmClient(there).endpoint == f"https://{host}"


def test_what_azure_began_is_waited_for(azure: FakeAzure, arm_client: ArmClient, tmp_path: Path):
    """A cancellation, which Azure carries out after it has answered."""
    launch = AzureLaunch(azure, tmp_path)
    azure.script(JobTrouble(what="queued for ever"))
    name = launch.type("run", launch.write_job(), "-d", "-y").out.strip()
    reply = arm_client.post(f"{arm_client.workspace}/jobs/{name}/cancel")
    assert reply.status == 202
    assert arm_client.wait(reply, timeout_s=60)
    assert azure.job(name).state == "Canceled"
    assert not arm_client.wait(reply, timeout_s=-1)


def test_who_cannot_be_reached_is_named(
    azure: FakeAzure, arm_client: ArmClient, monkeypatch: pytest.MonkeyPatch
):
    arm_client.get(arm_client.workspace)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr("jobs.engines.azure_ml.client._RETRIES", 0)
    other = ArmClient(arm_client.environment)
    other.tokens = arm_client.tokens
    with pytest.raises(CloudRefusal) as caught:
        other.get(arm_client.workspace)
    assert caught.value.status is None
    assert caught.value.message.startswith("management.azure.com cannot be reached: ")
    assert caught.value.hint == "launch env check -s dev"


def test_a_job_that_is_over_is_cancelled_in_silence(azure: FakeAzure, arm_client: ArmClient):
    azure.records.add_past_jobs(1, compute="cpu-1a2b3c")
    cancel_job(arm_client, "past-00000")
    with pytest.raises(CloudRefusal) as caught:
        cancel_job(arm_client, "nothing")
    assert caught.value.status == 404


class Overtaken(ArmClient):
    """Somebody else makes known what is sent, just before it is made known here."""

    def put(self, path: str, body: Any, **how: Any) -> Reply:
        self.other = upload(
            ArmClient(self.environment), path.split("/")[-3], [], SENT, what="sending"
        )
        return super().put(path, body, **how)


SENT = {"train.py": b"print(1)", "part/more.py": b""}


def test_code_that_somebody_else_has_just_sent_is_taken_as_theirs(arm_client: ArmClient):
    overtaken = Overtaken(arm_client.environment)
    assert upload(overtaken, "overtaken", [], SENT, what="sending") == overtaken.other
    assert upload(arm_client, "overtaken", [], SENT, what="sending") == overtaken.other


@pytest.mark.parametrize(
    ("name", "content"),
    [("train.py", b"print(2)"), ("train.py", b"longer than it was"), ("torch.py", b"")],
)
def test_code_that_somebody_has_changed_is_not_taken(
    azure: FakeAzure, arm_client: ArmClient, name: str, content: bytes
):
    known = f"changed-{len(content)}"
    uri = upload(arm_client, known, [], SENT, what="sending")
    assert upload(arm_client, known, [], SENT, what="sending") == uri
    change(azure, uri, name, content)
    expected = f"the content of `{known}` in the workspace differs from the local files: `{name}`"
    with pytest.raises(EnvironmentFailure) as raised:
        upload(arm_client, known, [], SENT, what="sending")
    assert raised.value.message == expected


def change(azure: FakeAzure, uri: str, name: str, content: bytes) -> None:
    """Write into an upload, as whoever may write to the workspace's account can."""
    host, _, place = uri.removeprefix("https://").partition("/")
    container, _, folder = place.partition("/")
    store = azure.blobs.open(host.partition(".")[0], container)
    store.upload_blob(f"{folder}/{name}".lstrip("/"), content, overwrite=True)


def test_code_that_nobody_may_look_at_is_said_not_to_be_compared(arm_client: ArmClient):
    path = f"{arm_client.workspace}/codes/away/versions/1"
    arm_client.put(path, {"properties": {"codeUri": "https://other/code", "isAnonymous": True}})
    with pytest.raises(NotCompared, match="`away`, which somebody sent before, was not compared"):
        upload(arm_client, "away", [], SENT, what="sending")


def version_of(
    arm_client: ArmClient, monkeypatch: pytest.MonkeyPatch, spec: JobSpec
) -> ImageVersion:
    recipe = Recipe(image="pytorch", variant="cpu", text="", arguments={}, files={}, tag=spec.name)
    monkeypatch.setattr(
        uploads,
        "_send_context",
        lambda _spec, arm_client: upload(arm_client, spec.name, [], SENT, what=""),
    )
    return environments.built_version(recipe)


def test_an_image_that_others_have_named_so_is_not_taken(
    arm_client: ArmClient, monkeypatch: pytest.MonkeyPatch
):
    spec = make_spec(["python"], name="other", image="pytorch")
    version = version_of(arm_client, monkeypatch, spec)
    build = {"contextUri": "https://other/code", "dockerfilePath": "Dockerfile"}
    arm_client.put(version.path(arm_client.workspace), {"properties": {"build": build}})
    with pytest.raises(EnvironmentFailure, match="has another image as `trainyard-pytorch:other`"):
        send_version(version, spec, arm_client)


def test_what_an_image_is_built_from_is_compared_before_it_is_taken(
    azure: FakeAzure, arm_client: ArmClient, monkeypatch: pytest.MonkeyPatch
):
    spec = make_spec(["python"], name="ours", image="pytorch")
    version = version_of(arm_client, monkeypatch, spec)
    for _ in range(2):
        send_version(version, spec, arm_client)
    uri = arm_client.get(version.path(arm_client.workspace))["properties"]["build"]["contextUri"]
    change(azure, uri, "train.py", b"print(2)")
    with pytest.raises(EnvironmentFailure, match="the content of `ours` in the workspace differs"):
        send_version(version, spec, arm_client)


def test_code_that_is_refused_is_no_code_of_somebody_else(azure: FakeAzure, arm_client: ArmClient):
    azure.script(RequestTrouble(method="PUT", path="*/codes/refused/*", status=400, code="No"))
    with pytest.raises(CloudRefusal, match="sending: Azure answered 400 No"):
        upload(arm_client, "refused", [], {"train.py": b"print(1)"}, what="sending")


def test_a_login_without_a_network_is_an_azure_that_does_not_answer(arm_client: ArmClient):
    class Lost:
        def get_token(self, _scope: str) -> Any:
            raise ServiceRequestError("Failed to resolve 'login.microsoftonline.com'")

    with pytest.raises(CloudRefusal, match="Azure's login cannot be reached") as caught:
        ArmClient(arm_client.environment, credential=Lost()).get(arm_client.workspace)
    assert (caught.value.status, isinstance(caught.value, Unreached)) == (None, True)


def test_a_pause_that_is_a_date_is_ours_to_choose(arm_client: ArmClient):
    headers = {"location": f"{MANAGEMENT}/x", "retry-after": "Sun, 22 Nov 2026 00:00:00 GMT"}
    assert not arm_client.wait(Reply(status=202, headers=headers, body={}), timeout_s=1)


def test_a_data_asset_is_made_once_and_archived(azure: FakeAzure, arm_client: ArmClient):
    """The stand-in judges the body by the SDK's own model."""
    environment = arm_client.environment
    digits = DatasetVersion(name="digits", version=3, digest="ab" * 32, files=4, bytes=1000)
    make_asset(digits, ArmClient(environment))
    make_asset(digits, ArmClient(environment))
    path = f"{arm_client.workspace}/data/digits/versions/3"
    assert arm_client.get(path)["properties"]["dataUri"] == datastore_uri(digits, environment)
    archive_asset(digits, ArmClient(environment))
    assert arm_client.get(path)["properties"]["isArchived"] is True
