"""Answer requests of `launch` by azureml-core; runs in azureml-core's own environment.

`python worker.py SUBSCRIPTION RESOURCE_GROUP WORKSPACE`. Requests come on stdin, one JSON object a
line; each is answered on stdout by {"result": ...} or {"error": {...}}. In between it may ask for a
token, {"token": true}, and reads the answer as a line, too. It ends when its stdin does. All that
azureml-core prints goes to stderr. It imports nothing of this project.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

NUM_THREADS = 16
TIMEOUT_S = 60
_OVER = {"Completed", "Failed", "Canceled"}


class Line:
    """The way to `launch`."""

    def __init__(self) -> None:
        # What others print must not get between our lines.
        self._out: Any = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        # Between a request and its answer `launch` listens, and only then.
        self._turn = threading.Condition()
        self._is_asked = False

    def read(self) -> Any:
        """Read the next request; None at the end."""
        request = self._read()
        with self._turn:
            self._is_asked = True
            self._turn.notify_all()
        return request

    def answer(self, said: dict[str, Any]) -> None:
        """Answer the request."""
        with self._turn:
            self._is_asked = False
            self._write(said)

    def token(self, _audience: str) -> str:
        """Get a token of the logged-in identity; between requests a thread waits for the next one."""
        with self._turn:
            self._turn.wait_for(lambda: self._is_asked)
            self._write({"token": True})
            answer: dict[str, Any] = self._read() or {}
            return str(answer["token"])

    def _read(self) -> Any:
        text = sys.stdin.readline()
        return json.loads(text) if text else None

    def _write(self, said: dict[str, Any]) -> None:
        self._out.write(json.dumps(said) + "\n")
        self._out.flush()


class Worker:
    """One workspace, opened at the first request."""

    def __init__(self, line: Line, subscription: str, group: str, name: str) -> None:
        self._line = line
        self._names = {"name": name, "subscription_id": subscription, "resource_group": group}
        self._workspace: Any = None
        self._runs: dict[str, Any] = {}
        self._addresses: dict[tuple[str, str], str] = {}
        self._pool = ThreadPoolExecutor(NUM_THREADS)
        self._http: Any = None

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer one request."""
        asked: dict[str, Any] = {name: each for name, each in request.items() if name != "do"}
        return getattr(self, f"do_{request['do']}")(**asked)

    def do_submit(
        self,
        run_id: str,
        folder: str,
        experiment: str,
        tags: dict[str, str],
        configuration: dict[str, Any],
    ) -> None:
        """Send the folder and start the run."""
        core = import_module("azureml.core")
        # It would send this machine's system and Python with each run.
        commands: Any = import_module("azureml._execution._commands")
        commands._get_telemetry_values = no_telemetry  # noqa: SLF001
        script = make_script(folder, configuration)
        core.Experiment(self._open(), experiment).submit(script, tags=tags, run_id=run_id)

    def do_details(self, run_id: str) -> dict[str, Any] | None:
        """Read a run's details from the run history; None if it has no such run."""
        run = self._find(run_id)
        if run is None:
            return None
        details = run.get_details()
        for name, address in details.pop("logFiles", {}).items():
            self._addresses[run_id, name] = address
        wanted = ("status", "startTimeUtc", "endTimeUtc", "error", "warnings")
        return {name: details.get(name) for name in wanted}

    def do_list(self, run_id: str, folder: str) -> list[list[Any]]:
        """List names and sizes of the logs below a folder."""
        self.do_details(run_id)
        names = sorted(
            name for run, name in self._addresses if run == run_id and name.startswith(folder)
        )
        sizes = self._pool.map(partial(self._size, run_id), names)
        found = zip(names, sizes, strict=True)
        return [[name, size] for name, size in found if size is not None]

    def do_read(self, run_id: str, ranges: list[list[Any]]) -> list[str]:
        """Read ranges of logs, the end not among them; nothing where a log or a range is not there."""
        return list(self._pool.map(partial(self._read, run_id), ranges))

    def do_cancel(self, run_id: str) -> None:
        """End the run; one that is over stays as it is."""
        self._runs.pop(run_id, None)
        run = self._find(run_id)
        if run is not None and run.status not in _OVER:
            run.cancel()

    def _open(self) -> Any:
        if self._workspace is None:
            core = import_module("azureml.core")
            authentication = import_module("azureml.core.authentication")
            auth = authentication.TokenAuthentication(self._line.token)
            self._workspace = core.Workspace.get(auth=auth, **self._names)
        return self._workspace

    def _find(self, run_id: str) -> Any:
        if run_id not in self._runs:
            try:
                run = import_module("azureml.core").Run.get(self._open(), run_id)
            except Exception as error:
                if self._workspace is not None and describe(error)["status"] == 404:
                    return None
                raise
            self._runs[run_id] = run
        return self._runs[run_id]

    def _size(self, run_id: str, name: str) -> int | None:
        answer = self._ask("HEAD", run_id, name, {})
        return int(answer.headers["Content-Length"]) if answer.status_code == 200 else None

    def _read(self, run_id: str, wanted: list[Any]) -> str:
        name, start, end = wanted
        if start >= end:
            return ""
        answer = self._ask("GET", run_id, name, {"Range": f"bytes={start}-{end - 1}"})
        if answer.status_code in {404, 416}:
            return ""
        answer.raise_for_status()
        return base64.b64encode(answer.content).decode()

    def _ask(self, method: str, run_id: str, name: str, headers: dict[str, str]) -> Any:
        if self._http is None:
            requests = import_module("requests")
            self._http = requests.Session()
            adapter = requests.adapters.HTTPAdapter(pool_maxsize=NUM_THREADS, max_retries=3)
            self._http.mount("https://", adapter)
        address = self._addresses[run_id, name]
        # Packed content would hide its size.
        plain = {"Accept-Encoding": "identity", **headers}
        return self._http.request(method, address, headers=plain, timeout=TIMEOUT_S)


