"""Ask one workspace through azureml-core: a process of its own environment, spoken to in lines."""

from __future__ import annotations

import atexit
import base64
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from jobs.blobs.credentials import MANAGEMENT_SCOPE
from jobs.blobs.refusals import FIREWALL_HINT, behind_firewall
from jobs.contracts.errors import EnvironmentFailure, Refused
from jobs.contracts.spec import Environment
from jobs.engines.azure_ml.client import ArmClient
from jobs.engines.azure_ml.refusals import CloudRefusal, Passing, explain
from jobs.engines.azure_ml_v1.run_configuration import V1Request
from jobs.engines.azure_ml_v1.sdk import sdk_python
from jobs.engines.azure_ml_v1.worker import bare

WORKER = Path(__file__).with_name("worker.py")
_OTHER_ENGINE = 'the engine azureml: `"engine": "azureml"` in the environment'


class Session:
    """Every method blocks on the network; raises CloudRefusal, or Refused for a private workspace.

    The process starts at the first question and ends with ours. May be used by several threads.
    """

    def __init__(self, environment: Environment, client: ArmClient) -> None:
        self._environment, self._client = environment, client
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._talk: IO[bytes] | None = None
        self._shown = ""  # the newest header that the process has got

    def open(self) -> None:
        """Start the process; raises what speaks against asking it at all."""
        with self._lock:
            self._started()

    def submit(self, request: V1Request, folder: Path) -> None:
        """Send the folder, then start the run; the same run again is refused by Azure ML."""
        what = f"submitting {request.run_id}"
        self._ask("submit", what=what, folder=str(folder), **msgspec.to_builtins(request))

    def details(self, run_id: str) -> dict[str, Any] | None:
        """Read a run's details from the run history, or None."""
        return self._ask("details", what=f"asking for the state of {run_id}", run_id=run_id)

    def cancel(self, run_id: str) -> None:
        """Cancel a run; silent where it is over or not there."""
        self._ask("cancel", what=f"cancelling {run_id}", run_id=run_id)

    def list(self, run_id: str, folder: str) -> list[tuple[str, int]]:
        """List names and sizes of a run's logs below a folder."""
        what = f"listing the logs of {run_id}"
        found = self._ask("list", what=what, run_id=run_id, folder=folder)
        return [(name, size) for name, size in found]

    def read(self, run_id: str, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Read ranges of logs, in their order; empty for missing logs."""
        what = f"reading the logs of {run_id}"
        found = self._ask("read", what=what, run_id=run_id, ranges=ranges)
        return [base64.b64decode(each) for each in found]

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            assert pipe
            with suppress(OSError):  # a question that a dead process did not read
                pipe.close()
        process.wait()
        if self._talk:
            self._talk.close()

    def _ask(self, do: str, *, what: str, **asked: Any) -> Any:
        with self._lock:
            process = self._started()
            answer = self._exchange(process, {"do": do, **asked})
            error = answer.get("error")
            # A token that ended early, or was taken back.
            is_refused = error is not None and error["status"] == 401
            if is_refused and self._client.tokens.renew(MANAGEMENT_SCOPE, self._shown):
                answer = self._exchange(process, {"do": do, **asked})
                error = answer.get("error")
        if error:
            raise self._refusal(error, what)
        return answer["result"]

    def _exchange(self, process: subprocess.Popen[bytes], request: dict[str, Any]) -> Any:
        assert process.stdin
        assert process.stdout
        said = request
        try:
            while True:
                process.stdin.write(msgspec.json.encode(said) + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
                if not line:
                    break
                answer = msgspec.json.decode(line)
                if "token" not in answer:
                    return answer
                self._shown = self._client.tokens.header(MANAGEMENT_SCOPE)
                said = {"token": self._shown.removeprefix("Bearer ")}
        except BrokenPipeError:
            pass
        except BaseException:
            # Cut off in between, it would answer the next question with this one's answer.
            process.kill()
            self.close()
            raise
        message = f"azureml-core's process ended: {self._last_words()}"
        self.close()
        raise EnvironmentFailure(message, hint="make setup-v1, then type the same again")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            python = sdk_python()
            self._refuse_private()
            names = _names(self._environment)
            self._talk = tempfile.TemporaryFile(prefix="trainyard-azureml-core-")  # noqa: SIM115
            # Isolated, so that no folder of ours is on its path. Ctrl-C is ours to hear.
            self._process = subprocess.Popen(
                [str(python), "-I", "-W", "ignore", str(WORKER), *names],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._talk,
                env=_worker_environment(),
                start_new_session=True,
            )
            atexit.register(self.close)
        return self._process

    def _refuse_private(self) -> None:
        """Behind a private endpoint azureml-core works only where the newer API is switched off."""
        found = self._client.get(self._client.workspace, what="looking at the workspace")[
            "properties"
        ]
        if found.get("publicNetworkAccess") != "Disabled" or found.get("v1LegacyMode"):
            return
        message = (
            f"workspace `{self._environment.workspace.name}` is private: behind a private endpoint "
            "azureml-core needs v1LegacyMode, which switches off the API that the engine azureml, "
            "the studio and our stacks use"
        )
        raise Refused(message, hint=_OTHER_ENGINE)

    def _refusal(self, error: dict[str, Any], what: str) -> CloudRefusal:
        status, text = error["status"], error["text"]
        if error["code"] == "AuthorizationFailure":
            message, code = f"{what}: {behind_firewall(error['host'])}", error["code"]
            return CloudRefusal(message, hint=FIREWALL_HINT, status=status, code=code, text=text)
        if status is not None:
            body = msgspec.json.encode({"error": {"code": error["code"], "message": text}})
            host = f"https://{error['host']}"
            return explain(status, body, environment=self._environment, what=what, host=host)
        message = f"{what}: azureml-core reports: {error['kind']}: {text}"
        told: dict[str, Any] = {"status": None, "code": error["kind"], "text": text}
        if error["silent"]:
            return Passing(message, hint=f"launch env check -s {self._environment.stack}", **told)
        return CloudRefusal(message, hint=f"it may work with {_OTHER_ENGINE}", **told)

    def _last_words(self) -> str:
        assert self._talk
        self._talk.seek(0)
        lines = self._talk.read().decode(errors="replace").strip().splitlines()
        return bare(lines[-1]) if lines else "it printed nothing"


def _names(environment: Environment) -> tuple[str, str, str]:
    parts = environment.workspace.id.strip("/").split("/")
    return parts[1], parts[3], environment.workspace.name


def _worker_environment() -> dict[str, str]:
    """Make the process's variables: ours, without what logs in, as tokens come from us."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AZURE_")}
