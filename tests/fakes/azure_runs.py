"""An Azure ML workspace in memory, as far as the runs of one are followed: no HTTP, no job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from jobs.blobs.store import Blob
from jobs.contracts.spec import JobSpec, Plan, RunHandle, RunRecord
from jobs.engines.azure_ml.artifacts import job_prefix
from jobs.engines.azure_ml.client import Reply
from jobs.engines.azure_ml.request import AzureMLRequest, ImageRequest, job_request
from jobs.engines.azure_ml.runs import CloudRuns
from jobs.host.files import write_file
from tests.fakes.blob_store import MemoryStore
from tests.fakes.cloud_stack import WORKSPACE, make_cloud_environment

RUN = "20261121-120000-0001"


class ScriptedClient:
    """Answers with `details` by job (the last of several again and again); or raises them.

    What is `sent` is done at once; `after_put` runs then: a test races there.
    """

    def __init__(self) -> None:
        self.workspace = WORKSPACE
        self.endpoint = "https://westeurope.api.azureml.ms"
        self.details: dict[str, list[Any]] = {}
        self.compute: dict[str, Any] | None = None
        self.jobs: list[dict[str, Any]] = []
        self.num_listed = 0
        self.queries: list[Any] = []
        self.asked: list[str] = []
        self.sent: list[str] = []
        self.after_put: Callable[[], object] = lambda: None

    def find(self, path: str, **_: Any) -> Any:
        """See ArmClient."""
        inside = path.partition(WORKSPACE)[2]
        self.asked.append(inside)
        if inside.startswith("/computes/"):
            return self.compute
        if inside.startswith("/jobs/"):
            name = inside.removeprefix("/jobs/")
            return next((each for each in self.jobs if each["name"] == name), None)
        answers = self.details.get(inside.split("/")[2], [None])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def put(self, path: str, body: Any, **_: Any) -> Reply:
        """See ArmClient."""
        name = path.rpartition("/")[2]
        self.sent.append(f"PUT {name}")
        self.details[name] = [details("Queued")]
        self.after_put()
        return Reply(status=201, headers={}, body=msgspec.to_builtins(body))

    def post(self, path: str, **_: Any) -> None:
        """See ArmClient."""
        self.sent.append(f"POST {path.partition('/jobs/')[2]}")

    def pages(self, path: str, *, query: Any = None, **_: Any) -> Iterator[Any]:
        """See ArmClient; counts what was taken."""
        assert path == f"{WORKSPACE}/jobs"
        self.queries.append(query)
        for job in self.jobs:
            self.num_listed += 1
            yield job


class MemoryArtifacts:
    """Logs in memory; `troubles` are raised by the next listings."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.troubles: list[Exception] = []
        self.num_read = 0

    def write(self, job: str, name: str, text: str) -> None:
        """Append to a log."""
        whole = job_prefix(job) + name
        self.store.blobs[whole] = self.store.blobs.get(whole, b"") + text.encode()

    def list(self, job: str, folder: str) -> Iterator[Blob]:
        """See Artifacts."""
        if self.troubles:
            raise self.troubles.pop(0)
        return self.store.list(job_prefix(job) + folder)

    def read_parts(self, job: str, parts: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
        """See Artifacts."""
        for name, start, end in parts:
            self.num_read += end > start
            content = self.store.read_range(job_prefix(job) + name, start, end)
            yield content or b"" if end > start else b""


class MemoryRuns(CloudRuns):
    """One workspace's runs, all in memory but for what this machine keeps."""

    def __init__(self, folder: Path) -> None:
        self.scripted = ScriptedClient()
        super().__init__(make_cloud_environment())
        self.__dict__["client"] = self.scripted
        self.runs = self.local.runs = folder / "runs"
        self.__dict__["blobs"] = self.memory = MemoryStore()
        self.__dict__["artifacts"] = self.logs = MemoryArtifacts()

    def add(self, spec: JobSpec, run: str = RUN, *details: Any) -> RunHandle:
        """A run that was submitted here."""
        handle = self.handle(run)
        record = RunRecord(
            schema=1,
            id=run,
            created="2026-11-21T12:00:00.000000Z",
            plan=Plan(engine="azureml", spec=spec, request=_request(spec, run)),
            git=None,
            image_digest=None,
            environment_digest="",
        )
        Path(handle.run_dir).mkdir(parents=True)
        write_file(Path(handle.run_dir, "run.json"), msgspec.json.encode(record))
        if details:
            self.scripted.details[run] = list(details)
        return handle


def _request(spec: JobSpec, run: str) -> msgspec.Raw:
    given = {"code_id": "code", "image_id": "image", "command": "run"}
    request = AzureMLRequest(
        environment=ImageRequest(path="image", body={}),
        job=job_request(spec, make_cloud_environment(), run=run, **given),
    )
    return msgspec.Raw(msgspec.json.encode(request))


def details(status: str, message: str = "", *, ended: int | None = None) -> dict[str, Any]:
    """Of a run that began 10 s after noon; `ended` in seconds after noon."""
    started = None if status in ("NotStarted", "Queued") else "2026-11-21T12:00:10+00:00"
    end = None if ended is None else f"2026-11-21T12:{ended // 60:02}:{ended % 60:02}.5000000Z"
    return {
        "status": status,
        "startTimeUtc": started,
        "endTimeUtc": end,
        "error": {"error": {"code": "UserError", "message": message}} if message else None,
        "warnings": None,
    }
