"""Reads the environment from a Pulumi stack or a file, and mends a stack after a crash.

The only module that starts Pulumi. What it reads is kept under .trainyard/cache, so that most
commands start none.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.contracts.errors import EnvironmentFailure, LaunchError, Refused
from jobs.contracts.spec import Environment
from jobs.host import trust
from jobs.host.environment_file import (
    Cached,
    cache_file,
    parse_environment,
    read_cache,
    read_environment,
    stack_names,
    write_cache,
)
from jobs.host.project import NAME, project_root, require_trusted
from jobs.stacks.pulumi_failures import last_words, pulumi_failed

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from jobs.stacks.locks import StackLock

LOCAL_STACK = "local"
OUTPUT = "environment"
CACHE_FOLDER = ".trainyard/cache"
PULUMI_HOME = ".trainyard/pulumi-home"
# Where the backend is not a folder, nothing tells us of a change.
MAX_CACHE_AGE_S = 600
OUTPUT_TIMEOUT_S = 120
REFRESH_TIMEOUT_S = 600
PREVIEW_TIMEOUT_S = 600


def load_environment(
    stack: str, env_file: Path | None = None, *, refresh: bool = False
) -> Environment:
    """The environment of a stack, or of the file where one is given.

    `refresh` leaves the cache aside. May start Pulumi and then blocks for about a second.
    Raises LaunchError (no project, no stack up, another schema, damaged), Refused (the project is
    not trusted), EnvironmentFailure (Pulumi is missing or failed).
    """
    if env_file is not None:
        return read_environment(env_file)
    root = project_root()
    state = _state_file(root, stack)
    if state is not None and not state.exists():
        raise _not_up(stack)
    stamp = _stamp(state)
    cache = cache_file(root, stack)
    kept = None if refresh else read_cache(cache)
    if kept is not None and (cached := _still_valid(kept, stamp)) is not None:
        return parse_environment(cached, f"stack `{stack}`")
    try:
        text = _read_output(root, stack)
    except (EnvironmentFailure, Refused) as error:
        if (root / f"Pulumi.{stack}.yaml").exists():
            raise
        raise _unknown(stack, root) from error
    environment = parse_environment(text, f"stack `{stack}`")
    write_cache(cache, stamp, text)
    return environment


def preview(stack: str) -> bytes:
    """The JSON of `pulumi preview` with all resources, also where it failed; changes nothing.

    Blocks for about a second, on Azure for a minute. Raises LaunchError (no such stack),
    EnvironmentFailure (Pulumi is missing or says nothing that can be read).
    """
    root = project_root()
    arguments = ["preview", "--json", "--show-sames", "-s", stack]
    result = _start_pulumi(root, arguments, timeout_s=PREVIEW_TIMEOUT_S)
    if result.stdout.strip():
        return result.stdout
    said = last_words(result.stderr)
    if "no stack named" in said:
        raise _not_up(stack) if stack in stack_names(root) else _unknown(stack, root)
    raise pulumi_failed(said, command=f"pulumi preview -s {stack}")


def list_stacks() -> list[tuple[str, bool | None]]:
    """Every stack that has settings, and whether it is up; None where no folder tells."""
    root = project_root()
    names = stack_names(root)
    states = [_state_file(root, name) for name in names]
    return [
        (name, None if state is None else _has_resources(state))
        for name, state in zip(names, states, strict=True)
    ]


def repair(stack: str) -> list[str]:
    """Mend what a killed `pulumi up` left behind; says what was done, empty when all was right.

    Removes locks of dead processes of this host, ends the plugins they left running, and settles
    operations that were cut off by looking at what is really there. Safe to repeat. Raises
    Refused while the owner of a lock may live. Where the state is in no folder of this machine,
    its locks are Pulumi's own business: it refuses while there is one, and `pulumi cancel` ends it.
    """
    from jobs.stacks.pending_creates import adopt, declare_again, find_unsettled

    root = project_root()
    state = _state_file(root, stack)
    if state is not None and not state.exists():
        raise _not_up(stack)
    done = _end_what_died(root, stack, state)
    before = (_export(root, stack)["deployment"] or {}) if state is None else _checkpoint(state)
    if not (unsettled := find_unsettled(before)):
        return done
    _edit_record(root, stack, adopt)
    arguments = ["refresh", "--yes", "--skip-preview", "--clear-pending-creates", "-s", stack]
    _run_pulumi(root, arguments, timeout_s=REFRESH_TIMEOUT_S)
    after = _edit_record(root, stack, lambda record: declare_again(record, unsettled))
    known = {each["urn"] for each in after.get("resources") or () if not each.get("delete")}
    return done + [_settled(operation, known) for operation in unsettled]


def _end_what_died(root: Path, stack: str, state: Path | None) -> list[str]:
    from jobs.stacks.locks import read_locks
    from jobs.stacks.plugins import end_orphans

    done: list[str] = []
    locks = [] if state is None else read_locks(_locks_folder(state))
    for lock in locks:
        if reason := lock.why_alive():
            raise _locked(stack, lock, reason)
    if num_ended := end_orphans(root / PULUMI_HOME):
        done.append(f"ended what a killed pulumi had left running ({num_ended} processes)")
    for lock in locks:
        lock.path.unlink(missing_ok=True)
        done.append(f"removed the lock of pid {lock.pid}, dead since it took it {lock.age()} ago")
    return done if state is None else done + _remove_torn_notes(state)


def _remove_torn_notes(state: Path) -> list[str]:
    """Pulumi notes each file's type beside it, in place: cut off, a note hides its whole file."""
    done: list[str] = []
    for note in (state.parents[2] / "meta.yaml.attrs", *state.parent.glob(f"{state.name}*.attrs")):
        try:
            msgspec.json.decode(note.read_bytes())
        except FileNotFoundError:
            continue
        except msgspec.DecodeError:
            note.unlink(missing_ok=True)
            done.append(f"removed {note.name}, cut off while it was written")
    return done


