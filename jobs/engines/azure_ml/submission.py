"""Puts a run on disk, then its job into the workspace; a crash at any point starts no run twice.

The order is what makes it safe: the intent with the run's name, its record, what the job needs, the
record in the blob store, and only then the job. An answer that was lost is asked for again by the name.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from jobs.blobs.files import Copy
from jobs.blobs.store import BlobStore, open_runs_store
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import (
    Environment,
    Plan,
    ResumePoint,
    RunHandle,
    RunRecord,
    RunState,
)
from jobs.engines.azure_ml.client import ArmClient
from jobs.engines.azure_ml.code_listing import Code, read_code
from jobs.engines.azure_ml.intents import (
    INTENT,
    RESUME_S,
    SUBMITTED,
    Intent,
    give_up,
    hold,
    mark_submitted,
    open_intents,
    plan_digest,
    read_intent,
    write_intent,
)
from jobs.engines.azure_ml.names import checkpoints_prefix
from jobs.engines.azure_ml.refusals import CloudRefusal, Passing
from jobs.engines.azure_ml.request import job_request, read_request
from jobs.engines.azure_ml.sender import Sender
from jobs.host import console
from jobs.host.units import now
from jobs.host.untrusted import is_file_name
from jobs.runs.checkpoints import MANIFEST
from jobs.runs.cloud_folder import workspace_folder
from jobs.runs.code import snapshot
from jobs.runs.record import make_record
from jobs.runs.run_folder import RunEvent, append_event, read_record
from jobs.runs.store import RunStore

# A request that was sent shortly before its sender died may still be carried out.
SETTLE_S = 600.0
SETTLE_WITHIN_S = 7 * 86400.0
_BUSY_TRIES, _BUSY_S = 4, 1.0
_GO_ON = "type the same again to go on with it (nothing starts twice); launch ls shows it"
# Azure ML's states that a job does not leave.
_OVER = {"Completed", "Failed", "Canceled"}


def submit_run(plan: Plan, sender: Sender) -> RunHandle:
    """Start the run, or go on where an earlier `launch` of the same job was cut off.

    Raises LaunchError; then there is no run, unless Azure did not say whether it took the job: the
    intent stays, and the same again goes on with it.
    """
    client = sender.client
    client.require_endpoint()
    workspace = workspace_folder(client.environment)
    code = read_code(plan.spec, exclude=(workspace, *plan.spec.pushed_paths))
    asked = _as_asked(plan, sender)
    intent = Intent(plan_digest=plan_digest(asked), code=code.listing.name, since_s=time.time())
    try:
        with claimed(RunStore(workspace), intent) as (run_dir, is_new):
            started = Submission(run_dir, code, sender, may_be_on=not is_new)
            try:
                record = started.prepare(plan)
            except BaseException:
                if is_new:
                    started.withdraw()
                raise
            try:
                started.send(record)
            except KeyboardInterrupt:
                started.say_uncertain()
                raise
            mark_submitted(run_dir)
    except OSError as error:
        message = f"cannot make a run in `{workspace}`: {error.strerror or error}"
        hint = "free some space, or correct the folder's permissions"
        raise EnvironmentFailure(message, hint=hint) from error
    return RunHandle(id=run_dir.name, engine=plan.engine, run_dir=str(run_dir))


def submit_attempt(
    environment: Environment,
    record: RunRecord,
    attempt: int,
    client: ArmClient,
    *,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Start a run once more with the code and the checkpoints that it has; what Azure ML says of it.

    The same attempt again is the same job, whoever sends it. `timeout_s` is what is left of the
    run's time.
    """
    spec = record.plan.spec
    if timeout_s is not None:
        limits = msgspec.structs.replace(spec.limits, wall_clock_s=timeout_s)
        spec = msgspec.structs.replace(spec, limits=limits)
    first = read_request(record.plan).job.body.properties
    request = job_request(
        spec,
        environment,
        run=record.id,
        code_id=first.code_id,
        image_id=first.environment_id,
        command=first.command,
        attempt=attempt,
    )
    what = f"starting {record.id} again"
    try:
        reply = client.put(request.path, request.body, api_version=request.api_version, what=what)
    except CloudRefusal as refusal:
        found = None if refusal.status in (401, 403) else client.find(request.path, what=what)
        if found is None:
            raise
        return found
    return reply.body


