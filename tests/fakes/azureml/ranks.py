"""Puts jobs to the stand-in whose ranks rank/main.py starts, and reads what their nodes have brought."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from azure.core.exceptions import ResourceNotFoundError

from jobs.contracts.spec import Environment
from jobs.engines.azure_ml.code_listing import code_name, list_file
from jobs.engines.azure_ml.node_job import SNAPSHOT_FILE, node_command, snapshot_file
from jobs.engines.azure_ml.request import job_request
from jobs.rank.code import LIST_FILE, SHAPE_FILE
from tests.busy import Bound
from tests.fakes.azureml.client import Client
from tests.fakes.azureml.fake import FakeAzure
from tests.fakes.azureml.records import Job
from tests.fakes.gangs import make_spec

CLUSTER = "cpu"


class Ranks:
    """Jobs of `program.py`, one run each."""

    def __init__(self, azure: FakeAzure, folder: Path) -> None:
        self.azure = azure
        self.client = Client(azure)
        self.environment = msgspec.convert(azure.environment(), Environment)
        self._folder = folder
        self._codes: dict[str, str] = {}

    def put(
        self,
        program: str,
        *,
        attempt: int = 1,
        run: str = "",
        shape: dict[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """Submit a job that runs this Python text; gives the run's name.

        `shape` is what is to be said of links, modes and empty folders of the code.
        """
        run = run or f"run-{secrets.token_hex(4)}"
        cluster = self.environment.clusters[CLUSTER]
        settings = {"compute": cluster.compute, "image": "python:3", "processes_per_node": 1}
        spec = make_spec(["python", "program.py"], **{**settings, **changes})
        files = {"program.py": program}
        if shape is not None:
            files[SHAPE_FILE] = json.dumps(shape)
        made = made_for({name: content.encode() for name, content in files.items()})
        request = job_request(
            spec,
            self.environment,
            run=run,
            code_id=self._put_code(files, made),
            image_id=self.client.put_environment(spec.image),
            command=node_command(spec, code_name(made[LIST_FILE])),
            attempt=attempt,
        )
        below = request.path.removeprefix(self.environment.workspace.id)
        answer = self.client.ask("PUT", below, msgspec.to_builtins(request.body))
        assert answer.status_code == 201, answer.text
        return run

    def finish(self, program: str, **changes: Any) -> tuple[str, Job]:
        """Do so, and wait for its end."""
        run = self.put(program, **changes)
        return run, self.azure.wait(run)

    def _put_code(self, files: dict[str, str], made: dict[str, bytes]) -> str:
        key = json.dumps(files)
        if key not in self._codes:
            code = self.client.put_code(files)
            below = code.removeprefix(self.environment.workspace.id)
            address = self.client.ask("GET", below).json()["properties"]["codeUri"]
            host, _, place = address.removeprefix("https://").partition("/")
            container, _, prefix = place.partition("/")
            store = self.azure.blobs.open(host.partition(".")[0], container)
            for name, content in made.items():
                target = f"{prefix.strip('/')}/{name}".lstrip("/")
                store.upload_blob(target, content, overwrite=True)
            self._codes[key] = code
        return self._codes[key]

    def log(self, job: str, name: str = "std_log_process_0.txt") -> list[str]:
        """The lines of a rank's log, without their stamps."""
        lines = self.client.log(job, f"user_logs/{name}").splitlines()
        return [line.split(" ", 1)[1] for line in lines]

    def blob(self, name: str) -> bytes:
        """What lies in the container `runs`."""
        runs = self.azure.blobs.open(self.azure.place.data_account, "runs")
        return runs.download_blob(name).readall()

    def names(self, prefix: str) -> list[str]:
        return sorted(self.azure.blobs.names(self.azure.place.data_account, "runs", prefix))

    def artifacts(self, job: str) -> list[str]:
        """What Azure ML has brought by itself."""
        account = self.azure.place.workspace_account
        return list(self.azure.blobs.names(account, "azureml", f"ExperimentRun/dcid.{job}/"))

    def wait_for_line(self, run: str, line: str) -> None:
        """Block until a rank has written a line."""
        bound = Bound(300)
        while True:
            try:
                if line in self.log(run):
                    return
            except ResourceNotFoundError:
                pass
            bound.check(f"{run} never wrote {line!r}")
            time.sleep(0.1)

    def record(self, run: str, rank: int = 0, attempt: int = 1) -> dict[str, Any]:
        """How a rank ended."""
        return json.loads(self.blob(f"{run}/ranks/{attempt}/{rank:05d}.json"))


def made_for(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What `launch` puts beside these files: what starts a rank, and the list of all of them."""
    made = {SNAPSHOT_FILE: snapshot_file()}
    digests = {name: sha256(content).digest() for name, content in {**files, **made}.items()}
    return {**made, LIST_FILE: list_file(digests)}


def lay_code(folder: Path) -> str:
    """Put that beside the files of a folder; gives the code's name."""
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] != ".trainyard"
    }
    made = made_for(files)
    for name, content in made.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return code_name(made[LIST_FILE])
