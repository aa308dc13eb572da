"""Send a run to a workspace: its code, its image's version and its job, each as often as needed."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from jobs.contracts.spec import JobSpec, Plan, RunRecord
from jobs.engines.azure_ml.client import ArmClient
from jobs.engines.azure_ml.code_listing import Code
from jobs.engines.azure_ml.image_versions import version_for
from jobs.engines.azure_ml.request import plan_job, read_request, run_request
from jobs.engines.azure_ml.uploads import NotCompared, UploadCache, send_version, upload
from jobs.host import console
from jobs.runs.cloud_folder import workspace_folder


class Sender(Protocol):
    """API by which a run is sent; what talks to Azure raises CloudRefusal.

    `copy` is the run's own copy of its code: the user may be writing his already.
    """

    @property
    def client(self) -> ArmClient:
        """Client of the workspace."""
        ...

    def plan(self, spec: JobSpec) -> Plan:
        """Plan a job."""
        ...

    def request(self, spec: JobSpec, run: str, code: str) -> msgspec.Raw:
        """Encode the request that goes into the run's record; `code` is the name of its code."""
        ...

    def provide(self, record: RunRecord, code: Code, copy: Path) -> None:
        """Upload the code and images of a job, unless the workspace has them."""
        ...

    def put(self, record: RunRecord, code: Code, copy: Path) -> None:
        """Start the job."""
        ...

    def is_there(self, record: RunRecord) -> bool:
        """Tell whether Azure ML has the job."""
        ...

    def provide_missing(self, record: RunRecord, code: Code, copy: Path) -> bool:
        """Upload cached uploads again that the workspace has lost; tell whether there were any."""
        ...


class JobSender:
    """Sends command jobs through Resource Manager."""

    def __init__(self, client: ArmClient) -> None:
        self.client = client
        self._environment = client.environment
        self._cache = UploadCache(workspace_folder(client.environment))

    def plan(self, spec: JobSpec) -> Plan:
        """Plan a job; see `Sender.plan`."""
        return plan_job(spec, self._environment)

    def request(self, spec: JobSpec, run: str, code: str) -> msgspec.Raw:
        """Encode the requests that `put` and `provide` send; see `Sender.request`."""
        request = run_request(spec, self._environment, run=run, code=code)
        return msgspec.Raw(msgspec.json.encode(request))

    def provide(self, record: RunRecord, code: Code, copy: Path) -> None:
        """Upload the code and name the image's version, unless cached as uploaded."""
        if not self._cache.has(code.listing.name):
            self._send_code(code, copy)
            self._cache.add(code.listing.name)
        name, spec = _image_name(record), record.plan.spec
        if not self._cache.has(name):
            send_version(version_for(spec, self._environment), spec, self.client)
            self._cache.add(name)

    def put(self, record: RunRecord, code: Code, copy: Path) -> None:
        """Send the job; see `Sender.put`."""
        del code, copy
        job = read_request(record.plan).job
        what = f"submitting {record.id}"
        self.client.put(job.path, job.body, api_version=job.api_version, what=what)

    def is_there(self, record: RunRecord) -> bool:
        """Tell whether Azure ML has the job; see `Sender.is_there`."""
        return self.client.find(read_request(record.plan).job.path) is not None

    def provide_missing(self, record: RunRecord, code: Code, copy: Path) -> bool:
        """Upload again what was cached as uploaded and is gone; see `Sender.provide_missing`."""
        request = read_request(record.plan)
        paths = {
            code.listing.name: request.job.body.properties.code_id,
            _image_name(record): request.environment.path,
        }
        gone = [name for name, path in paths.items() if self.client.find(path) is None]
        for name in gone:
            self._cache.forget(name)
        if gone:
            self.provide(record, code, copy)
        return bool(gone)

    def _send_code(self, code: Code, copy: Path) -> None:
        files = [msgspec.structs.replace(each, path=copy / each.name) for each in code.files]
        try:
            upload(self.client, code.listing.name, files, code.made, what="sending the code")
        except NotCompared as error:
            console.warn(f"{error.message}; the nodes compare it")


def _image_name(record: RunRecord) -> str:
    """Make a file's name for the version of an image."""
    _, name, _, version = read_request(record.plan).environment.path.rsplit("/", 3)
    return f"{name}.{version}"
