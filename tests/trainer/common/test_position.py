"""Positions: where a training stands, when it is saved, and which training it is."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from trainer.common.errors import TrainingError
from trainer.common.position import Position, require_same, require_within


def test_batches_make_epochs():
    position = Position()
    seen: list[tuple[int, int, int]] = []
    for _ in range(7):
        position = position.after_batch(3)
        seen.append((position.step, position.epoch, position.batch))
    assert seen == [(1, 0, 1), (2, 0, 2), (3, 1, 0), (4, 1, 1), (5, 1, 2), (6, 2, 0), (7, 2, 1)]
    assert Position(**asdict(position)) == position


@pytest.mark.parametrize(("every", "expected"), [(None, [3, 6]), (2, [2, 4, 6]), (5, [5])])
def test_saved_every_so_many_steps_else_each_epoch(every, expected):
    position = Position()
    due: list[int] = []
    for _ in range(7):
        position = position.after_batch(3)
        if position.is_due(every):
            due.append(position.step)
    assert due == expected


def test_the_same_recipe_is_the_same_training():
    recipe = {"program": "mnist", "seed": 1, "lr": 0.1}
    kept = {"recipe": {**recipe, "more": "that an older program kept"}}
    require_same(kept, recipe, "step-1", defaults={})


def test_what_an_older_program_did_not_know_it_did_by_default():
    about = {"recipe": {"seed": 1}}
    require_same(about, {"seed": 1, "mixup": 0.0}, "step-1", defaults={"mixup": 0.0, "seed": 9})
    with pytest.raises(TrainingError, match=r"mixup 0\.0 there, 0\.2 now"):
        require_same(about, {"seed": 1, "mixup": 0.2}, "step-1", defaults={"mixup": 0.0})


def test_other_values_are_named_with_both():
    about = {"recipe": {"program": "mnist", "seed": 1, "batch_size": 64}}
    with pytest.raises(TrainingError) as refused:
        require_same(
            about, {"program": "mnist", "seed": 2, "batch_size": 32}, "step-1", defaults={}
        )
    assert str(refused.value) == (
        "checkpoint step-1 is of another training: seed 1 there, 2 now, batch_size 64 there, "
        "32 now (hint: use the same values, or choose another --checkpoint-dir)"
    )


@pytest.mark.parametrize("about", [{}, {"recipe": {}}, {"recipe": None}, {"recipe": []}])
def test_checkpoint_of_something_else_is_refused(about):
    with pytest.raises(TrainingError, match="is of another training: seed None there, 1 now"):
        require_same(about, {"seed": 1}, "step-1", defaults={})


def test_lists_are_what_json_made_of_tuples():
    require_same({"recipe": {"sizes": [1, 2]}}, {"sizes": (1, 2)}, "step-1", defaults={})


def test_an_epoch_that_is_begun_counts():
    done = {"position": asdict(Position(step=6, epoch=2))}
    begun = {"position": asdict(Position(step=7, epoch=2, batch=1))}
    require_within(done, 2, "step-6")
    require_within(begun, 3, "step-7")
    with pytest.raises(TrainingError) as refused:
        require_within(begun, 2, "step-7")
    assert str(refused.value) == (
        "checkpoint step-7 is in epoch 3 already, and --epochs is 2 "
        "(hint: --epochs 3 or more, or choose another --checkpoint-dir)"
    )
