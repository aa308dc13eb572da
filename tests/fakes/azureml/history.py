"""Run history and its neighbours at the region's API host, as far as both SDKs ask them."""

from __future__ import annotations

from typing import Any

from tests.fakes.azureml.arm import ArmService
from tests.fakes.azureml.blobs import Blobs
from tests.fakes.azureml.messages import Refusal, Reply, Request, Service, answer, on
from tests.fakes.azureml.records import Job, Records, iso, now
from tests.fakes.azureml.shipping import ARTIFACTS

WS = (
    "/subscriptions/{sub}/resourceGroups/{group}/providers"
    "/Microsoft.MachineLearningServices/workspaces/{ws}"
)
HISTORY = "/history/v1.0" + WS
SERVICES = (
    "api",
    "assetstore",
    "catalog",
    "content",
    "datastore",
    "environment",
    "execution",
    "experimentation",
    "history",
    "hyperdrive",
    "inferencing",
    "mlflow",
    "modelmanagement",
    "modelregistry",
    "pipelines",
    "telemetry",
)


class Discovery(Service):
    """Where the services of the region are: no token needed."""

    @on("GET", "/discovery")
    @on("GET", "/discovery/{rest*}")
    def discover(self, request: Request, rest: str = "") -> Reply:
        return answer(
            {**dict.fromkeys(SERVICES, f"https://{request.host}"), "studio": "https://ml.azure.com"}
        )


