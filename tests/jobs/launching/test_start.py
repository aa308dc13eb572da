"""What `launch run` says of a run on Azure that it cannot follow, or must not start."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.contracts.spec import RunHandle, RunStatus
from jobs.engines.azure_ml.client import ArmClient
from jobs.engines.azure_ml.request import plan_job
from jobs.engines.azure_ml.sender import JobSender
from jobs.engines.azure_ml.submission import submit_run
from jobs.engines.base import Engine
from jobs.launching.start import Wish, _bring_home, start
from tests.fakes.cloud_stack import IMAGE, make_cloud_environment
from tests.fakes.gangs import make_spec
from tests.fakes.launching import Launching

RUN = "20261121-120000-0001"
ENVIRONMENT = make_cloud_environment()
SPEC = make_spec(["python"], stack="dev", cluster="cpu", compute="cpu-1a2b3c", image=IMAGE)


class Unfollowed:
    """An engine that starts runs, and cannot say how they stand: it is its own store."""

    environment, workspace = ENVIRONMENT, Path("runs")
    has_own_records = False

    @property
    def store(self) -> Unfollowed:
        """See Engine."""
        return self

    def submit(self, *_: Any) -> RunHandle:
        """See Engine."""
        return RunHandle(id=RUN, engine="azureml", run_dir="runs")

    def status(self, _: RunHandle) -> RunStatus:
        """See Engine."""
        message = "the store refuses us"
        raise EnvironmentFailure(message, hint="another role")


def test_a_run_that_cannot_be_followed_is_named_with_what_ends_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = plan_job(SPEC, ENVIRONMENT)
    wish = Wish(yes=True, stack=("--env", "dev.json"), shown_by=())
    with pytest.raises(EnvironmentFailure, match="refuses us"):
        start(plan, {}, cast("Engine", Unfollowed()), wish)
    said = capsys.readouterr()
    assert said.out == f"{RUN}\n"
    assert f"{RUN} may go on; it is no longer followed" in said.err
    assert f"launch cancel {RUN} --env dev.json" in said.err


def test_a_download_that_stops_is_named_with_what_goes_on_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Unfetched:
        def fetch(self, _handle: RunHandle, _into: Path) -> Path:
            message = "the store does not answer"
            raise EnvironmentFailure(message)

    handle = RunHandle(id=RUN, engine="azureml", run_dir="runs")
    wish = Wish(stack=("-s", "dev"), shown_by=())
    with pytest.raises(EnvironmentFailure, match="does not answer"):
        _bring_home(cast("Engine", Unfetched()), handle, wish)
    again = f"launch fetch {RUN} -s dev goes on with it"
    assert capsys.readouterr().err == f"warning: the download stopped; {again}\n"


def test_what_could_not_be_followed_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    workspace = msgspec.structs.replace(ENVIRONMENT.workspace, endpoint="https://evil.example")
    environment = make_cloud_environment(workspace=workspace)
    client = ArmClient(environment, credential=object())
    with pytest.raises(EnvironmentFailure, match="is not an address of Azure ML"):
        submit_run(plan_job(SPEC, environment), JobSender(client))
    assert list(tmp_path.iterdir()) == []


def test_code_above_a_gigabyte_is_asked_for(launching: Launching) -> None:
    with (launching.folder / "data.bin").open("wb") as file:
        file.truncate(10**9 + 1)
    job = launching.write_job("name: first\nimage: pytorch\nlauncher: none\nscript: data.bin\n")
    typed = launching.type("run", job, "--detach")
    assert (typed.code, launching.runs()) == (2, [])
    question = "The code is 1.0 GB. Copy it into the run? No terminal is there to answer"
    assert typed.err.endswith(
        f"error: {question}\n\nhint: add --yes to answer every question with yes\n"
    )
    assert launching.type("run", job, "--detach", "--yes").code == 0