def make_script(folder: str, wanted: dict[str, Any]) -> Any:
    """Build the ScriptRunConfig of what jobs/engines/azure_ml_v1/run_configuration.py decided."""
    core, config = import_module("azureml.core"), import_module("azureml.core.runconfig")
    image = core.Environment(wanted["image_name"])
    image.docker.base_image = wanted["image"]
    # With dependencies of its own nothing is built on top of it.
    image.python.user_managed_dependencies = True
    image.environment_variables = {}
    spread = wanted["distribution"]
    made = core.ScriptRunConfig(
        folder,
        command=wanted["command"],
        compute_target=wanted["target"],
        environment=image,
        distributed_job_config=getattr(config, spread["kind"])(*spread["arguments"])
        if spread
        else None,
        docker_runtime_config=config.DockerConfiguration(
            use_docker=True, shm_size=wanted["shm_size"]
        ),
        max_run_duration_seconds=wanted["max_run_duration_seconds"],
    )

    def location(given: dict[str, Any]) -> Any:
        path = config.DataPath(given["datastore"], given["path"])
        return config.DataLocation(data_path=path)

    made.run_config.environment_variables = wanted["environment_variables"]
    made.run_config.data = {
        name: config.Data(
            data_location=location(each),
            create_output_directories=False,
            mechanism=each["mechanism"],
            environment_variable_name=name,
        )
        for name, each in wanted["inputs"].items()
    }
    made.run_config.output_data = {
        name: config.OutputData(
            output_location=location(each),
            mechanism=each["mechanism"],
            additional_options=config.OutputOptions(
                registration_options=config.RegistrationOptions(
                    dataset_registration_options=config.DatasetRegistrationOptions()
                ),
                mount_options=config.MountOptions(disable_metadata_cache=False),
            ),
        )
        for name, each in wanted["outputs"].items()
    }
    return made


def no_telemetry(given: dict[str, Any] | None) -> dict[str, Any]:
    """Give the optional values of a run that were set."""
    return dict(given or {})


def describe(error: BaseException) -> dict[str, Any]:
    """Describe an error of azureml-core: HTTP status, whose answer, a code, one line.

    `silent` is whether there was no answer, for the network's sake.
    """
    seen: BaseException | None = error
    status, host, code, text, is_silent = None, "", "", "", False
    while seen is not None:
        is_silent = is_silent or _is_of_network(seen)
        # Of an OSError the first one is a number.
        said = str(getattr(seen, "message", "") or next(_not_numbers(seen.args), ""))
        found = _of_response(getattr(seen, "response", None)) or _of_message(said)
        if found is not None and status is None:
            status, host, code, text = *found[:3], found[3] or found[2] or "no reason given"
        text = text or said
        inner = getattr(seen, "inner_exception", None)
        # Some carry the answer there, and not an exception.
        seen = inner if isinstance(inner, BaseException) else seen.__cause__ or seen.__context__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kind = type(error).__name__
    line = lines[0] if lines else kind
    told = {"kind": kind, "status": status, "host": host, "code": code, "text": bare(line)}
    return {**told, "silent": is_silent and status is None}


def _is_of_network(error: BaseException) -> bool:
    """Tell whether an error is of the network: an OSError that names no file."""
    if isinstance(error, OSError):
        return error.filename is None
    return type(error).__module__.partition(".")[0] in {"http", "requests", "urllib3"}


def _not_numbers(args: tuple[Any, ...]) -> Iterator[Any]:
    return (each for each in args if not isinstance(each, int))


def bare(text: str) -> str:
    """Cut the queries of a text's addresses, as some contain credentials."""
    return re.sub(r"\?[^\s'\")>]+", "?...", text)


def _of_response(response: Any) -> tuple[int, str, str, str] | None:
    status = getattr(response, "status_code", None)
    if status is None:
        return None
    try:
        body = json.loads(response.content)
    except (AttributeError, TypeError, ValueError):
        body = None
    # Storage says it there, and in XML.
    code = str(getattr(response, "headers", {}).get("x-ms-error-code") or "")
    found, text = _of_body(body)
    address = getattr(response, "url", "") or getattr(response.request, "url", "")
    return status, _host(address), found or code, text


def _of_message(text: str) -> tuple[int, str, str, str] | None:
    """Some messages are JSON: address, status and the answer's body."""
    try:
        told = json.loads(text)
        host = _host(told.get("url"))
        return told["status_code"], host, *_of_body(told.get("error_details"))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _of_body(body: Any) -> tuple[str, str]:
    try:
        return str(body["error"].get("code") or ""), str(body["error"].get("message") or "")
    except (AttributeError, KeyError, TypeError):
        return "", str(body or "")


def _host(address: Any) -> str:
    """Cut an address to its host: the rest may open something."""
    return urlsplit(str(address or "")).netloc


def main() -> int:
    """Answer until the input ends."""
    line = Line()
    worker = Worker(line, *sys.argv[1:4])
    while (request := line.read()) is not None:
        try:
            said = {"result": worker.answer(request)}
        except Exception as error:  # noqa: BLE001 (the edge of this process)
            said = {"error": describe(error)}
        line.answer(said)
    # Threads of azureml-core may go on for minutes.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
