"""Saves a training in checkpoints and resumes all ranks from them, whatever its framework."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from statistics import fmean
from typing import Generic, TypeVar

from trainer.common.agreement import require_saved
from trainer.common.checkpoint import BrokenCheckpoint, Checkpoint, CheckpointFolder
from trainer.common.errors import TrainingError
from trainer.common.messages import say, warn
from trainer.common.position import Position, require_same, require_within
from trainer.common.rundir import RunDir
from trainer.common.saver import SaveFailure, Saver
from trainer.common.training_options import TrainingOptions
from trainer.common.world import World

NAME_BYTES = 64
REFUSED = "refused"

# What ranks differ in, of all ranks: generators, batch statistics.
R = TypeVar("R")
V = TypeVar("V")


class CheckpointKeeper(ABC, Generic[R]):
    """Saves and restores one training; a program without a checkpoint folder keeps nothing.

    `restore`, `save` and `save_last` are collectives: every rank calls them at the same step. Rank
    0 writes, all ranks read the same folder. `recipe` is what the steps depend on
    (trainer.common.position), `rate` the learning rate of the step that begins at a position. A framework
    says what its state is and how its ranks talk.
    """

    def __init__(
        self,
        world: World,
        run_dir: RunDir,
        *,
        options: TrainingOptions,
        recipe: Mapping[str, object],
        rate: Callable[[Position], float] | None = None,
    ) -> None:
        self._rate = rate
        self._world = world
        self._every = options.checkpoint_every
        self._seed = options.seed
        self._recipe = dict(recipe)
        self._defaults = {each.name: each.default for each in fields(options)}
        self._saver: Saver | None = None
        self._resumed_from: int | None = None
        self._begun_step: int | None = None
        self._blocked_s: list[float] = []
        root = options.checkpoint_dir or run_dir.checkpoints
        self._folder: CheckpointFolder | None = None
        if root is not None:
            self._folder = CheckpointFolder(
                root, keep_last=options.keep_last, keep_every=options.keep_every
            )
            if world.is_main:
                self._saver = Saver(self._folder, on_error=options.on_checkpoint_error, warn=warn)

    # --- what a framework brings ---------------------------------------------------------------

    @abstractmethod
    def _gather_ranks(self) -> R:
        """Give all ranks what each of them has of its own; a collective."""

    @abstractmethod
    def _copy(self, ranks: R) -> Callable[[], Mapping[str, bytes]]:
        """Copy the state; what is given back turns the copy into files, on another thread."""

    @abstractmethod
    def _put_back(self, files: Mapping[str, bytes], *, was_size: int, position: Position) -> None:
        """Put the files' state back, which `was_size` ranks had at this position."""

    @abstractmethod
    def _tell(self, data: bytes) -> bytes:
        """Give all ranks rank 0's bytes, equally many on each; a collective."""

    @abstractmethod
    def _count(self, number: int) -> int:
        """Give all ranks the sum of their numbers; a collective."""

    def _own_of(self, ranks: Mapping[str, V]) -> dict[str, V]:
        """Choose this rank's own state of all ranks', whose names begin with the rank."""
        prefix = f"{self._world.rank}/"
        of_rank = (key for key in ranks if key.startswith(prefix))
        return {key.removeprefix(prefix): ranks[key] for key in of_rank}

    # --- saving --------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """True if there is a folder to save checkpoints in."""
        return self._folder is not None

    @property
    def failure(self) -> SaveFailure:
        """Give the reason to stop training for a checkpoint that could not be written."""
        return SaveFailure.NONE if self._saver is None else self._saver.failure

    def is_due(self, position: Position) -> bool:
        """Tell whether a checkpoint is to be saved at this position."""
        return self.is_on and position.is_due(self._every)

    def save(self, position: Position) -> None:
        """Begin to save; training may go on while it is written."""
        if not self.is_on:
            return
        self._begun_step = position.step
        began_s = time.perf_counter()
        ranks = self._gather_ranks()
        if self._saver is None:
            return
        gathered_s = time.perf_counter() - began_s
        self._saver.wait()  # before the copy is made, or there would be two
        about = {
            "recipe": self._recipe,
            "world_size": self._world.size,
            "position": asdict(position),
            **({"rate": self._rate(position)} if self._rate else {}),
        }
        began_s = time.perf_counter()
        copy = self._copy(ranks)
        self._blocked_s.append(gathered_s + time.perf_counter() - began_s)
        self._saver.save(position.step, copy, about)

    def save_last(self, position: Position) -> bool:
        """Save unless that is done or under way; blocks. Tells all ranks whether it is kept.

        Nothing is saved of a training that took no step, nor of an evaluation.
        """
        if not self.is_on or not position.step:
            return False
        if position.step == self._resumed_from:
            return True
        if self._begun_step != position.step:
            self.save(position)
        self.close()
        is_kept = self._saver is not None and self._saver.saved_step == position.step
        return self._count(int(is_kept)) > 0

    def finish(self, *, hint: str) -> None:
        """Wait for the last checkpoint, with all ranks; after the last step is settled.

        Raises TrainingError, on all ranks, where training was to stop for it.
        """
        self.close()
        require_saved(self._count(self.failure), self._begun_step or 0, hint=hint)

    def figures(self) -> dict[str, object]:
        """Give the summary's figures of checkpoints.

        `checkpoint_blocking_s` is how long training stands still for one, but for the one before.
        """
        saver = self._saver
        blocked_s = round(fmean(self._blocked_s), 6) if self._blocked_s else None
        return {
            "resumed_from_step": self._resumed_from,
            "checkpoints_saved": saver.num_saved if saver else 0,
            "checkpoints_failed": saver.num_failed if saver else 0,
            "checkpoint_blocking_s": blocked_s,
        }

    def close(self) -> None:
        """Wait for the last checkpoint."""
        if self._saver is not None:
            self._saver.wait()

    # --- going on ------------------------------------------------------------------------------

    def restore(self, num_epochs: int) -> Position:
        """Go on from the newest whole checkpoint, if there is one; gives the position to start at.

        Raises TrainingError, on all ranks, where it is of another training, or beyond `num_epochs`,
        or a rank cannot read it.
        """
        if self._folder is None:
            return Position()
        found = self._agree(self._folder, num_epochs)
        if found is None:
            return Position()
        position = Position(**found.about["position"])
        self._resumed_from = position.step
        was_size = found.about["world_size"]
        try:
            self._put_back(found.files, was_size=was_size, position=position)
        except (KeyError, TypeError, ValueError) as error:
            message = f"checkpoint {found.name} is whole, but not of this program: {error!r}"
            raise TrainingError(message, hint="another --checkpoint-dir") from None
        if self._world.is_main:
            size = self._world.size
            ranks = "" if was_size == size else f"; world size {was_size} there, {size} now"
            say(f"resumed at step {position.step} from {found.name}{ranks}")
            self._warn_of_another_plan(found, position)
        return position

    def _warn_of_another_plan(self, found: Checkpoint, position: Position) -> None:
        """Tell of a rate that jumps: schedules, and some warm-ups, are parts of all epochs, which may change."""
        planned = found.about.get("rate")
        if self._rate is None or not isinstance(planned, float):
            return
        rate = self._rate(position)
        if not math.isclose(planned, rate, rel_tol=1e-6, abs_tol=1e-12):
            jump = (
                f"the learning rate of step {position.step + 1} was to be {planned:g}, is {rate:g}"
            )
            warn(
                f"{jump}: the number of epochs, by which schedules go, or a warm-up is another now"
            )

    def _agree(self, folder: CheckpointFolder, num_epochs: int) -> Checkpoint | None:
        """Read the checkpoint that rank 0 chose on every rank; raises where one cannot."""
        found, error = self._choose(folder, num_epochs) if self._world.is_main else (None, None)
        chosen = REFUSED if error else found.name if found else ""
        name = self._tell(chosen.encode().ljust(NAME_BYTES, b"\0")).rstrip(b"\0").decode()
        if error is not None:
            raise error
        if name == REFUSED:
            message = "rank 0 refused the checkpoint; its message says why"
            raise TrainingError(message)
        if not name:
            return None
        if found is None:
            try:
                found = folder.read(name)
            except (BrokenCheckpoint, TrainingError) as broken:
                warn(f"rank {self._world.rank} cannot read checkpoint {name}: {broken}")
        if self._count(int(found is not None)) != self._world.size:
            message = f"not every rank can read checkpoint {name}"
            raise TrainingError(message, hint="all nodes must see the same --checkpoint-dir")
        return found

    def _choose(
        self, folder: CheckpointFolder, num_epochs: int
    ) -> tuple[Checkpoint | None, TrainingError | None]:
        try:
            found = folder.newest(warn)
            if found is not None:
                require_same(found.about, self._recipe, found.name, defaults=self._defaults)
                require_within(found.about, num_epochs, found.name)
        except TrainingError as error:
            return None, error
        except OSError as error:
            message = f"the checkpoints in `{folder.root}` cannot be read: {error.strerror}"
            return None, TrainingError(message, hint="another --checkpoint-dir")
        return found, None
