"""Names what a removal of runs leaves behind while it is under way, and what protects a run."""

from __future__ import annotations

from pathlib import Path

from jobs.contracts.errors import Refused
from jobs.host.disk import REMOVED, put_away_in
from jobs.runs.store import RUN_ID

# In the folder of a run that its user keeps.
KEPT = "kept"


def removed_folder(run_dir: Path) -> Path:
    """Give the name that a run's folder has while it is being removed."""
    return run_dir.with_name(f"{REMOVED}{run_dir.name}")


def removal_cut_off(runs: Path) -> list[str]:
    """List the ids of the runs whose folder was renamed and is still there."""
    return [each for each in put_away_in(runs) if RUN_ID.fullmatch(each)]


def not_over(run: str) -> Refused:
    """Make the error for a run that may still change."""
    return Refused(f"{run} is not over", hint=f"launch cancel {run}, then launch rm {run}")
