"""Looks at the ranks of a run that is on, and runs commands beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from jobs.contracts.errors import EnvironmentFailure, Refused
from jobs.contracts.spec import RunHandle
from jobs.engines.base import Beside
from jobs.engines.local.containers import exec_argv, find_program
from jobs.engines.local.launchers import GangRequest
from jobs.host.processes import MARK, leftovers, read_variables, supervisors_of
from jobs.host.untrusted import read_json
from jobs.runs.failure import RankReport


def command_processes(handle: RunHandle, request: GangRequest) -> dict[int, int]:
    """Give the process of each rank's command, of the ranks whose command runs."""
    run_dir = Path(handle.run_dir)
    # The records lie where the job's own program may write: they are believed only about
    # processes that are known to be the run's.
    own = {
        each.pid
        for supervisor in supervisors_of(run_dir)
        for each in leftovers(supervisor, run_dir)
    }
    reports = [_report(run_dir, each.rank) for each in request.ranks]
    return {
        each.rank: each.child
        for each in reports
        if each is not None and each.ended_s is None and each.child in own
    }


def beside(handle: RunHandle, request: GangRequest, rank: int, words: Sequence[str]) -> Beside:
    """Describe a command in the folder, with the variables and in the image of a rank's.

    Raises Refused where the run has no such rank, or its command does not run.
    """
    ranks = {each.rank for each in request.ranks}
    if rank not in ranks:
        message = f"run {handle.id} has no rank {rank}"
        raise Refused(message, hint=f"its ranks are 0 to {max(ranks)}")
    pid = command_processes(handle, request).get(rank)
    if pid is None:
        message = f"the command of rank {rank} does not run"
        raise Refused(message, hint=f"launch show {handle.id}")
    if request.container is not None:
        program = find_program(os.environ)
        environ = {**os.environ, **program.environ}
        argv = exec_argv(program, Path(handle.run_dir), rank, pid, words)
        return Beside(argv=tuple(argv), environ=environ, folder=handle.run_dir)
    variables = [each.partition(b"=") for each in read_variables(pid)]
    environ = {os.fsdecode(name): os.fsdecode(value) for name, _, value in variables if name}
    try:
        folder = str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        environ = {}
        folder = ""
    if not environ:
        message = f"the command of rank {rank} has just ended"
        raise EnvironmentFailure(message, hint=f"launch show {handle.id}")
    # It is not the run's: it may outlive it.
    environ.pop(MARK, None)
    return Beside(argv=tuple(words), environ=environ, folder=folder)


def _report(run_dir: Path, rank: int) -> RankReport | None:
    try:
        return read_json(run_dir / "ranks" / f"{rank:05d}.json", RankReport)
    except (OSError, msgspec.DecodeError):
        return None
