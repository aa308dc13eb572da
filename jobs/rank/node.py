"""Prepares a rank's folder, keeps its record and lets it leave, on a node with a supervisor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from jobs.rank.folder import copy_tree
from jobs.rank.record import Ending, Record, has_ended, write_record
from jobs.rank.world import RankJob, World

PREEMPTED_EXIT_CODE = 75
# How long a rank that ended with an error stays for the others, if its end is theirs.
LINGER_S = 2.5
LINGER_FOR_CHECKPOINT_S = 10.0


class Unprepared(Exception):
    """The node's folder cannot be made: the reason and the remedy."""


def unprepared(folder: str, error: OSError) -> Unprepared:
    """Word what the system refused while a node's folder was made."""
    name = error.filename2 or error.filename
    where = f"`{os.fsdecode(name)}`: " if isinstance(name, (str, bytes)) and name != folder else ""
    return Unprepared(
        f"cannot prepare the node's folder `{folder}`: {where}{error.strerror or error} "
        "(hint: free some space, or correct the folder's permissions)"
    )


class Node:
    """A rank's node on a machine with a supervisor; engines without one override what differs."""

    def __init__(self, job: RankJob, world: World) -> None:
        self.job, self.world = job, world

    def prepare_folder(self, folder: str) -> None:
        """Copy the run's code, and what comes with it, into the new folder; raises Unprepared or OSError."""
        copy_tree(f"{self.job.run_dir}/code", folder)

    def judge(self, ending: Ending) -> Ending:
        """Give the ending that the rank is to be recorded with."""
        return ending

    def note_output(self) -> None:
        """Take note that the command has written something; a supervisor sees it by the log."""

    def save_record(self, record: Record) -> None:
        """Write the rank's record; the rank is over if `ended_s` is set."""
        write_record(self.job.run_dir, record)

    def before_leaving(self, code: int, is_told: Callable[[], bool]) -> None:
        """Wait for what has to be done before the rank's process ends, unless told to leave."""
        if code and self.job.leave_together:
            linger(code, self._are_others_over, is_told)

    def _are_others_over(self) -> bool:
        return all(has_ended(self.job.run_dir, rank) for rank in range(self.world.size))


def linger(code: int, is_over: Callable[[], bool], is_told: Callable[[], bool]) -> None:
    """Stay until the other ranks have ended, too, or this one is told to go (once more).

    mpirun kills all others half a second after one has left with an error: the one that
    writes the checkpoint, or the guilty one that is slower to leave than those it left behind.
    """
    timeout_s = LINGER_FOR_CHECKPOINT_S if code == PREEMPTED_EXIT_CODE else LINGER_S
    wait_until(is_over, is_told, timeout_s)


def wait_until(is_so: Callable[[], bool], is_told: Callable[[], bool], timeout_s: float) -> None:
    """Look every 50 ms until it is so, somebody asks to leave, or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not is_told() and time.monotonic() < deadline and not is_so():
        time.sleep(0.05)
