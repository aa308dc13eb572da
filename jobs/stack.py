"""Reads the environment from a Pulumi stack or a file, and mends a stack after a crash.

The only module that starts Pulumi. What it reads is kept under .trainyard/cache, so that most
commands start none.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jobs import trust
from jobs.errors import EnvironmentFailure, LaunchError, Refused
from jobs.located import MOST_BYTES
from jobs.private import make_folder
from jobs.project import NAME, project_root, require_trusted
from jobs.pulumi_failures import last_words, pulumi_failed
from jobs.spec import ENVIRONMENT_SCHEMA, Environment

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from jobs.stack_lock import StackLock

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
    cache = _cache_file(root, stack)
    kept = None if refresh else _read_cache(cache)
    if kept is not None and (cached := _still_valid(kept, stamp)) is not None:
        return parse_environment(cached, f"stack `{stack}`")
    try:
        text = _read_output(root, stack)
    except (EnvironmentFailure, Refused) as error:
        if (root / f"Pulumi.{stack}.yaml").exists():
            raise
        raise _unknown(stack, root) from error
    environment = parse_environment(text, f"stack `{stack}`")
    _write_cache(cache, stamp, text)
    return environment


def known_environment(stack: str) -> Environment | None:
    """Give what was last read of a stack of the project, however old; starts nothing."""
    root = project_root()
    if stack not in _names(root):
        return None
    kept = _read_cache(_cache_file(root, stack))
    return None if kept is None else parse_environment(bytes(kept.environment), f"stack `{stack}`")


def read_environment(path: Path) -> Environment:
    """The environment from a file that `launch env export` wrote."""
    hint = "`launch env export --output FILE` writes one"
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise LaunchError(message, hint=hint) from error
    if len(text) > MOST_BYTES:
        message = f"{path} has more than {MOST_BYTES >> 20} MB, so it is no environment"
        raise LaunchError(message, hint=hint)
    return parse_environment(text, str(path))


def parse_environment(text: bytes, source: str) -> Environment:
    """Check and decode; `source` names where it came from in the message of an error."""
    try:
        schema = msgspec.json.decode(text, type=_SchemaOnly).schema
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"the environment of {source} is damaged: {error}"
        raise LaunchError(message, hint="export it again, or `pulumi up` again") from error
    if schema != ENVIRONMENT_SCHEMA:
        message = (
            f"the environment of {source} has schema {schema}, "
            f"this launch reads schema {ENVIRONMENT_SCHEMA}"
        )
        newer = isinstance(schema, int) and schema > ENVIRONMENT_SCHEMA
        hint = "update launch (`git pull`, `make setup`)" if newer else "`pulumi up` again"
        raise LaunchError(message, hint=hint)
    try:
        return msgspec.json.decode(text, type=Environment)
    except msgspec.DecodeError as error:
        message = f"the environment of {source} is wrong: {error}"
        raise LaunchError(message, hint="export it again, or `pulumi up` again") from error


def write_environment(environment: Environment, path: Path) -> None:
    """Write a file that `read_environment` takes."""
    text = msgspec.json.format(msgspec.json.encode(environment), indent=2)
    try:
        path.write_bytes(text + b"\n")
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise LaunchError(message, hint="give another --output FILE") from error


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
        raise _not_up(stack) if stack in _names(root) else _unknown(stack, root)
    raise pulumi_failed(said, command=f"pulumi preview -s {stack}")


def list_stacks() -> list[tuple[str, bool | None]]:
    """Every stack that has settings, and whether it is up; None where no folder tells."""
    root = project_root()
    names = _names(root)
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
    from jobs.pending_creates import adopt, declare_again, find_unsettled

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
    from jobs.stack_lock import read_locks
    from jobs.stack_plugins import end_orphans

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


def _names(root: Path) -> list[str]:
    return sorted(
        path.name.removeprefix("Pulumi.").removesuffix(".yaml")
        for path in root.glob("Pulumi.*.yaml")
    )


class _SchemaOnly(msgspec.Struct, frozen=True):
    schema: Any


class _Cached(msgspec.Struct, frozen=True, kw_only=True):
    stamp: str
    read_s: float
    environment: msgspec.Raw


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


def _cache_file(root: Path, stack: str) -> Path:
    return root / CACHE_FOLDER / f"environment-{stack}.json"


def _read_cache(path: Path) -> _Cached | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Cached)
    except (OSError, msgspec.DecodeError):
        return None


def _still_valid(cached: _Cached, stamp: str) -> bytes | None:
    if cached.stamp != stamp:
        return None
    if not stamp and not 0 <= time.time() - cached.read_s < MAX_CACHE_AGE_S:
        return None
    return bytes(cached.environment)


def _write_cache(path: Path, stamp: str, text: bytes) -> None:
    cached = _Cached(stamp=stamp, read_s=time.time(), environment=msgspec.Raw(text))
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_folder(path.parent)
        draft.write_bytes(msgspec.json.encode(cached))
        draft.replace(path)
    except OSError:
        # A cache that cannot be written makes the next command slower, no more.
        with suppress(OSError):
            draft.unlink()


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

    known = _names(root)
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
