"""`pulumi up` killed by -9 at random moments: one `launch env repair` and the next `up` mend it."""

from __future__ import annotations

import shutil
import time

import pytest

from infra.local import azurite_server
from tests import seeds
from tests.integration.local_stack.kills import kill_up

# When to kill, in lengths of a whole `up` as the machine does it just now: its first tenth does
# nothing yet, and on a crowded machine it takes many times what it takes on an idle one.
EARLIEST, LATEST = 0.1, 1.1


def start_over(project, pristine, new_port):
    """No resource in the record, no server: the next `up` creates all."""
    azurite_server.stop(project.storage)
    state = project.root / ".trainyard" / "state"
    shutil.rmtree(state)
    shutil.copytree(pristine, state)


def move_port(project, pristine, new_port):
    """The next `up` updates in place."""
    project.settings["storage"]["port"] = new_port()


def move_folder(project, pristine, new_port):
    """The next `up` replaces."""
    moved = {"data/storage": "data/other", "data/other": "data/storage"}
    project.settings["storage"]["folder"] = moved[project.settings["storage"]["folder"]]


CHANGES = (start_over, move_port, move_folder)


def timed_up(project):
    """A whole `up`: what it said, and how many seconds it took."""
    started_s = time.monotonic()
    said = project.up(check=False)
    return said, time.monotonic() - started_s


@pytest.mark.parametrize(
    ("victim", "num_kills"),
    [
        pytest.param("group", 10, marks=pytest.mark.faults),
        pytest.param("cli", 10, marks=pytest.mark.faults),
    ],
)
def test_every_killed_up_is_mended_by_one_repair_and_one_up(
    project, new_port, victim, num_kills, tmp_path
):
    moments = seeds.dice("kills of a local stack")
    pristine = tmp_path / "pristine"
    shutil.copytree(project.root / ".trainyard" / "state", pristine)
    repaired: list[str] = []
    up_s = timed_up(project)[1]
    kills = 0
    while kills < num_kills:
        change = CHANGES[kills % len(CHANGES)]
        change(project, pristine, new_port)
        # One is aimed at the lock: kills that met none would prove nothing.
        after_s = up_s * moments.uniform(EARLIEST, LATEST) if kills else None
        if not kill_up(project, victim, after_s):
            continue
        kills += 1
        case = f"kill {kills}: {change.__name__} after {after_s or 0:.2f} s"

        done = project.launch("env", "repair", "-s", "local", check=False)
        assert done.returncode == 0, f"{case}: {done.stderr}"
        repaired.append(f"{case}: {done.stdout.strip()}")
        said, up_s = timed_up(project)

        assert project.is_healthy(), f"{case}: {said}"
        assert project.plugins() == [], case
        store = project.resources()["local-storage"]["outputs"]
        assert store["port"] == project.settings["storage"]["port"], case
        assert store["folder"] == str(project.storage), case
        assert set(project.resources()) >= {"trainyard-local", "local", "cpu"}, case
        again = project.launch("env", "repair", "-s", "local")
        assert again.stdout == "stack `local` needs no repair\n", case
    print("\n".join(repaired))
    assert "removed the lock" in repaired[0]
