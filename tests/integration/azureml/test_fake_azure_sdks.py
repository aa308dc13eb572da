"""The stand-in Azure is held to what Azure's own SDKs send and accept."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.busy import HANG_S
from tests.fakes.azureml import FakeAzure

HERE = Path(__file__).parent
TRAIN = """\
import os, sys, time
from pathlib import Path
rank = os.environ["OMPI_COMM_WORLD_RANK"]
local = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]
print("rank", rank, "local", local, os.environ["GREETING"], flush=True)
Path("outputs", f"rank-{rank}.txt").write_text(rank)
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""
LOGS = {
    "user_logs/std_log_process_0.txt": "rank 0 local 0 hello\n",
    "user_logs/std_log_process_1.txt": "rank 1 local 0 hello\n",
}
FILES = {
    "outputs/rank-0.txt": "0",
    "outputs/rank-1.txt": "1",
    "system_logs/lifecycler/lifecycler.log": "Job is being prepared on the node.\n",
    **LOGS,
}
GUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# What a first submit of one file is, by azureml-wire.md's table; then one of the same folder.
FIRST_SUBMIT = [
    "GET /codes/GUID/versions",
    "POST /codes/GUID/versions/1/startPendingUpload",
    "HEAD blob train.py",
    "PUT blob train.py",
    "PUT blob train.py",
    "PUT /codes/GUID/versions/1",
    "PUT /environments/CliV2AnonymousEnvironment/versions/HASH",
    "PUT /jobs/sdk-first",
]
SECOND_SUBMIT = [
    "GET /codes/GUID/versions",
    "GET /codes/GUID/versions/1",
    "PUT /environments/CliV2AnonymousEnvironment/versions/HASH",
    "PUT /jobs/sdk-second",
]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    return folder


def run_session(python: Path, program: str, azure: FakeAzure, code: Path) -> dict[str, Any]:
    """What a session saw."""
    ended = subprocess.run(
        [
            *(str(python), "-W", "ignore", str(HERE / program)),
            *(azure.place.workspace_id, "cpu-1a2b3c", str(code)),
            *(str(code.parent / "downloads"), str(code.parent / "shown")),
        ],
        env=azure.environ,
        cwd=code.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_azure_ai_ml_submits_streams_downloads_and_cancels(
    tmp_path: Path, code: Path, runtimes: dict[str, Path], sdk_python: Callable[[str], Path]
) -> None:
    python = sdk_python("azure_ai_ml")
    # Its `jobs.stream` fails without an account key.
    with FakeAzure(tmp_path / "azure", runtimes=runtimes, datastores="account key") as azure:
        seen = run_session(python, "azure_ai_ml_session.py", azure, code)
        sent = _sent(azure)
    assert seen == {
        "workspace": azure.place.workspace_id,
        "first": "NotStarted",
        "streamed": ["rank 0 local 0 hello"],
        "listed": ["sdk-first"],
        "downloaded": FILES,
        "statuses": ["Completed", "Canceled"],
        "computes": [["cpu-1a2b3c", 1, 3]],
        "nodes": 2,
        "usages": 15,
    }
    end = sent.index("PUT /jobs/sdk-first") + 1
    assert sent[end - len(FIRST_SUBMIT) : end] == FIRST_SUBMIT
    end = sent.index("PUT /jobs/sdk-second") + 1
    assert sent[end - len(SECOND_SUBMIT) : end] == SECOND_SUBMIT


def test_azureml_core_submits_follows_downloads_and_cancels(
    tmp_path: Path, code: Path, runtimes: dict[str, Path], sdk_python: Callable[[str], Path]
) -> None:
    python = sdk_python("azureml_core")
    with FakeAzure(tmp_path / "azure", runtimes=runtimes) as azure:
        seen = run_session(python, "azureml_core_session.py", azure, code)
    assert seen == {
        "datastore": "workspaceblobstore",
        "computes": [["cpu-1a2b3c", "Standard_DS3_v2"]],
        "streamed": ["rank 0 local 0 hello"],
        "files": sorted(FILES),
        "downloaded": FILES,
        "statuses": ["Completed", "Canceled"],
        "tags": {"made": "by-sdk"},
        "logs": sorted(FILES.keys() - {"outputs/rank-0.txt", "outputs/rank-1.txt"}),
        "runs": [False, True],
        "again": "Completed",
    }


def _sent(azure: FakeAzure) -> list[str]:
    """All requests but for tokens, shortened to what matters."""
    short = []
    for request in azure.requests():
        path = request.path.removeprefix(azure.place.workspace_id)
        if ".blob." in request.host:
            path = f" blob {path.rpartition('/')[2]}"
        elif request.host.startswith("login."):
            continue
        path = re.sub(GUID, "GUID", path)
        path = re.sub(r"(Environment/versions/)\w+", r"\1HASH", path)
        short.append(f"{request.method}{'' if path.startswith(' ') else ' '}{path}")
    return short
