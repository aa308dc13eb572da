"""Keeps a TensorFlow or Keras training on disk: what is saved of all ranks, how they go on from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import keras
import numpy as np
import tensorflow as tf

from trainer.common.checkpoint import BrokenCheckpoint, Checkpoint, CheckpointFolder
from trainer.common.errors import TrainingError
from trainer.common.position import Position, require_same
from trainer.common.saver import Saver
from trainer.common.speech import warn
from trainer.common.training_options import TrainingOptions
from trainer.tf.state import (
    Arrays,
    rank_state,
    read_files,
    restore_rank_state,
    restore_snapshot,
    seed_generators,
    take_snapshot,
    write_statistics,
)
from trainer.tf.strategy import Ranks

NAME_BYTES = 64
REFUSED = "refused"


class Keeper:
    """Saves and restores one training; a program without a checkpoint folder keeps nothing.

    `restore` and `save` are collectives: every rank calls them at the same step. Rank 0 writes,
    all ranks read the same folder. `recipe` is what the steps depend on (trainer.common.position).
    The optimizer must be built.
    """

    def __init__(
        self,
        network: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        ranks: Ranks,
        *,
        options: TrainingOptions,
        recipe: Mapping[str, object],
    ) -> None:
        self._network = network
        self._optimizer = optimizer
        self._strategy = ranks.strategy
        self._world = ranks.world
        self._every = options.checkpoint_every
        self._seed = options.seed
        self._recipe = dict(recipe)
        self._saver: Saver | None = None
        self._resumed_from: int | None = None
        self._begun_step: int | None = None
        root = options.checkpoint_dir or ranks.run_dir.checkpoints
        self._folder: CheckpointFolder | None = None
        if root is not None:
            self._folder = CheckpointFolder(
                root, keep_last=options.keep_last, keep_every=options.keep_every
            )
            if ranks.world.is_main:
                self._saver = Saver(self._folder, on_error=options.on_checkpoint_error, warn=warn)

    @property
    def is_on(self) -> bool:
        """Whether there is a folder to keep anything in."""
        return self._folder is not None

    @property
    def has_failed(self) -> bool:
        """Whether a checkpoint could not be written and training is to stop for it."""
        return self._saver is not None and self._saver.has_failed

    def restore(self) -> Position:
        """Go on from the newest whole checkpoint, if there is one; gives the position to start at.

        Raises TrainingError, on all ranks, where it is of another training or a rank cannot read it.
        """
        if self._folder is None:
            return Position()
        found = self._agree(self._folder)
        if found is None:
            return Position()
        position = Position(**found.about["position"])
        self._resumed_from = position.step
        snapshot = read_files(found.files)
        restore_snapshot(snapshot, self._network, self._optimizer)
        was_size = found.about["world_size"]
        self._restore_rank(snapshot.ranks, was_size, position)
        if self._world.is_main:
            size = self._world.size
            ranks = "" if was_size == size else f"; world size {was_size} there, {size} now"
            print(f"resumed at step {position.step} from {found.name}{ranks}", flush=True)
        return position

    def is_due(self, position: Position) -> bool:
        """Whether to save here."""
        return self.is_on and position.is_due(self._every)

    def save(self, position: Position) -> None:
        """Begin to save; training may go on while it is written."""
        if not self.is_on:
            return
        self._begun_step = position.step
        ranks = self._gather(rank_state(self._network))
        if self._saver is None:
            return
        self._saver.wait()  # before the copy is made, or there would be two
        snapshot = take_snapshot(self._network, self._optimizer, ranks=ranks)
        about = {
            "recipe": self._recipe,
            "world_size": self._world.size,
            "position": asdict(position),
        }
        self._saver.save(position.step, snapshot.files, about)

    def save_last(self, position: Position) -> bool:
        """Save unless that is done or under way; blocks. Tells all ranks whether it is kept."""
        if not self.is_on:
            return False
        if self._begun_step != position.step:
            self.save(position)
        self.close()
        is_kept = self._saver is not None and self._saver.saved_step == position.step
        return self._count(is_kept) > 0

    def figures(self) -> dict[str, object]:
        """What the summary says of checkpoints."""
        saver = self._saver
        return {
            "resumed_from_step": self._resumed_from,
            "checkpoints_saved": saver.num_saved if saver else 0,
            "checkpoints_failed": saver.num_failed if saver else 0,
        }

    def close(self) -> None:
        """Wait for the last checkpoint."""
        if self._saver is not None:
            self._saver.wait()

    # --- going on ------------------------------------------------------------------------------

    def _agree(self, folder: CheckpointFolder) -> Checkpoint | None:
        """Read the checkpoint that rank 0 chose on every rank; raises where one cannot."""
        found, error = self._choose(folder) if self._world.is_main else (None, None)
        name = self._tell(REFUSED if error else found.name if found else "")
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
        if self._count(found is not None) != self._world.size:
            message = f"not every rank can read checkpoint {name}"
            raise TrainingError(message, hint="all nodes must see the same --checkpoint-dir")
        return found

    def _choose(self, folder: CheckpointFolder) -> tuple[Checkpoint | None, TrainingError | None]:
        try:
            found = folder.newest(warn)
            if found is not None:
                require_same(found.about, self._recipe, found.name)
        except TrainingError as error:
            return None, error
        except OSError as error:
            message = f"the checkpoints in `{folder.root}` cannot be read: {error.strerror}"
            return None, TrainingError(message, hint="another --checkpoint-dir")
        return found, None

    def _tell(self, text: str) -> str:
        """Give rank 0's text to all ranks."""
        data = np.frombuffer(text.encode().ljust(NAME_BYTES, b"\0"), np.uint8)
        return self._strategy.gather(data)[0].tobytes().rstrip(b"\0").decode()

    def _count(self, is_so: bool) -> int:
        """Give on how many ranks it is so."""
        return round(float(self._strategy.sum(tf.constant(float(is_so)), "count")))

    def _restore_rank(
        self, ranks: Mapping[str, np.ndarray], was_size: int, position: Position
    ) -> None:
        if was_size == self._world.size:
            prefix = f"{self._world.rank}/"
            own = {
                key.removeprefix(prefix): value
                for key, value in ranks.items()
                if key.startswith(prefix)
            }
            restore_rank_state(own, self._network)
            return
        # Batch statistics: the mean of the ranks'. Dropout: another stream for each new rank.
        mean = np.mean([ranks[f"{rank}/buffers"] for rank in range(was_size)], axis=0)
        write_statistics(self._network, mean)
        seed_generators(self._network, f"{self._seed}/{position.step}/{self._world.rank}")

    def _gather(self, own: Mapping[str, np.ndarray]) -> Arrays:
        gathered: Arrays = {}
        for key, value in own.items():
            parts = self._strategy.gather(value) if value.size else [value] * self._world.size
            for rank, part in enumerate(parts):
                gathered[f"{rank}/{key}"] = np.array(part, order="C")
        return gathered