def cancel_job(client: ArmClient, name: str) -> None:
    """Ask Azure ML to end a job; silent where it is over. Returns before it has ended."""
    path = f"{client.workspace}/jobs/{name}"
    what = f"cancelling {name}"
    try:
        client.post(f"{path}/cancel", what=what)
    except CloudRefusal as refusal:
        if refusal.status not in (400, 409):
            raise
        job = client.find(path, what=what)
        if job is None or job["properties"]["status"] not in _OVER:
            raise


def settle_intents(environment: Environment, is_there: Callable[[str], bool]) -> None:
    """Find out what became of the runs whose `launch` was cut off.

    `is_there` asks Azure ML for a run; nothing is asked where none was cut off.
    """
    store = RunStore(workspace_folder(environment))
    for run_dir, intent in open_intents(store, SETTLE_WITHIN_S):
        with hold(run_dir) as is_ours:
            if not is_ours:
                continue
            if not (run_dir / "run.json").exists():
                # Cut off while the code was copied: no job was sent.
                if time.time() - intent.since_s > SETTLE_S:
                    shutil.rmtree(run_dir, ignore_errors=True)
                continue
            if is_there(run_dir.name):
                mark_submitted(run_dir)
            elif time.time() - intent.since_s > SETTLE_S:
                reason = "launch was interrupted before Azure ML had the job"
                append_event(run_dir, RunEvent(ts=now(), state=RunState.LOST, reason=reason))
                with suppress(LaunchError):  # a record without a job does no harm
                    open_runs_store(environment).delete([_record_blob(run_dir.name)])
                give_up(run_dir)


@contextmanager
def claimed(store: RunStore, intent: Intent) -> Generator[tuple[Path, bool]]:
    """Claim and hold the folder of the run; tells whether it is a new one."""
    for run_dir, earlier in open_intents(store, RESUME_S):
        if (earlier.plan_digest, earlier.code) != (intent.plan_digest, intent.code):
            continue
        with hold(run_dir) as is_ours:
            if is_ours and read_intent(run_dir) is not None:
                write_intent(run_dir, intent)  # what is sent from now on may arrive late, too
                console.say(f"going on with {run_dir.name}, whose submission was interrupted")
                yield run_dir, False
                return
    run_dir = Path(store.claim().run_dir)
    try:
        with hold(run_dir):
            write_intent(run_dir, intent)
            yield run_dir, True
    finally:
        if not any((run_dir / name).exists() for name in (INTENT, SUBMITTED)):
            # Windows removes no lock that is held.
            shutil.rmtree(run_dir, ignore_errors=True)


def _as_asked(plan: Plan, sender: Sender) -> Plan:
    """Give the plan without the time that a limit on cost came to: prices change from call to call."""
    spec = plan.spec
    if spec.limits.cost is None:
        return plan
    limits = msgspec.structs.replace(spec.limits, wall_clock_s=None)
    return sender.plan(msgspec.structs.replace(spec, limits=limits))


