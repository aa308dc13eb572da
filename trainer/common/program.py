"""Runs a training program as one of the ranks: join, train, leave, exit code."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, NoReturn, Protocol, TypeVar

from trainer.common.errors import TrainingError
from trainer.common.memory import keep_freed_memory
from trainer.common.preemption import EXIT_CODE, Notice, Preempted, events_url
from trainer.common.rundir import RunDir
from trainer.common.training_options import TrainingOptions
from trainer.common.world import RankArguments, World


class CanLeave(Protocol):
    """The end of a framework's strategy."""

    @property
    def waits_to_leave(self) -> bool:
        """Tell whether `shutdown` waits for what other ranks have under way, as NCCL and MultiWorkerMirrored do."""
        ...

    def shutdown(self) -> None:
        """Leave the group; silent where it was never met."""
        ...


S = TypeVar("S", bound=CanLeave)


@dataclass(frozen=True, kw_only=True)
class RanksOf(Generic[S]):
    """One rank among the others, and the folders of its run."""

    world: World
    strategy: S
    run_dir: RunDir
    notice: Notice


def run_ranks(
    options: TrainingOptions,
    make_strategy: Callable[[World], S],
    train: Callable[[RanksOf[S]], None],
    arguments: RankArguments | None = None,
) -> int:
    """Train as one of the ranks; gives the exit code.

    1 with a message on stderr for what the user can mend, 75 once a checkpoint is written after
    a notice to leave. `train` meets the other ranks by the strategy. `arguments` are for World.
    After another error it may end the process, as `group_left` says.
    """
    keep_freed_memory(os.environ)
    try:
        world = World.from_environment(arguments=arguments)
        ranks = RanksOf(
            world=world,
            strategy=make_strategy(world),
            run_dir=RunDir.from_environment(output_dir=options.output_dir),
            notice=Notice(),
        )
        ranks.run_dir.require_outputs()
        ranks.notice.watch(scheduled_events=events_url(options.scheduled_events, world))
        with group_left(ranks.strategy):
            train(ranks)
    except TrainingError as error:
        return _end(1, f"error: {error}")
    except Preempted as leaving:
        return _end(EXIT_CODE, f"preempted: {leaving}")
    return 0


@contextlib.contextmanager
def group_left(strategy: CanLeave) -> Generator[None]:
    """Leave the group after what is done inside, where all ranks end together.

    Where one fails, and to leave would wait for the others, the process ends here: who starts the
    ranks learns of it and ends them, which they would wait for in vain. Its message comes first; what it
    writes is to be on disk before (trainer.common.saver), since nothing waits for threads.
    """
    try:
        yield
    except Preempted:
        strategy.shutdown()
        raise
    except BaseException as error:
        if strategy.waits_to_leave:
            _end_at_once(error)
        strategy.shutdown()
        raise
    strategy.shutdown()


def _end(code: int, last_words: str) -> int:
    sys.stderr.write(f"{last_words}\n")
    sys.stderr.flush()
    return code


def _end_at_once(error: BaseException) -> NoReturn:
    """Say what the interpreter would say of the error, and end without taking anything apart.

    A normal end would take the group apart, too, and may wait for the same.
    """
    code = 1
    with contextlib.suppress(OSError, ValueError):  # nobody reads what it says
        if isinstance(error, TrainingError):
            _end(code, f"error: {error}")
        elif isinstance(error, SystemExit):
            code = _code_of(error)
        else:
            sys.excepthook(type(error), error, error.__traceback__)
            code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        sys.stderr.flush()
        sys.stdout.flush()
    for child in multiprocessing.active_children():  # of loaders; the interpreter would end them
        child.kill()  # a fork has our handler of SIGTERM
    os._exit(code)


def _code_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    sys.stderr.write(f"{error.code}\n")
    return 1
