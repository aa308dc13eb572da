"""Starts a run through azureml-core: as safely as the engine azureml, by the same steps."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from jobs.contracts.spec import JobSpec, Plan, RunRecord
from jobs.engines.azure_ml.client import ArmClient
from jobs.engines.azure_ml.code_listing import IGNORE_FILE, Code
from jobs.engines.azure_ml_v1.run_configuration import plan_run, read_request, v1_request
from jobs.engines.azure_ml_v1.session import Session


class V1Sender:
    """Sends runs through azureml-core, which takes code and image with the run."""

    def __init__(self, client: ArmClient, session: Session) -> None:
        self.client = client
        self._session = session

    def plan(self, spec: JobSpec) -> Plan:
        """Plan a job; see `Sender.plan`."""
        return plan_run(spec, self.client.environment)

    def request(self, spec: JobSpec, run: str, code: str) -> msgspec.Raw:
        """Encode what `put` sends; see `Sender.request`."""
        request = v1_request(spec, self.client.environment, run=run, code=code)
        return msgspec.Raw(msgspec.json.encode(request))

    def provide(self, record: RunRecord, code: Code, copy: Path) -> None:
        """Upload nothing: it goes with the run."""

    def put(self, record: RunRecord, code: Code, copy: Path) -> None:
        """Send code and run; see `Sender.put`."""
        with tempfile.TemporaryDirectory(prefix="trainyard-code-") as folder:
            lay_folder(code, copy, Path(folder))
            self._session.submit(read_request(record.plan), Path(folder))

    def is_there(self, record: RunRecord) -> bool:
        """Tell whether Azure ML has the run; see `Sender.is_there`."""
        return self._session.details(record.id) is not None

    def provide_missing(self, record: RunRecord, code: Code, copy: Path) -> bool:
        """Upload nothing again: nothing was cached."""
        del record, code, copy
        return False


def lay_folder(code: Code, copy: Path, folder: Path) -> None:
    """Make the folder to upload: the run's copy of the code, with the files that start its ranks."""
    for each in code.files:
        target = folder / each.name
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(copy / each.name, target)
    for name, content in code.made.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    # Read there, and preferred to a .gitignore: what travels is decided by then.
    (folder / IGNORE_FILE).write_text("", encoding="utf-8")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copyfile(source, target)
