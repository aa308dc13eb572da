"""Nobody else can hold our locks: they have mode 0600, and old ones get it.

Attacker: another user of the machine. Who can read a file can hold its flock: a finished run counted
as supervised, a rank or a set-up waited for ever.
"""

from __future__ import annotations

import ast
import json
import os
import re
import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from jobs.datasets.scan_cache import lock_work
from jobs.engines.azure_ml import intents
from jobs.engines.local.queue import Slots
from jobs.host import trust
from jobs.host.cache import exclusive
from jobs.host.private import open_lock
from jobs.rank.azure_main import begin
from jobs.runs import supervision
from jobs.runs.fetch import fetching_into

pytestmark = pytest.mark.usefixtures("no_umask")
REPO = Path(__file__).parents[2]
# Who opens no file of the user's own for others to hold: existing files, read only, or 0600 by itself.
LOCKERS = {
    "infra/local/storage_folder.py": "makes it 0600",
    "infra/local/running.py": "looks at supervisor.lock",
    "jobs/rank/main.py": "stdlib alone; 0600",
    "jobs/rank/azure_main.py": "stdlib alone; 0600",
    "trainer/data/disk/locks.py": "locks the user's own folder",
    "trainer/data/streaming/cache.py": "makes them 0600",
}


def lock_slots(top: Path) -> None:
    Slots(top, "cpu").enqueue(top / "runs" / "1", 1, "normal")


def lock_node(top: Path) -> None:
    from jobs.rank.main import Rank
    from jobs.rank.world import RankJob, World

    rank = object.__new__(Rank)
    rank._job = RankJob(str(top), ["true"])
    rank._world = World(0, 1, 0, 1, 0, "127.0.0.1", "1")
    (top / "nodes").mkdir()
    (top / "nodes" / "0").mkdir()
    (top / "nodes" / "0.done").write_text("1")
    rank._prepare_node()


def lock_list(top: Path) -> None:
    (top / "Pulumi.yaml").touch()
    trust.trust(top)


TAKERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a run": ("supervisor.lock", lambda top: os.close(supervision.take_lock(top))),
    "a queue": ("clusters/cpu/lock", lock_slots),
    "an intent": ("intent.lock", lambda top: intents.hold(top).__enter__()),
    "a fetch": (".trainyard-fetch.lock", lambda top: fetching_into(top).__enter__()),
    "a build": (
        "x.lock",
        lambda top: exclusive(top / "x.lock", what="x", report=nullcontext).__enter__(),
    ),
    "a scan": ("lock", lambda top: lock_work(top).close()),
    "a node": ("nodes/0.lock", lock_node),
    "a node on Azure": ("run.lock", lambda top: begin(str(top / "run"), 0).__enter__()),
    "the list of projects": ("cache/trainyard/trusted.lock", lock_list),
}


@pytest.mark.parametrize("name", TAKERS)
def test_a_lock_is_its_owners_alone(tmp_path, monkeypatch, name):
    path, take = TAKERS[name]
    monkeypatch.chdir(tmp_path)
    held = take(tmp_path)
    assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o600
    del held


def test_an_old_lock_is_taken_from_others(tmp_path):
    (tmp_path / "lock").touch(mode=0o666)
    os.close(open_lock(tmp_path / "lock"))
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600


def test_whoever_locks_opens_the_file_in_one_place():
    found: dict[str, bool] = {}
    for island in ("infra", "jobs", "tools", "trainer"):
        for path in sorted((REPO / island).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text) if "flock" in text else ast.Module([], [])
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            if any(re.search(r"\bflock$", ast.unparse(call.func)) for call in calls):
                found[str(path.relative_to(REPO))] = "open_lock(" in text
    others = {path for path, has_helper in found.items() if not has_helper}
    assert json.dumps(sorted(others)) == json.dumps(sorted(LOCKERS))
