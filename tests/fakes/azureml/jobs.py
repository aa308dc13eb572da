"""Resource Manager: jobs. What is PUT is judged, kept and handed to the runner."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.fakes.azureml.arm import HOST, LOCATION, WS, ArmService, check_body, not_found
from tests.fakes.azureml.blobs import SUFFIX, Blobs
from tests.fakes.azureml.messages import Refusal, Reply, Request, answer, on
from tests.fakes.azureml.records import Job, Records, now, seconds_of, system_data
from tests.fakes.azureml.specs import Launch, Link, Spec
from tests.fakes.azureml.tokens import Tokens
from tests.fakes.deviations import Deviation

PAGE = 100
# What a second PUT of a job may change.
MUTABLE = ("description", "displayName", "tags", "isArchived", "properties")
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,254}")


class Jobs(ArmService):
    """Command jobs by name."""

    def __init__(
        self, records: Records, tokens: Tokens, blobs: Blobs, start: Callable[[Job], None]
    ) -> None:
        super().__init__(records, tokens, blobs)
        self._start = start

    @on("PUT", WS + "/jobs/{name}")
    def put(self, request: Request, name: str, **_: str) -> Reply:
        body = check_body("job", request)["properties"]
        if not NAME.fullmatch(name):
            raise Refusal(400, "UserError", f"Job name {name} is invalid.")
        kept = self.records.jobs.get(name)
        if kept is not None:
            if Deviation.PUT_BEGINS_AGAIN in self.records.deviations:
                kept.created = now()  # seen of a job that begins again; what runs goes on
            return self._update(kept, body)
        spec = self._spec(body)
        job = Job(name=name, number=len(self.records.jobs) + 1, body=body, spec=spec)
        job.experiment = body.get("experimentName") or "Default"
        job.tags, job.properties = dict(body.get("tags") or {}), dict(body.get("properties") or {})
        self.records.jobs[name] = job
        self._start(job)
        return answer(self.show(job), 201)

    def _update(self, job: Job, body: dict[str, Any]) -> Reply:
        """The same again is no second job; another under its name is refused.

        What Azure shows of a job may be sent back, as the SDK's archive does.
        """
        shown = self.show(job)["properties"]
        for key in {*job.body, *body} - set(MUTABLE):
            if body.get(key) not in (job.body.get(key), shown.get(key)):
                message = (
                    "A job with this name already exists. If you are trying to submit a new job, "
                    "use a different name. If you are trying to update an existing job, the "
                    f"existing job's {key} cannot be changed. Only description, displayName, tags, "
                    "and isArchived can be updated."
                )
                raise Refusal(400, "UserError", message)
        job.body |= {key: body[key] for key in MUTABLE if key in body}
        job.tags = dict(job.body.get("tags") or {})
        return answer(self.show(job))

    @on("GET", WS + "/jobs")
    def list_jobs(self, request: Request, **_: str) -> Reply:
        """Newest first, in pages."""
        query = request.query
        wanted_tag, _, value = query.get("tag", "").partition("=")
        found = [
            job
            for job in self.records.jobs_newest_first()
            if not wanted_tag or (wanted_tag in job.tags and value in {"", job.tags[wanted_tag]})
        ]
        if query.get("listViewType", "ActiveOnly") != "All":
            archived = query.get("listViewType") == "ArchivedOnly"
            found = [job for job in found if bool(job.body.get("isArchived")) == archived]
        if Deviation.OLDEST_FIRST in self.records.deviations:
            found.reverse()
        at = int(query.get("$skip") or 0)
        page: dict[str, Any] = {"value": [self.show(job) for job in found[at : at + PAGE]]}
        if at + PAGE < len(found):
            kept = "&".join(f"{key}={each}" for key, each in query.items() if key != "$skip")
            page["nextLink"] = f"https://{HOST}{request.path}?{kept}&$skip={at + PAGE}"
        return answer(page)

    @on("GET", WS + "/jobs/{name}")
    def get(self, request: Request, name: str, **_: str) -> Reply:
        return answer(self.show(self._job(name)))

    @on("POST", WS + "/jobs/{name}/cancel")
    def cancel(self, request: Request, name: str, **_: str) -> Reply:
        job = self._job(name)
        if job.is_over:
            return Reply(status=200)
        job.cancel.set()
        if job.state != "CancelRequested":
            job.enter("CancelRequested")
        location = LOCATION.format(sub=self.place.subscription_id, location=self.place.location)
        where = (
            f"https://{HOST}{location}/mfeOperationResults/jc:{self.place.workspace_guid}:{name}"
        )
        where += f"?api-version={request.query.get('api-version')}"
        return Reply(status=202, headers={"Location": where, "Retry-After": "0"})

    @on("GET", LOCATION + "/mfeOperationResults/jc:{guid}:{name}")
    def cancelled(self, request: Request, name: str, **_: str) -> Reply:
        if self._job(name).is_over:
            return Reply(status=200)
        where = f"https://{HOST}{request.target}"
        return Reply(status=202, headers={"Location": where, "Retry-After": "1"})

    def _job(self, name: str) -> Job:
        if name not in self.records.jobs:
            raise not_found("Job", name)
        return self.records.jobs[name]

    def show(self, job: Job) -> dict[str, Any]:
        """As Azure shows a job."""
        runs = f"https://ml.azure.com/runs/{job.name}?wsid={self.place.workspace_id}"
        services = {
            "Tracking": {
                "jobServiceType": "Tracking",
                "endpoint": f"azureml://{self.place.api}/mlflow/v1.0{self.place.workspace_id}?",
            },
            "Studio": {"jobServiceType": "Studio", "endpoint": runs},
        }
        outputs = dict(job.body.get("outputs") or {})
        uri = f"azureml://datastores/workspaceartifactstore/{job.prefix.rstrip('/')}"
        outputs["default"] = {"jobOutputType": "uri_folder", "mode": "ReadWriteMount", "uri": uri}
        return {
            "id": f"{self.place.workspace_id}/jobs/{job.name}",
            "name": job.name,
            "type": "Microsoft.MachineLearningServices/workspaces/jobs",
            "properties": {
                **job.body,
                "displayName": job.body.get("displayName") or job.name,
                "experimentName": job.experiment,
                "isArchived": bool(job.body.get("isArchived")),
                "status": job.state,
                "tags": job.tags,
                "properties": {**job.properties, "_azureml.ComputeTargetType": "amlctrain"},
                "services": services,
                "outputs": outputs,
            },
            "systemData": system_data(job.created),
        }

    # --- From a body to what the runner needs ------------------------------------------------

    def _spec(self, body: dict[str, Any]) -> Spec:
        if body["jobType"] != "Command":
            raise Refusal(400, "UserError", f"The stand-in runs no {body['jobType']} jobs.")
        resources, limits = body.get("resources") or {}, body.get("limits") or {}
        environment = self._version("environments", body["environmentId"])
        build = environment.get("build")
        return Spec(
            command=body["command"],
            code=self._code(body.get("codeId")),
            image=environment.get("image") or body["environmentId"],
            build=self._link(build["contextUri"]) if build else None,
            cluster=self._cluster(body.get("computeId")),
            num_nodes=resources.get("instanceCount") or 1,
            launch=self._launch(body.get("distribution"), resources.get("instanceCount") or 1),
            env={key: str(each) for key, each in (body.get("environmentVariables") or {}).items()},
            inputs={
                key: self._input(key, each) for key, each in (body.get("inputs") or {}).items()
            },
            outputs={
                key: self._output(key, each) for key, each in (body.get("outputs") or {}).items()
            },
            timeout_s=seconds_of(limits["timeout"]) if limits.get("timeout") else None,
            is_user=(body.get("identity") or {}).get("identityType") == "UserIdentity",
        )

    def _launch(self, distribution: dict[str, Any] | None, num_nodes: int) -> Launch:
        if not distribution:
            return Launch()
        kind = distribution["distributionType"]
        if kind == "TensorFlow":
            return Launch(
                kind=kind,
                num_processes=distribution.get("workerCount") or num_nodes,
                num_servers=distribution.get("parameterServerCount") or 0,
            )
        per_node = distribution.get("processCountPerInstance") or 1
        return Launch(kind=kind, num_processes=num_nodes * per_node)

    def _cluster(self, compute_id: str | None) -> str:
        name = (compute_id or "").rpartition("/computes/")[2]
        if name not in self.records.clusters:
            raise Refusal(400, "UserError", f"Compute {compute_id} was not found.")
        return name

    def _code(self, code_id: str | None) -> Link | None:
        if not code_id:
            return None
        return self._link(self._version("codes", code_id)["codeUri"])

    def _version(self, folder: str, asset_id: str) -> dict[str, Any]:
        """The properties of a version that a job names by its whole id."""
        wanted = rf".*/{folder}/([^/]+)/versions/([^/]+)"
        found = re.fullmatch(wanted, asset_id.removeprefix("azureml:"), re.IGNORECASE)
        kept = getattr(self.records, folder).get(found.groups()) if found else None
        if kept is None:
            raise Refusal(400, "UserError", f"{asset_id} was not found.")
        return kept["properties"]

    def _input(self, name: str, value: dict[str, Any]) -> Link | str:
        if value["jobInputType"] == "literal":
            return str(value["value"])
        uri = value["uri"]
        if re.search(r"/data/[^/]+/versions/", uri):
            uri = self._version("data", uri)["dataUri"]
        mode = value.get("mode") or "ReadOnlyMount"
        return self._link(uri, mode=mode, is_file=value["jobInputType"] == "uri_file")

    def _output(self, name: str, value: dict[str, Any]) -> Link:
        default = f"azureml://datastores/workspaceblobstore/paths/azureml/{{run}}/{name}/"
        mode = value.get("mode") or "ReadWriteMount"
        return self._link(value.get("uri") or default, mode=mode)

    def _link(self, uri: str, *, mode: str = "Download", is_file: bool = False) -> Link:
        """Where a URI points to."""
        if found := re.fullmatch(rf"https://([^./]+){re.escape(SUFFIX)}/([^/?]+)/?([^?]*)", uri):
            account, container, path = found.groups()
        elif found := re.fullmatch(r"azureml://(?:.*/)?datastores/([^/]+)/paths/(.*)", uri):
            store = self.records.datastores.get(found[1])
            if store is None:
                raise Refusal(400, "UserError", f"Datastore {found[1]} was not found.")
            account, container, path = store["accountName"], store["containerName"], found[2]
        else:
            raise Refusal(400, "UserError", f"{uri} names nothing that can be reached.")
        return Link(
            account=account, container=container, path=path, mode=mode, uri=uri, is_file=is_file
        )
