"""Ends a rank that serves TensorFlow's chief, once the chief is over; a process of its own beside it.

Servers and a chief's workers never end by themselves, and Azure ML waits for every worker. The chief's
record in the store says that it is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any

from jobs.rank import die_with_parent
from jobs.rank_identity import Identity, RankError
from jobs.rank_store import Container

INTERVAL_S = 2.0
GRACE_S = 2.0
# The chief may be over before this process has begun; a job that Azure ML begins again begins later.
EARLIER_S = 60.0


def served(run_dir: str, rank: int) -> str:
    """The file that says that a rank has served its chief to the end."""
    return f"{run_dir}/served-{rank}"


def watch_chief(settings: dict[str, Any], run_dir: str, rank: int) -> None:
    """Wait until the chief is over, or the input is closed; then end the rank's command."""
    die_with_parent()
    began_s = time.time() - EARLIER_S
    runs = Container(settings["store"], settings["runs"], Identity(dict(os.environ)))
    record = f"{settings['run']}/ranks/{settings['attempt']}/00000.json"
    while not select.select([0], [], [], INTERVAL_S)[0]:
        try:
            # One that is older was left when Azure ML had begun this job before.
            is_over = json.loads(runs.get(record))["ended_s"] > began_s
        except (RankError, KeyError, ValueError):
            continue
        if is_over:
            with open(served(run_dir, rank), "w", encoding="utf-8"):
                pass
            _end(f"{run_dir}/ranks/{rank:05d}.json")
            return


def _end(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        child = json.load(file)["child"]
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, number)
        time.sleep(GRACE_S)
