"""Repair a stack after a killed `pulumi up`: locks, plugins, torn notes, interrupted operations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.contracts.errors import EnvironmentFailure, Refused
from jobs.host.console import say
from jobs.host.project import project_root
from jobs.stacks.backend import PULUMI_HOME, found_state, locks_folder
from jobs.stacks.locks import StackLock, read_locks
from jobs.stacks.plugins import end_orphans
from jobs.stacks.pulumi_cli import export_record, last_words, recorded, run_pulumi

if TYPE_CHECKING:
    from collections.abc import Callable

REFRESH_TIMEOUT_S = 600


def repair(stack: str) -> list[str]:
    """Repair a stack after a killed `pulumi up`; lists the repairs, empty if there were none.

    Removes locks of dead processes of this host, ends the plugins they left running, and settles
    operations that were cut off by looking at what is really there. Safe to repeat. Raises
    Refused while the owner of a lock may live. Where the state is in no folder of this machine,
    its locks are Pulumi's own business: it refuses to settle anything while there is one, and
    `pulumi cancel` ends it.
    """
    root = project_root()
    state = found_state(root, stack)
    done = _end_what_died(root, stack, state)
    before = recorded(root, stack, state)
    if not (unsettled := _of_pending_creates("find", before)):
        if state is None:
            say(
                f"the locks of this backend are Pulumi's: `uv run pulumi cancel -s {stack}` removes "
                "one whose `pulumi` was killed"
            )
        return done
    _edit_record(root, stack, lambda record: _of_pending_creates("adopt", record))
    arguments = ["refresh", "--yes", "--skip-preview", "--clear-pending-creates", "-s", stack]
    run_pulumi(root, arguments, timeout_s=REFRESH_TIMEOUT_S)
    after = _edit_record(
        root,
        stack,
        lambda record: _of_pending_creates("declare", {"record": record, "operations": unsettled}),
    )
    known = {each["urn"] for each in after.get("resources") or () if not each.get("delete")}
    return done + [_settled(operation, known) for operation in unsettled]


def _end_what_died(root: Path, stack: str, state: Path | None) -> list[str]:
    done: list[str] = []
    locks = [] if state is None else read_locks(locks_folder(state))
    for lock in locks:
        if reason := lock.why_alive():
            raise _locked(stack, lock, reason)
    if num_ended := end_orphans(root / PULUMI_HOME):
        done.append(f"ended processes that a killed pulumi left running ({num_ended} processes)")
    for lock in locks:
        lock.path.unlink(missing_ok=True)
        done.append(
            f"removed the lock of pid {lock.pid}, which ended after it took it {lock.age()} ago"
        )
    return done if state is None else done + _remove_torn_notes(state)


def _remove_torn_notes(state: Path) -> list[str]:
    """Remove notes of a file's type that were cut off: each hides the whole file beside it."""
    done: list[str] = []
    for note in (state.parents[2] / "meta.yaml.attrs", *state.parent.glob(f"{state.name}*.attrs")):
        try:
            msgspec.json.decode(note.read_bytes())
        except FileNotFoundError:
            continue
        except msgspec.DecodeError:
            note.unlink(missing_ok=True)
            done.append(f"removed {note.name}, left by an interrupted write")
    return done


def _of_pending_creates(verb: str, value: object) -> Any:
    """Ask infra's program, which knows the ids that Azure gives to what our stacks declare."""
    program = [sys.executable, "-P", "-m", "infra.pending_creates", verb]
    done = subprocess.run(
        program, input=msgspec.json.encode(value), capture_output=True, check=False
    )
    if done.returncode != 0:
        message = f"`python -m infra.pending_creates {verb}` failed: {last_words(done.stderr)}"
        raise EnvironmentFailure(message, hint="`make setup` installs what it needs")
    return msgspec.json.decode(done.stdout)


def _edit_record(
    root: Path, stack: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Change the stack's record on any backend and return it; no import without a change."""
    exported = export_record(root, stack)
    old: dict[str, Any] = exported["deployment"] or {}
    new = change(old)
    if new != old:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "stack.json"
            file.write_bytes(msgspec.json.encode({**exported, "deployment": new}))
            run_pulumi(root, ["stack", "import", "-s", stack, "--file", str(file)])
    return new


def _settled(operation: dict[str, Any], known: set[str]) -> str:
    urn = operation["resource"]["urn"]
    name, kind = urn.rpartition("::")[2], operation["type"]
    if kind == "creating" and urn in known:
        return f"taken over: {name}, whose creation was interrupted"
    return f"cleared: {kind} {name}"


def _locked(stack: str, lock: StackLock, reason: str) -> Refused:
    message = (
        f"stack `{stack}` is locked by {lock.username}@{lock.hostname}, pid {lock.pid}, "
        f"for {lock.age()}: {reason}"
    )
    return Refused(message, hint=f"wait for it, or end it; then `launch env repair -s {stack}`")
