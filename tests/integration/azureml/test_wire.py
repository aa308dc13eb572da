"""What asks Azure: pages, tokens that end, pauses that Azure asks for, and no other host."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.core.exceptions import ServiceRequestError

from jobs.blobs.credentials import our_tokens
from jobs.contracts.errors import EnvironmentFailure, Unreached
from jobs.contracts.spec import DatasetVersion, Environment, JobSpec
from jobs.engines.azure_ml import image_versions as environments
from jobs.engines.azure_ml import uploads
from jobs.engines.azure_ml.client import MANAGEMENT, Reply, Wire
from jobs.engines.azure_ml.data_assets import archive_asset, datastore_uri, make_asset
from jobs.engines.azure_ml.image_versions import ImageVersion
from jobs.engines.azure_ml.refusals import CloudRefusal, PlaceMissing, WorkspaceGone
from jobs.engines.azure_ml.submission import cancel_job
from jobs.engines.azure_ml.uploads import NotCompared, send_version, upload
from jobs.images.recipes import Recipe
from tests.fakes.azure_launch import AzureLaunch
from tests.fakes.azureml import (
    FakeAzure,
    RequestTrouble,
    broken,
    lost_reply,
    throttled,
    wrong_tenant,
)
from tests.fakes.azureml.judge import read_tables
from tests.fakes.gangs import make_spec

COMPUTES = "2023-08-01-preview"


@pytest.fixture
def wire(azure: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    # Before this process, too, reaches nothing but the stand-in: it makes them where there are none.
    read_tables()
    for name, value in azure.environ.items():
        monkeypatch.setenv(name, value)
    our_tokens.cache_clear()
    yield Wire(msgspec.convert(azure.environment(), Environment))
    our_tokens.cache_clear()


def test_a_page_is_asked_for_when_the_one_before_is_used_up(azure: FakeAzure, wire: Wire):
    azure.records.add_past_jobs(250, compute="cpu-1a2b3c")
    seen = len(azure.requests(path="/jobs"))
    jobs = wire.pages(f"{wire.workspace}/jobs", query={"listViewType": "ActiveOnly"})
    first = [each["name"] for each in islice(jobs, 100)]
    assert len(azure.requests(path="/jobs")) - seen == 1
    rest = [each["name"] for each in jobs]
    assert len(azure.requests(path="/jobs")) - seen == 3
    assert len({*first, *rest}) == 250


def test_a_token_is_asked_for_once_and_again_when_it_is_refused(azure: FakeAzure, wire: Wire):
    seen = len(azure.requests(method="POST", path="/oauth2/v2.0/token"))
    for _ in range(3):
        wire.get(wire.workspace)
    assert len(azure.requests(method="POST", path="/oauth2/v2.0/token")) - seen == 1
    azure.tokens.expire()
    assert wire.get(wire.workspace)["name"] == azure.place.workspace
    assert len(azure.requests(method="POST", path="/oauth2/v2.0/token")) - seen == 2


def test_a_pause_that_azure_asks_for_is_kept_and_talked_about(
    azure: FakeAzure, wire: Wire, capsys: pytest.CaptureFixture[str]
):
    azure.script(throttled(retry_after_s=3, path="*/workspaces/*"))
    wire.get(wire.workspace)
    first, second = azure.requests(method="GET", path=wire.workspace)[-2:]
    assert second.when_s - first.when_s >= 3
    assert capsys.readouterr().err == "Azure asks us to wait 3 s\n"


def test_a_pause_of_many_minutes_is_cut_short(
    azure: FakeAzure,
    wire: Wire,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("jobs.engines.azure_ml.client.LONGEST_PAUSE_S", 1.0)
    azure.script(throttled(retry_after_s=600, path="*/workspaces/*"))
    wire.get(wire.workspace)
    first, second = azure.requests(method="GET", path=wire.workspace)[-2:]
    assert 1 <= second.when_s - first.when_s < 600
    told = "Azure asks us to wait 600 s; it is tried again after 1 s\n"
    assert capsys.readouterr().err == told


def test_a_post_whose_answer_was_lost_is_sent_again(azure: FakeAzure, wire: Wire):
    path = f"{wire.workspace}/computes/cpu-1a2b3c/listNodes"
    azure.script(lost_reply(path="*/listnodes", method="POST"), broken(path="*/listnodes"))
    assert wire.post(path, api_version=COMPUTES).status == 200
    assert len(azure.requests(method="POST", path="/listNodes")) == 3


def test_what_is_not_there_is_none_and_what_has_no_workspace_is_an_error(
    azure: FakeAzure, wire: Wire
):
    path = f"{wire.workspace}/jobs/nothing"
    assert wire.find(path) is None
    with pytest.raises(CloudRefusal) as caught:
        wire.get(path, what="asking")
    assert (caught.value.status, caught.value.message.partition(":")[0]) == (404, "asking")
    azure.delete_workspace()
    try:
        with pytest.raises(WorkspaceGone):
            wire.find(path)
    finally:
        azure.records.is_workspace_deleted = False


def test_a_subscription_that_is_not_seen_is_no_job_that_is_gone(azure: FakeAzure, wire: Wire):
    message = "The subscription 'S' could not be found."
    code, host = "SubscriptionNotFound", "management.azure.com"
    azure.script(RequestTrouble(status=404, code=code, message=message, host=host))
    with pytest.raises(PlaceMissing, match="is not seen by this login"):
        wire.find(f"{wire.workspace}/jobs/nothing")


def test_another_tenant_is_named(azure: FakeAzure, wire: Wire):
    azure.script(wrong_tenant())
    with pytest.raises(CloudRefusal) as caught:
        wire.get(wire.workspace)
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
    ],
)
def test_our_token_goes_to_no_other_host(wire: Wire, link: str):
    reply = Reply(status=202, headers={"location": link, "retry-after": "0"}, body={})
    with pytest.raises(EnvironmentFailure, match="is no address of Azure ML"):
        wire.wait(reply, timeout_s=5)


def test_what_azure_began_is_waited_for(azure: FakeAzure, wire: Wire, tmp_path: Path):
    """A cancellation, which Azure carries out after it has answered."""
    launch = AzureLaunch(azure, tmp_path)
    job = launch.write_job("import time; time.sleep(600)")
    name = launch.type("run", job, "-d", "-y").out.strip()
    reply = wire.post(f"{wire.workspace}/jobs/{name}/cancel")
    assert reply.status == 202
    assert wire.wait(reply, timeout_s=60)
    assert azure.job(name).state == "Canceled"
    assert not wire.wait(reply, timeout_s=-1)


def test_who_cannot_be_reached_is_named(
    azure: FakeAzure, wire: Wire, monkeypatch: pytest.MonkeyPatch
):
    wire.get(wire.workspace)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr("jobs.engines.azure_ml.client._RETRIES", 0)
    other = Wire(wire.environment)
    other.tokens = wire.tokens
    with pytest.raises(CloudRefusal) as caught:
        other.get(wire.workspace)
    assert caught.value.status is None
    assert caught.value.message.startswith("management.azure.com cannot be reached: ")
    assert caught.value.hint == "launch env check -s dev"


def test_a_job_that_is_over_is_cancelled_in_silence(azure: FakeAzure, wire: Wire):
    azure.records.add_past_jobs(1, compute="cpu-1a2b3c")
    cancel_job(wire, "past-00000")
    with pytest.raises(CloudRefusal) as caught:
        cancel_job(wire, "nothing")
    assert caught.value.status == 404


class Overtaken(Wire):
    """Somebody else makes known what is sent, just before it is made known here."""

    def put(self, path: str, body: Any, **how: Any) -> Reply:
        self.other = upload(Wire(self.environment), path.split("/")[-3], [], SENT, what="sending")
        return super().put(path, body, **how)


SENT = {"train.py": b"print(1)", "part/more.py": b""}


def test_code_that_somebody_else_has_just_sent_is_taken_as_theirs(wire: Wire):
    overtaken = Overtaken(wire.environment)
    assert upload(overtaken, "overtaken", [], SENT, what="sending") == overtaken.other
    assert upload(wire, "overtaken", [], SENT, what="sending") == overtaken.other


@pytest.mark.parametrize(
    ("name", "content"),
    [("train.py", b"print(2)"), ("train.py", b"longer than it was"), ("torch.py", b"")],
)
def test_code_that_somebody_has_changed_is_not_taken(
    azure: FakeAzure, wire: Wire, name: str, content: bytes
):
    known = f"changed-{len(content)}"
    uri = upload(wire, known, [], SENT, what="sending")
    assert upload(wire, known, [], SENT, what="sending") == uri
    change(azure, uri, name, content)
    expected = f"the workspace has other content under `{known}` than lies here: `{name}`"
    with pytest.raises(EnvironmentFailure) as raised:
        upload(wire, known, [], SENT, what="sending")
    assert raised.value.message == expected


def change(azure: FakeAzure, uri: str, name: str, content: bytes) -> None:
    """Write into an upload, as whoever may write to the workspace's account can."""
    host, _, place = uri.removeprefix("https://").partition("/")
    container, _, folder = place.partition("/")
    store = azure.blobs.open(host.partition(".")[0], container)
    store.upload_blob(f"{folder}/{name}".lstrip("/"), content, overwrite=True)