def _edit_record(
    root: Path, stack: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Change the stack's record on any backend; what it is then. Nothing is written for nothing."""
    from tempfile import TemporaryDirectory

    exported = _export(root, stack)
    old: dict[str, Any] = exported["deployment"] or {}
    new = change(old)
    if new != old:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "stack.json"
            file.write_bytes(msgspec.json.encode({**exported, "deployment": new}))
            _run_pulumi(root, ["stack", "import", "-s", stack, "--file", str(file)])
    return new


def _settled(operation: dict[str, Any], known: set[str]) -> str:
    urn = operation["resource"]["urn"]
    name, kind = urn.rpartition("::")[2], operation["type"]
    if kind == "creating" and urn in known:
        return f"taken over: {name}, whose creation had been cut off"
    return f"cleared: {kind} {name}"


def _state_file(root: Path, stack: str) -> Path | None:
    """The stack's record where the backend is a folder; None where it is a service or a bucket."""
    if stack == LOCAL_STACK:
        backend = root / ".trainyard" / "state"
    else:
        url = os.environ.get("PULUMI_BACKEND_URL", "")
        if not url.startswith("file://"):
            return None
        backend = Path(url.removeprefix("file://")).expanduser()
    return backend / ".pulumi" / "stacks" / NAME / f"{stack}.json"


def _locks_folder(state: Path) -> Path:
    return state.parents[2] / "locks" / "organization" / NAME / state.stem


def _stamp(state: Path | None) -> str:
    if state is None:
        return ""
    status = state.stat()
    return f"{status.st_mtime_ns}-{status.st_size}"


def _still_valid(cached: Cached, stamp: str) -> bytes | None:
    if cached.stamp != stamp:
        return None
    if not stamp and not 0 <= time.time() - cached.read_s < MAX_CACHE_AGE_S:
        return None
    return bytes(cached.environment)


def _read_output(root: Path, stack: str) -> bytes:
    result = _start_pulumi(
        root, ["stack", "output", OUTPUT, "--json", "-s", stack], timeout_s=OUTPUT_TIMEOUT_S
    )
    if result.returncode == 0:
        return result.stdout
    said = last_words(result.stderr)
    if "does not have output property" in said or "no stack named" in said:
        raise _not_up(stack)
    raise pulumi_failed(said, command=f"pulumi stack output -s {stack}")


def _run_pulumi(root: Path, arguments: list[str], *, timeout_s: float = OUTPUT_TIMEOUT_S) -> bytes:
    result = _start_pulumi(root, arguments, timeout_s=timeout_s)
    if result.returncode != 0:
        said = (result.stdout + result.stderr).decode(errors="replace").strip()
        command = f"pulumi {' '.join(arguments)}"
        message = f"`{command}` failed:\n{said}"
        if "stack is currently locked" in said:
            raise Refused(message, hint="wait for its owner; `pulumi cancel` where he is gone")
        raise pulumi_failed(said, command=command, message=message)
    return result.stdout


def _start_pulumi(
    root: Path, arguments: list[str], *, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    import subprocess  # an environment from the cache, as for `launch ls`, needs none

    require_trusted(root)
    pulumi = root / ".venv" / "bin" / "pulumi"
    if not pulumi.exists() and root == trust.INSTALLED:
        # Its environment may lie elsewhere; to another project its Pulumi would tell of this one.
        pulumi = Path(sys.executable).with_name("pulumi")
    if not pulumi.exists():
        message = f"{root / '.venv' / 'bin' / 'pulumi'} is missing"
        raise EnvironmentFailure(message, hint="`make setup` installs it")
    try:
        return subprocess.run(
            [pulumi, *arguments, "--non-interactive"],
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"`pulumi {arguments[0]}` did not end within {timeout_s:.0f} s"
        hint = "does the backend answer? see PULUMI_BACKEND_URL; then type the same again"
        raise EnvironmentFailure(message, hint=hint) from error


def _checkpoint(state: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(state.read_bytes())["checkpoint"]["latest"] or {}
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        message = f"the record of the stack, {state}, is damaged: {error}"
        raise EnvironmentFailure(message, hint=f"{state}.bak is the one before it") from error


def _export(root: Path, stack: str) -> dict[str, Any]:
    """What Pulumi exports: the record is its `deployment`, None before the first `up`."""
    return msgspec.json.decode(_run_pulumi(root, ["stack", "export", "-s", stack]))


def _has_resources(state: Path) -> bool:
    return state.exists() and bool(_checkpoint(state).get("resources"))


def _unknown(stack: str, root: Path) -> LaunchError:
    from difflib import get_close_matches

    known = stack_names(root)
    message = f"there is no stack `{stack}`: no Pulumi.{stack}.yaml in {root}"
    near = get_close_matches(stack, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there is {', '.join(known) or 'none'}"
    return LaunchError(message, hint=hint)


def _not_up(stack: str) -> LaunchError:
    message = f"stack `{stack}` is not up"
    return LaunchError(message, hint=f"uv run pulumi up -s {stack}")


def _locked(stack: str, lock: StackLock, reason: str) -> Refused:
    message = (
        f"stack `{stack}` is locked by {lock.username}@{lock.hostname}, pid {lock.pid}, "
        f"since {lock.age()}: {reason}"
    )
    return Refused(message, hint=f"wait for it, or end it; then `launch env repair -s {stack}`")
