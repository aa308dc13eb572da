"""Runs tasks in processes of this machine's cores; they end with the process that began them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def num_cores() -> int:
    """Give the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_tasks(
    act: Callable[[Task], Result], tasks: Iterable[Task], *, num_workers: int
) -> Generator[Result, None, None]:
    """Yield each task's result as soon as it is there, in any order; tasks are taken as needed.

    With one worker they run in this process. An error of a task is raised here, and a Ctrl-C too,
    when the tasks that are under way are over.
    """
    if num_workers == 1:
        yield from map(act, tasks)
        return
    pool = ProcessPoolExecutor(
        num_workers,
        mp_context=multiprocessing.get_context(_start_method()),
        initializer=_prepare_worker,
    )
    waiting: set[Future[Result]] = set()
    try:
        for task in tasks:
            waiting.add(pool.submit(act, task))
            if len(waiting) >= 2 * num_workers:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        pool.shutdown(cancel_futures=True)


def _start_method() -> str:
    """Choose fork, which starts at once, unless other threads may hold locks that it would copy."""
    is_alone = threading.active_count() == 1
    return "fork" if sys.platform == "linux" and is_alone else "spawn"


def _prepare_worker() -> None:
    # Ctrl-C goes to all processes of a terminal; the first of them decides for all.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