def test_code_that_nobody_may_look_at_is_said_not_to_be_compared(wire: Wire):
    path = f"{wire.workspace}/codes/away/versions/1"
    wire.put(path, {"properties": {"codeUri": "https://other/code", "isAnonymous": True}})
    with pytest.raises(NotCompared, match="`away`, which somebody sent before, was not compared"):
        upload(wire, "away", [], SENT, what="sending")


def version_of(wire: Wire, monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> ImageVersion:
    recipe = Recipe(image="pytorch", variant="cpu", arguments={}, files={}, tag=spec.name)
    monkeypatch.setattr(
        uploads,
        "_send_context",
        lambda _spec, wire: upload(wire, spec.name, [], SENT, what=""),
    )
    return environments.built_version(recipe)


def test_an_image_that_others_have_named_so_is_not_taken(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
):
    spec = make_spec(["python"], name="other", image="pytorch")
    version = version_of(wire, monkeypatch, spec)
    build = {"contextUri": "https://other/code", "dockerfilePath": "Dockerfile"}
    wire.put(version.path(wire.workspace), {"properties": {"build": build}})
    with pytest.raises(EnvironmentFailure, match="has another image as `trainyard-pytorch:other`"):
        send_version(version, spec, wire)


def test_what_an_image_is_built_from_is_compared_before_it_is_taken(
    azure: FakeAzure, wire: Wire, monkeypatch: pytest.MonkeyPatch
):
    spec = make_spec(["python"], name="ours", image="pytorch")
    version = version_of(wire, monkeypatch, spec)
    for _ in range(2):
        send_version(version, spec, wire)
    uri = wire.get(version.path(wire.workspace))["properties"]["build"]["contextUri"]
    change(azure, uri, "train.py", b"print(2)")
    with pytest.raises(EnvironmentFailure, match="has other content under `ours`"):
        send_version(version, spec, wire)


def test_code_that_is_refused_is_no_code_of_somebody_else(azure: FakeAzure, wire: Wire):
    azure.script(RequestTrouble(method="PUT", path="*/codes/refused/*", status=400, code="No"))
    with pytest.raises(CloudRefusal, match="sending: Azure answered 400 No"):
        upload(wire, "refused", [], {"train.py": b"print(1)"}, what="sending")


def test_a_login_without_a_network_is_an_azure_that_does_not_answer(wire: Wire):
    class Lost:
        def get_token(self, _scope: str) -> Any:
            raise ServiceRequestError("Failed to resolve 'login.microsoftonline.com'")

    with pytest.raises(CloudRefusal, match="Azure's login cannot be reached") as caught:
        Wire(wire.environment, credential=Lost()).get(wire.workspace)
    assert (caught.value.status, isinstance(caught.value, Unreached)) == (None, True)


def test_a_pause_that_is_a_date_is_ours_to_choose(wire: Wire):
    headers = {"location": f"{MANAGEMENT}/x", "retry-after": "Sun, 22 Nov 2026 00:00:00 GMT"}
    assert not wire.wait(Reply(status=202, headers=headers, body={}), timeout_s=1)


def test_a_data_asset_is_made_once_and_archived(azure: FakeAzure, wire: Wire):
    """The stand-in judges the body by the SDK's own model."""
    environment = wire.environment
    digits = DatasetVersion(name="digits", version=3, digest="ab" * 32, files=4, bytes=1000)
    make_asset(digits, Wire(environment))
    make_asset(digits, Wire(environment))
    path = f"{wire.workspace}/data/digits/versions/3"
    assert wire.get(path)["properties"]["dataUri"] == datastore_uri(digits, environment)
    archive_asset(digits, Wire(environment))
    assert wire.get(path)["properties"]["isArchived"] is True
