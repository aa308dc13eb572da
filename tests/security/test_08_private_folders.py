"""Logs, data, runs and Pulumi's state are for their owner alone.

Attacker: another user of the machine. He read all datasets, every run's arguments, environment and
code, and the stack's state; the key that guards the store guarded nothing.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from infra.local import azurite_server
from infra.local.storage_folder import AzuriteError
from jobs.engines.local.queue import Slots
from jobs.host import trust
from jobs.host.cache import exclusive, run_logged
from jobs.host.private import make_folder
from jobs.runs.store import RunStore
from jobs.stacks import doctor
from jobs.stacks.checks import Check, Health
from jobs.stacks.doctor import Project
from tests.security.test_02_environment_file import Store
from tools import project as set_up
from tools.local_stack import write_wrapper

pytestmark = pytest.mark.usefixtures("no_umask")
NOBODY = 65534


def open_to_others(top: Path) -> list[str]:
    """Folders below `top` that another user could reach."""
    found: list[str] = []
    for folder in sorted(path for path in top.iterdir() if path.is_dir()):
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            found += [folder.name, *(f"{folder.name}/{each}" for each in open_to_others(folder))]
    return found


def pulumi_wrapper(top: Path) -> None:
    root = top / ".private"
    (root / ".venv" / "bin").mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    wrapper = write_wrapper(set_up.Project(root=root, cache=top / "cache"), Path("/bin"))
    subprocess.run([wrapper], env={"PATH": os.defpath}, check=False, capture_output=True)
    assert (root / ".trainyard" / "state").is_dir()
    assert stat.S_IMODE((root / ".trainyard").stat().st_mode) == 0o700


MAKERS: dict[str, Callable[[Path], object]] = {
    "a run": lambda top: RunStore(top / "clone" / "workspace").claim(),
    "a queue": lambda top: Slots(top / "clone" / "workspace", "cpu").enqueue(
        top / "clone" / "workspace" / "runs" / "1", 1, "normal"
    ),
    "a log": lambda top: set_up.Project(root=top / "clone", cache=top / "cache").log("uv"),
    "a command's log": lambda top: run_logged(["true"], what="x", log=top / ".trainyard/logs/x"),
    "what is built once": lambda top: exclusive(
        top / "cache" / "trainyard" / "x.lock", what="x", report=nullcontext
    ).__enter__(),
    "Pulumi's state": pulumi_wrapper,
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_made_is_closed_to_others(tmp_path, name):
    top = tmp_path / "top"
    top.mkdir()
    MAKERS[name](top)
    assert open_to_others(top) == []


def test_a_store_shuts_its_folder_also_an_old_one(tmp_path, monkeypatch):
    store = Store(tmp_path / "clone")
    store.folder.chmod(0o755)
    server = azurite_server.read_server(store.folder)
    assert server is not None
    with pytest.raises(AzuriteError, match="Azurite ended at once"):
        azurite_server.start(store.folder, server)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (store.folder, store.folder / "azurite")]
    assert modes == [0o700, 0o700]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_reads_no_record_of_a_run():
    # pytest's own folders are closed, too.
    with TemporaryDirectory() as folder:
        top = Path(folder)
        top.chmod(0o755)
        open_file = top / "open"
        handle = RunStore(top / "workspace").claim()
        record = Path(handle.run_dir) / "run.json"
        for file in (open_file, record):
            file.write_text("text")
        assert [can_another_read(file) for file in (open_file, record)] == [True, False]


def can_another_read(file: Path) -> bool:
    child = os.fork()
    if child == 0:
        try:
            os.setuid(NOBODY)
            file.read_text()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_doctor_shuts_what_older_versions_left_open(tmp_path, monkeypatch):
    store = Store(tmp_path / "clone")
    store.lay_project(is_trusted=False)
    monkeypatch.chdir(store.root)
    workspace = tmp_path / "workspace"
    store.environment["workspace"]["endpoint"] = workspace.as_uri()
    cache = store.root / ".trainyard/cache/environment-local.json"
    cache.write_text(cache.read_text().replace("file:///w", workspace.as_uri()))
    folders = [store.root / ".trainyard", workspace, store.folder]
    workspace.mkdir()
    for folder in folders:
        folder.chmod(0o755)
    project = Project.at(store.root)

    # A project that nobody named could name any folder of ours.
    assert [check.found for check in doctor.check_folders(project, "local")] == [
        f"other users could enter {folders[0]}: closed to them now"
    ]
    trust.trust(store.root)
    assert list(doctor.check_folders(project, "local")) == [
        Check(
            part="folders",
            health=Health.NOTE,
            found=f"other users could enter {workspace}, {store.folder}: closed to them now",
        )
    ]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * 3
    assert list(doctor.check_folders(project, "local")) == [
        Check(part="folders", health=Health.OK, found="closed to others")
    ]


def test_a_folder_that_is_there_keeps_its_mode(tmp_path):
    (tmp_path / "mine").mkdir(mode=0o755)
    make_folder(tmp_path / "mine" / "a" / "b")
    modes = [
        stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("mine", "mine/a", "mine/a/b")
    ]
    assert modes == [0o755, 0o700, 0o700]