class Submission:
    """One run on its way; each step can be done again.

    With `may_be_on` somebody may have sent the job already, and its answer was not heard.
    """

    def __init__(self, run_dir: Path, code: Code, sender: Sender, *, may_be_on: bool) -> None:
        self.run_dir = run_dir
        self.code = code
        self.copy = run_dir / "code"
        self.sender = sender
        self.may_be_on = may_be_on
        self._store: BlobStore | None = None  # that may have the record

    def prepare(self, plan: Plan) -> RunRecord:
        """Make everything that the job needs, here and in Azure; gives the run's record."""
        self._copy_code(plan)
        record = self._record(plan)
        self.sender.provide(record, self.code, self.copy)
        store = open_runs_store(self.sender.client.environment)
        if plan.spec.resume is not None:
            _hand_on_checkpoints(store, plan.spec.resume, record.id)
        self._store = store
        store.create(_record_blob(record.id), (self.run_dir / "run.json").read_bytes())
        return record

    def withdraw(self) -> None:
        """Leave nothing of a run that Azure ML has not got."""
        if self._store is not None:
            with suppress(LaunchError):
                self._store.delete([_record_blob(self.run_dir.name)])
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def say_uncertain(self) -> None:
        """Explain after an interrupt that the job may have been sent already."""
        end = f"launch cancel {self.run_dir.name} ends it"
        console.warn(f"interrupted: {self._not_known()}; {_GO_ON}, {end}")

    def send(self, record: RunRecord) -> None:
        """Send the job; raises LaunchError, and leaves nothing if it cannot be on."""
        for num_tries in range(1, _BUSY_TRIES + 1):
            try:
                self.sender.put(record, self.code, self.copy)
            except CloudRefusal as refusal:
                if self._has_it(record, refusal):
                    return
                is_last = num_tries == _BUSY_TRIES
                if refusal.status == 409 and not is_last:
                    time.sleep(_BUSY_S)
                    continue
                # Nobody but us sends a job of this name: busy is Azure with what we sent before.
                if isinstance(refusal, Passing) and refusal.status != 429:
                    raise self._uncertain(refusal) from refusal
                is_to_mend = refusal.status in (400, 404) and not is_last
                if is_to_mend and self.sender.provide_missing(record, self.code, self.copy):
                    continue
                if refusal.status == 400:
                    refusal.hint = "`launch plan JOB --json` shows the request"
                if self.may_be_on:
                    raise self._uncertain(refusal) from refusal
                self.withdraw()
                raise
            else:
                return

    def _copy_code(self, plan: Plan) -> None:
        """Copy the code: a rerun begins with it, and it is sent, as the user may go on writing."""
        shutil.rmtree(self.copy, ignore_errors=True)
        if plan.spec.code is None:
            self.copy.mkdir()
            return
        exclude = (self.run_dir.parent.parent, *plan.spec.pushed_paths)
        snapshot(Path(plan.spec.code), self.copy, only=plan.spec.code_only, exclude=exclude)

    def _record(self, plan: Plan) -> RunRecord:
        """Write the record once; its request is the very one that is sent."""
        run = self.run_dir.name
        if (self.run_dir / "run.json").exists():
            return read_record(self.run_dir)
        request = self.sender.request(plan.spec, run, self.code.listing.name)
        digest = plan.spec.image.partition("@")[2] or None
        final = msgspec.structs.replace(plan, request=request)
        environment = self.sender.client.environment
        record = make_record(self.run_dir, final, environment, image_digest=digest)
        RunStore(self.run_dir.parent.parent).commit(record)
        return record

    def _has_it(self, record: RunRecord, refusal: CloudRefusal) -> bool:
        """Tell whether Azure ML has the job all the same: the answer may be to a second asking."""
        try:
            return self.sender.is_there(record)
        except CloudRefusal as silence:
            if refusal.status in (401, 403) and not self.may_be_on:
                return False  # whoever may send no job may see none
            raise self._uncertain(silence) from refusal

    def _uncertain(self, refusal: CloudRefusal) -> CloudRefusal:
        message = f"{self._not_known()}: {refusal.message}"
        hint = _GO_ON if isinstance(refusal, Passing) else f"{refusal.hint}; then {_GO_ON}"
        return CloudRefusal(
            message, hint=hint, status=refusal.status, code=refusal.code, text=refusal.text
        )

    def _not_known(self) -> str:
        return f"it is unknown whether Azure ML has {self.run_dir.name}"


def _hand_on_checkpoints(store: BlobStore, resume: ResumePoint, run: str) -> None:
    """Copy another run's whole checkpoints inside the blob store; what makes each whole comes last."""
    source, target = checkpoints_prefix(resume.run), checkpoints_prefix(run)
    names = {each.name.removeprefix(source): each for each in store.list(source)}
    # A URL's `..` would lead the copy out of the run.
    blobs = {name: each for name, each in names.items() if is_file_name(name, is_windows=False)}
    # What lies deeper is a file like any other, whatever its name.
    manifests = {name for name in blobs if name.count("/") == 1 and name.endswith(f"/{MANIFEST}")}
    whole = {name.partition("/")[0] for name in manifests}
    for is_manifest in (False, True):
        copies = [
            Copy(source=each.name, name=target + name, bytes=each.bytes)
            for name, each in blobs.items()
            if name.partition("/")[0] in whole and (name in manifests) == is_manifest
        ]
        made = 0

        def count(files: int, _bytes: int, _found: int = 0, /) -> None:
            nonlocal made
            made += files

        store.copy(copies, count)
        if made < len(copies):
            message = f"the checkpoints of {resume.run} could not be copied to {run}"
            raise EnvironmentFailure(message, hint="type the same again, or leave out --resume")


def _record_blob(run: str) -> str:
    return f"{run}/run.json"
