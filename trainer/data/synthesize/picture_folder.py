"""Finds the folder of class folders that a program trains on: the user's, or a set made on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.common.program import RanksOf
from trainer.data.synthesize.folders import default_folder
from trainer.data.synthesize.stripes import make_pictures

SYNTHETIC = "synthetic"


@dataclass(frozen=True, kw_only=True)
class MadeSet:
    """Hold the size of a synthetic set; `size` is the side of its pictures in pixels."""

    names: Sequence[str] | None = None
    num_classes: int
    num_train: int
    size: int
    seed: int

    @property
    def num_val(self) -> int:
        """Count validation pictures: a quarter of the training set, at least one per class."""
        return max(self.num_classes, self.num_train // 4)


def picture_folder(
    data: str | None, made: MadeSet, ranks: RanksOf[Any], *, input_name: str
) -> Path:
    """Give the folder that `data` names, or else the run's input; a collective.

    For `synthetic` it is that of the made set, which is made once on each node.
    """
    if data != SYNTHETIC:
        return Path(data) if data else ranks.run_dir.input(input_name)
    arguments: dict[str, Any] = asdict(made) | {"num_val": made.num_val}
    folder = default_folder(**arguments)
    if ranks.world.local_rank == 0:
        make_pictures(folder, **arguments)
    ranks.strategy.barrier()
    return folder
