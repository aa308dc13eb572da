"""Steps that run jobs on the stack."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from jobs.engines.azure_ml.states import judge
from jobs.host.files import write_file
from jobs.host.structs import prepared
from tools.prove_azure.session import Said, Session, deny

SECRET = "prove-secret"  # noqa: S105  its name
PICTURES = "prove-pictures"
FAILED = 100
CANCELLED = 103
_RANK = re.compile(r"^\[[^\]]+\] ?")


class _Told(Struct, frozen=True, kw_only=True):
    """An error of the run history, or a warning."""

    code: str | None = None
    message: str | None = None
    error: _Told | None = None


class _Details(Struct, frozen=True, kw_only=True):
    """Fields that are read of a run's details."""

    error: _Told | None = None
    warnings: tuple[_Told, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that is over: its id, the ranks' lines, and all that was said."""

    id: str
    lines: Sequence[str]
    said: Said


def hello(s: Session) -> None:
    """Run one process in Microsoft's own image."""
    _find(s, _run(s, "hello"), "hello from")
    s.holds("U25", "U35")


def newest_first(s: Session) -> None:
    """Ask Azure for its list of jobs: the last run has to be at its head."""
    last = s.record.names.get("last")
    url = f"https://management.azure.com{s.record.names['workspace']}/jobs?api-version=2024-04-01"
    names = [each["name"] for each in json.loads(s.az("rest", "--url", url).out)["value"]]
    if names[:1] != [last]:
        deny(f"the list is {', '.join(names[:3])}, ...; the last run is {last}", "U32")
    s.holds("U32")


def send_twice(s: Session) -> None:
    """Send a job again under its name, while it is on and when it is over."""
    run = _begin(s, "ticks")
    try:
        _send_again(s, run)
    finally:
        s.launch("cancel", run, check=False)
    s.launch("wait", run, check=False)
    _send_again(s, run)
    s.holds("U36")


def mpi(s: Session) -> None:
    """Run two ranks on each of two nodes by Azure ML's mpirun."""
    run = _run(s, "mpi")
    found = [json.loads(line) for line in run.lines if line.startswith('{"rank"')]
    places = [each["place"] for each in sorted(found, key=lambda each: each["rank"])]
    if len(places) != 4:
        deny(f"4 ranks were asked for, {len(places)} said where they are", "U25")
    in_blocks = places[0] == places[1] != places[2] == places[3]
    if not in_blocks:
        nodes = sorted(set(places))
        numbers = [f"rank {rank} on node {nodes.index(each)}" for rank, each in enumerate(places)]
        told = ", ".join(numbers)
        deny(told, "U19")
    s.holds("U19", "U25")


def image(s: Session) -> None:
    """Run in an image of ours, which the workspace builds."""
    _find(s, _run(s, "image"), "torch ")
    s.holds("U15", "U16")


def train(s: Session) -> None:
    """Train the demo's model by Horovod on two nodes of our image."""
    folder = s.folder / "digits"
    s.launch_here("data", "prepare", "digits", "--to", str(folder))
    _push(s, str(folder), "digits")
    size = ("--nodes", "2", "--processes-per-node", "1", "--set", "args.epochs=1")
    run = _run(s, "digits", *size, is_ours=False)
    _find(s, run, "test accuracy")
    s.holds("U17")


def torch(s: Session) -> None:
    """Add up ranks on two nodes by torch.distributed."""
    _find(s, _run(s, "torch"), "sum 3 of 2 ranks")


def tensorflow(s: Session) -> None:
    """Add up workers on two nodes by TensorFlow."""
    _find(s, _run(s, "tensorflow"), "sum 2 of workers", unknown="U20")
    s.holds("U20")


def secret(s: Session) -> None:
    """Put a secret into the vault, and have the ranks of two nodes read it."""
    vault = s.record.names["vault"]
    user = s.az("ad", "signed-in-user", "show", "--query", "id", "--output", "tsv").out.strip()
    scope = s.az("keyvault", "show", "--name", vault, "--query", "id", "--output", "tsv")
    s.az(
        *("role", "assignment", "create", "--role", "Key Vault Secrets Officer"),
        *("--assignee-object-id", user, "--assignee-principal-type", "User"),
        *("--scope", scope.out.strip(), "--output", "none"),
    )
    value = secrets.token_urlsafe(24)
    file = s.folder / "secret"
    write_file(file, value.encode(), mode=0o600)
    try:
        words = ("keyvault", "secret", "set", "--vault-name", vault, "--name", SECRET)
        _patiently(s, lambda: s.az(*words, "--file", str(file), "--output", "none", check=False))
    finally:
        file.unlink()
    run = _run(s, "secret")
    digest = hashlib.sha256(value.encode()).hexdigest()[:16]
    read = [line for line in run.lines if line == f"digest {digest}"]
    if len(read) != 2:
        deny(f"{len(read)} of 2 ranks have read the secret: {run.said.words}", "U27")
    s.holds("U18", "U27")


def stream(s: Session) -> None:
    """Read a dataset by ranges from a node."""
    raw, packed = str(s.folder / "pictures"), str(s.folder / "packed")
    s.launch_here("data", "synthesize", "imagenet", "--images", "50", "--classes", "2", "--to", raw)
    s.launch_here("data", "pack", raw, "--to", packed)
    _push(s, packed, PICTURES)
    _find(s, _run(s, "stream"), "streamed 512 bytes, status 206", unknown="U28")
    s.holds("U28")


def logs(s: Session) -> None:
    """Read lines while they are written, then cancel the run."""
    run = _begin(s, "ticks")
    seen, looks = False, 0
    while not seen and looks < s.patience.looks:
        state = _state(s, run)["state"]
        if state not in {"queued", "preparing", "running"}:
            deny(f"the run is {state} before a line was shown", "U26")
        looks += state == "running"
        seen = "tick 0" in s.launch("logs", run, check=False).out
        time.sleep(s.patience.pause_s)
    s.launch("cancel", run)
    ended = s.launch("wait", run, check=False)
    if not seen:
        deny(f"no line was shown while the run was running. {_names(s, run)}", "U26")
    s.holds("U26")
    if ended.code != CANCELLED:
        deny(f"`launch wait` ended with {ended.code}: {ended.words}", "U33")
    s.holds("U33")


def fails(s: Session) -> None:
    """Fail with an exit code, and have `launch` read Azure's words alone."""
    run = _run(s, "fails", code=FAILED)
    words = _azures_words(s, run.id)
    if judge("Failed", error={"message": words}).exit_code != 3:
        deny(words, "U22")
    s.holds("U22")


def pull(s: Session) -> None:
    """Name an image that nobody has pushed."""
    _expect_reason(s, _run(s, "pull", code=FAILED), r"image cannot be pulled", "U23")


def limit(s: Session) -> None:
    """Let a job run into its limit of time."""
    run = _run(s, "ticks", "--set", f"limits.wall_clock={s.patience.limit}", code=None)
    _expect_reason(s, run, r"limits\.wall_clock", "U24")


def preempt(s: Session) -> None:
    """Leave with a checkpoint, and go on from it in a second attempt."""
    run = _run(s, "leaves", code=None)
    if run.said.code != 0 or not any("checkpoint of the first" in line for line in run.lines):
        reason = _state(s, run.id).get("reason")
        deny(f"no second attempt found it: {reason}; {run.said.words}", "U21")
    s.record.names["leaves"] = run.id
    s.holds("U21")


def retry(s: Session) -> None:
    """Start the run again as a new one that resumes from the checkpoint."""
    first = s.record.names.get("leaves")
    if first is None:
        deny("no run has left a checkpoint")
    words = ("rerun", first, "--resume", "-y", "--no-fetch")
    said = s.launch(*words, check=False)
    _find(s, _finished(s, said, 0), "checkpoint of the first attempt", unknown="U21")


def quota(s: Session) -> None:
    """Ask for a GPU, for which a new subscription has no quota."""
    said = s.launch(*_words(s, "ticks"), "--cluster", "gpu", "-d", check=False)
    if said.code == 3 and "limit of" in said.words:
        s.holds("U10")
        return
    if said.code != 0:
        deny(said.words)
    run = said.out.split()[0]
    try:
        shown = _state(s, run)
    finally:
        s.launch("cancel", run, check=False)
    if shown["state"] == "queued" and "quota" in str(shown.get("reason")):
        s.holds("U10")


# --- One run ----------------------------------------------------------------------------------


def _words(s: Session, job: str, *, is_ours: bool = True) -> list[str]:
    return ["run", str(s.jobs / f"{job}.yaml") if is_ours else job, "-y"]


def _run(s: Session, job: str, *words: str, code: int | None = 0, is_ours: bool = True) -> Run:
    """Run a job to its end, which has to be with this exit code."""
    typed = [*_words(s, job, is_ours=is_ours), "--no-fetch", *words]
    return _finished(s, s.launch(*typed, check=False), code)


def _finished(s: Session, said: Said, code: int | None) -> Run:
    lines = said.out.splitlines()
    identity = lines[0].strip() if lines else ""
    if identity:
        s.record.names["last"] = identity
    if code is not None and said.code != code:
        deny(f"{_azures_words(s, identity)}\n{said.words}" if identity else said.words)
    return Run(id=identity, lines=[_RANK.sub("", line) for line in lines[1:]], said=said)


def _begin(s: Session, job: str, *words: str) -> str:
    run = s.launch(*_words(s, job), "-d", *words).out.split()[0]
    s.record.names["last"] = run
    return run


def _send_again(s: Session, run: str) -> None:
    """PUT the very body again that made the job. A refusal is well, too: `launch` then asks for it."""
    shown = _state(s, run)
    request = shown["record"]["plan"]["request"]["job"]
    url = f"https://management.azure.com{request['path']}?api-version={request['api_version']}"
    file = s.folder / "job.json"
    write_file(file, json.dumps(request["body"]).encode())
    before = _created(s, url)
    s.az("rest", "--method", "put", "--url", url, "--body", f"@{file}", check=False)
    after, state = _created(s, url), _state(s, run)["state"]
    if before != after:
        deny(f"{run} was begun again: it was made at {before}, and is of {after} now", "U36")
    if shown["state"] == "cancelled" != state:
        deny(f"{run} was begun again: it was cancelled, and is {state} now", "U36")


def _created(s: Session, url: str) -> str:
    return json.loads(s.az("rest", "--url", url).out)["systemData"]["createdAt"]


def _find(s: Session, run: Run, text: str, *, unknown: str = "U25") -> None:
    """Find a line of the ranks; without it Azure's names of the logs are the words."""
    if not any(text in line for line in run.lines):
        deny(f"no line has `{text}`. {_names(s, run.id)}", unknown)


def _names(s: Session, run: str) -> str:
    """Tell how Azure ML names the logs of a run."""
    prefix = f"ExperimentRun/dcid.{run}/"
    listed = s.az(
        *("storage", "blob", "list", "--auth-mode", "login", "--container-name", "azureml"),
        *("--account-name", s.record.names["account"], "--prefix", prefix),
        *("--query", "[].name", "--output", "tsv"),
        check=False,
    )
    names = [line.removeprefix(prefix) for line in listed.out.split()]
    return f"Azure ML has written {', '.join(names) or 'no log'}"


def _expect_reason(s: Session, run: Run, pattern: str, unknown: str) -> None:
    """Compare the reason that `launch` gives with the expected one; Azure's words stand in it."""
    reason = _state(s, run.id).get("reason") or ""
    if not re.search(pattern, reason):
        deny(f"{_azures_words(s, run.id)}\n{reason}".strip(), unknown)
    s.holds(unknown)


def _azures_words(s: Session, run: str) -> str:
    """Read what Azure itself says of the end of a run, beside what `launch` makes of it."""
    place = f"{s.record.names['endpoint']}/history/v1.0{s.record.names['workspace']}"
    asked = s.az(
        *("rest", "--resource", "https://management.azure.com"),
        *("--url", f"{place}/runs/{run}/details"),
        check=False,
    )
    try:
        details = msgspec.json.decode(asked.out, type=prepared(_Details))
    except msgspec.DecodeError:
        return asked.words
    error = details.error or _Told()
    told = [error.error or error, *(details.warnings or ())]
    texts = [": ".join(text for text in (each.code, each.message) if text) for each in told]
    return "\n".join(text for text in texts if text) or "Azure gives no reason"


def _state(s: Session, run: str) -> dict[str, Any]:
    return json.loads(s.launch("show", run, "--json").out)


def _push(s: Session, folder: str, name: str) -> None:
    """Push a dataset; a role that was given minutes ago may still be refused."""
    _patiently(s, lambda: s.launch("data", "push", folder, name, check=False))
    s.holds("U29")


def _patiently(s: Session, act: Any) -> None:
    """Do it until it works, for as long as a new role may take."""
    until = time.monotonic() + s.patience.roles_s
    while (said := act()).code != 0:
        if time.monotonic() > until:
            deny(said.words)
        time.sleep(s.patience.pause_s)
