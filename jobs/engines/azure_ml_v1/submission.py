"""Starts a run through azureml-core: as safely as the engine azureml, by the same steps."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path

import msgspec

from jobs.contracts.spec import Environment, JobSpec, Plan, RunHandle, RunRecord
from jobs.engines.azure_ml.client import ArmClient
from jobs.engines.azure_ml.code_listing import IGNORE_FILE, Code
from jobs.engines.azure_ml.submission import Submission, submit_run
from jobs.engines.azure_ml_v1.run_configuration import plan_run, read_request, v1_request
from jobs.engines.azure_ml_v1.session import Session


def submit_v1(
    environment: Environment, plan: Plan, client: ArmClient, session: Session
) -> RunHandle:
    """Start the run, or go on where an earlier `launch` of the same job was cut off."""
    session.open()  # before a run is claimed: much may speak against it
    way = partial(V1Submission, session=session)
    return submit_run(environment, plan, client, way=way, make_plan=plan_run)


class V1Submission(Submission):
    """One run on its way."""

    def __init__(
        self,
        environment: Environment,
        run_dir: Path,
        client: ArmClient,
        code: Code,
        *,
        session: Session,
    ) -> None:
        super().__init__(environment, run_dir, client, code)
        self._session = session

    def _request(self, spec: JobSpec, run: str) -> bytes:
        request = v1_request(spec, self.environment, run=run, code=self.code.listing.name)
        return msgspec.json.encode(request)

    def _provide(self, record: RunRecord) -> None:
        """Nothing: azureml-core sends code and image with the run."""

    def _put(self, record: RunRecord) -> None:
        with tempfile.TemporaryDirectory(prefix="trainyard-code-") as folder:
            lay_folder(self.code, self.run_dir / "code", Path(folder))
            self._session.submit(read_request(record.plan), Path(folder))

    def _is_there(self, record: RunRecord) -> bool:
        return self._session.details(record.id) is not None

    def _mended(self, record: RunRecord) -> bool:
        del record
        return False  # nothing was taken for known


def lay_folder(code: Code, copy: Path, folder: Path) -> None:
    """Make the folder that is sent: what travels of the run's copy, and what we put beside it."""
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