class History(ArmService):
    """Runs, with what they have come to."""

    @on("GET", HISTORY + "/runs/{name}/details")
    @on("GET", HISTORY + "/experiments/{experiment}/runs/{name}/details")
    def details(self, request: Request, name: str, **_: str) -> Reply:
        job = self._job(name)
        return answer(
            {
                "runId": job.name,
                "target": compute_of(job),
                "status": job.state,
                "startTimeUtc": iso(job.started),
                "endTimeUtc": iso(job.ended),
                "error": job.error,
                "warnings": [{"source": None, "message": each} for each in job.warnings],
                "properties": dict(job.properties),
                "inputDatasets": [],
                "outputDatasets": [],
                "runDefinition": job.run_configuration or definition_of(job),
                "logFiles": log_files(self.blobs, self.records, job),
                "jobCost": None,
                "revision": len(job.states),
                "runTypeV2": None,
                "settings": {},
                "computeRequest": {"nodeCount": job.spec.num_nodes} if job.spec else None,
                "compute": {"target": compute_of(job), "targetType": "amlctrain"},
                "createdBy": {"userObjectId": self.place.client_id, "userName": "stand-in"},
            }
        )

    @on("POST", HISTORY + "/rundata")
    def run_data(self, request: Request, **_: str) -> Reply:
        job = self._job(request.json["runId"])
        return answer(
            {"runMetadata": self.show(job), "runDefinition": None, "jobSpecification": None}
        )

    @on("GET", HISTORY + "/runs/{name}")
    @on("GET", HISTORY + "/experiments/{experiment}/runs/{name}")
    def run(self, request: Request, name: str, **_: str) -> Reply:
        return answer(self.show(self._job(name)))

    @on("PATCH", HISTORY + "/experiments/{experiment}/runs/{name}")
    def change(self, request: Request, name: str, **_: str) -> Reply:
        job, body = self._job(name), request.json
        job.tags |= body.get("tags") or {}
        job.properties |= body.get("properties") or {}
        return answer(self.show(job))

    @on("POST", HISTORY + "/experiments/{experiment}/runs/{name}/events")
    def add_event(self, request: Request, name: str, **_: str) -> Reply:
        job = self._job(name)
        if request.json["name"].endswith("Canceled") and not job.is_over:
            job.cancel.set()
            job.enter("CancelRequested")
        return answer({})

    @on("GET", HISTORY + "/experiments/{experiment}/runs/{name}/metricsingest/wait")
    def wait_for_metrics(self, request: Request, **_: str) -> Reply:
        return answer({})

    @on("POST", HISTORY + "/experiments/{experiment}/runs:query")
    def query(self, request: Request, experiment: str, **_: str) -> Reply:
        """Newest first, in pages; of filters only those by experiment count."""
        top = request.json.get("top") or 500
        at = int(request.json.get("continuationToken") or 0)
        found = [job for job in self.records.jobs_newest_first() if job.experiment == experiment]
        page: dict[str, Any] = {"value": [self.show(job) for job in found[at : at + top]]}
        if at + top < len(found):
            page["continuationToken"] = str(at + top)
        return answer(page)

    @on("GET", HISTORY + "/experiments")
    def experiments(self, request: Request, **_: str) -> Reply:
        names = dict.fromkeys(each.experiment for each in self.records.jobs_newest_first())
        return answer({"value": [_experiment(each) for each in names]})

    @on("GET", HISTORY + "/experiments/{experiment}")
    @on("POST", HISTORY + "/experiments/{experiment}")
    def experiment(self, request: Request, experiment: str, **_: str) -> Reply:
        return answer(_experiment(experiment))

    @on("GET", HISTORY + "/experimentids/{identity}")
    def experiment_by_id(self, request: Request, identity: str, **_: str) -> Reply:
        names = {
            experiment_id(job.experiment): job.experiment for job in self.records.jobs.values()
        }
        if identity not in names:
            raise Refusal(404, "UserError", f"Experiment {identity} was not found.")
        return answer(_experiment(names[identity]))

    def _job(self, name: str) -> Job:
        if name not in self.records.jobs:
            raise Refusal(404, "UserError", f"Run {name} was not found.")
        return self.records.jobs[name]

    def show(self, job: Job) -> dict[str, Any]:
        """A run as history shows it."""
        return {
            "runNumber": job.number,
            "rootRunId": job.name,
            "runId": job.name,
            "experimentId": experiment_id(job.experiment),
            "createdUtc": iso(job.created),
            "startTimeUtc": iso(job.started),
            "endTimeUtc": iso(job.ended),
            "createdBy": {"userObjectId": self.place.client_id, "userName": "stand-in"},
            "userId": self.place.client_id,
            "status": job.state,
            "parentRunId": None,
            "dataContainerId": f"dcid.{job.name}",
            "name": None,
            "displayName": job.body.get("displayName") or job.name,
            "description": None,
            "hidden": False,
            "runType": "azureml.scriptrun" if job.run_configuration else "azureml.commandjob",
            "scriptName": None,
            "target": compute_of(job),
            "properties": dict(job.properties),
            "tags": dict(job.tags),
            "error": job.error,
            "warnings": None,
            "cancelUri": None,
            "heartbeatEnabled": False,
            "diagnosticsUri": None,
            "inputs": {},
            "outputs": {},
            "token": None,
            "revision": len(job.states),
        }


def _experiment(name: str) -> dict[str, Any]:
    return {
        "experimentId": experiment_id(name),
        "name": name,
        "description": None,
        "createdUtc": iso(now()),
        "tags": {},
        "archivedTime": None,
        "retainForLifetimeOfWorkspace": False,
        "artifactLocation": None,
    }


def experiment_id(name: str) -> str:
    import uuid

    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def compute_of(job: Job) -> str:
    return job.spec.cluster if job.spec else job.body["computeId"].rpartition("/")[2]


def definition_of(job: Job) -> dict[str, Any]:
    return {"script": None, "command": job.body.get("command"), "target": compute_of(job)}


def log_files(blobs: Blobs, records: Records, job: Job) -> dict[str, str]:
    """Names to addresses that open for reading, of the logs that are there."""
    account = records.place.workspace_account
    # A log that is declared is shown once its blob is there.
    if job.spec is None:
        return {}
    there = set(blobs.names(account, ARTIFACTS, job.prefix))
    return {
        name.removeprefix(job.prefix): blobs.sas(account, ARTIFACTS, "r", name)
        for name in sorted(there)
        if name.removeprefix(job.prefix).split("/")[0]
        in {"user_logs", "system_logs", "azureml-logs"}
    }
