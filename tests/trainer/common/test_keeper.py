"""The keeper: all ranks save and resume alike, whatever one of them meets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from trainer.common.errors import TrainingError
from trainer.common.keeper import CheckpointKeeper
from trainer.common.position import Position
from trainer.common.rundir import RunDir
from trainer.common.training_options import TrainingOptions
from trainer.common.world import World

RECIPE = {"program": "tiny", "seed": 1}


class Tiny(CheckpointKeeper[str]):
    """Keeps one text. Collectives are answered for the other ranks: what rank 0 told, and how many
    of them can do what this one can."""

    told = b""
    num_others = 0
    copies = 0
    restored: tuple[str, int, Position] | None = None

    def _gather_ranks(self) -> str:
        return "of all ranks"

    def _copy(self, ranks: str) -> Callable[[], Mapping[str, bytes]]:
        self.copies += 1
        return lambda: {"state.json": ranks.encode()}

    def _put_back(self, files: Mapping[str, bytes], *, was_size: int, position: Position) -> None:
        self.restored = files["state.json"].decode(), was_size, position

    def _tell(self, data: bytes) -> bytes:
        return data if self._world.is_main else self.told

    def _count(self, number: int) -> int:
        return number + self.num_others


def keeper(
    root: Path,
    world: World,
    *,
    recipe: Mapping[str, object] = RECIPE,
    rate: Callable[[Position], float] | None = None,
) -> Tiny:
    return Tiny(
        world,
        RunDir(path=root, outputs=root),
        options=TrainingOptions(checkpoint_dir=root / "checkpoints", checkpoint_every=2),
        recipe=recipe,
        rate=rate,
    )


def test_the_last_step_is_saved_once_and_resumed(tmp_path):
    first = keeper(tmp_path, World(rank=0, size=2))
    began_s = time.monotonic()
    first.save(Position(step=2, batch=2))
    assert first.save_last(Position(step=2, batch=2))
    assert first.save_last(Position(step=3, epoch=1))
    assert (first.copies, first.figures()["checkpoints_saved"]) == (2, 2)
    assert 0 < first.figures()["checkpoint_blocking_s"] < time.monotonic() - began_s
    assert not keeper(tmp_path / "new", World()).save_last(Position())

    again = keeper(tmp_path, World(rank=0, size=2))
    again.num_others = 1
    assert again.restore(num_epochs=2) == Position(step=3, epoch=1)
    assert again.restored == ("of all ranks", 2, Position(step=3, epoch=1))
    # It is there, also where the training that goes on from it is left at once.
    assert again.save_last(Position(step=3, epoch=1))
    assert again.copies == 0
    assert again.figures()["resumed_from_step"] == 3


def test_no_rank_goes_on_where_one_cannot_read(tmp_path):
    keeper(tmp_path, World(rank=0, size=1)).save_last(Position(step=1, epoch=1))
    main = keeper(tmp_path, World(rank=0, size=3))
    main.num_others = 1
    with pytest.raises(TrainingError, match="not every rank can read checkpoint"):
        main.restore(num_epochs=2)
    assert main.restored is None


def test_other_ranks_end_where_rank_0_refuses(tmp_path):
    keeper(tmp_path, World(rank=0, size=1)).save_last(Position(step=1, epoch=1))
    with pytest.raises(TrainingError, match="of another training: seed 1 there, 2 now"):
        keeper(tmp_path, World(rank=0, size=2), recipe={**RECIPE, "seed": 2}).restore(2)
    other = keeper(tmp_path, World(rank=1, size=2))
    other.told = b"refused".ljust(64, b"\0")
    with pytest.raises(TrainingError, match="rank 0 refused the checkpoint"):
        other.restore(2)


@pytest.mark.parametrize(("rate", "is_told"), [(0.001, True), (0.0001, False)])
def test_a_learning_rate_that_jumps_is_told(tmp_path, capsys, rate, is_told):
    """90 epochs resumed with 120: the rate rises ten-fold where it was to stay."""
    first = keeper(tmp_path, World(rank=0, size=1), rate=lambda _position: 0.0001)
    first.save_last(Position(step=1, epoch=1))
    again = keeper(tmp_path, World(rank=0, size=1), rate=lambda _position: rate)
    assert again.restore(num_epochs=2) == Position(step=1, epoch=1)
    said = "warning: the learning rate of step 2 was to be 0.0001, is 0.001: the number of"
    assert (said in capsys.readouterr().err) == is_told
