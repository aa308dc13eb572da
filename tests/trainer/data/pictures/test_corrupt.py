"""Corrupt pictures of a batch: others stand in for them, and a batch of none but corrupt ones says so."""

from __future__ import annotations

import pytest

from trainer.common.errors import TrainingError
from trainer.data.pictures.corrupt import CorruptPictures, places_without
from trainer.data.pictures.header import CorruptPicture


def corrupt(*places: int) -> dict[int, CorruptPicture]:
    return {place: CorruptPicture(f"{place}.jpg", f"`{place}.jpg` is cut off") for place in places}


def test_others_of_the_batch_stand_in_where_it_is_filled():
    counted = CorruptPictures(5)
    assert places_without(corrupt(0, 2, 3), 5, counted=counted, is_filled=True) == [1, 4, 1, 4, 1]
    assert places_without(corrupt(0, 2, 3), 5, counted=counted, is_filled=False) == [1, 4]
    assert places_without(corrupt(0), 1, counted=counted, is_filled=False) == []
    assert counted.num_skipped == 7


def test_one_too_many_lets_the_training_end_in_its_own_time(capsys):
    failures: list[TrainingError] = []
    counted = CorruptPictures(2, fail=failures.append)
    given = corrupt(0, 1, 2, 3)
    for place in (0, 1, 2, 3, 2):
        counted.skip(given[place])
    hint = "(hint: get the file again, or take it away)"
    why = "corrupt pictures are more than --max-corrupt 2: `{}.jpg` is cut off " + hint
    assert [str(each) for each in failures] == [f"{n + 1} {why.format(n)}" for n in (2, 3)]
    ends = ["", "", " and training ends", " and training ends"]
    assert capsys.readouterr().err == "".join(
        f"warning: `{n}.jpg` is cut off; it is skipped{end}, {n + 1} of at most 2\n"
        for n, end in enumerate(ends)
    )


def test_a_batch_that_is_corrupt_throughout_says_why_it_ends_the_training():
    """Below the limit, so that the limit's message did not come."""
    with pytest.raises(TrainingError) as caught:
        places_without(corrupt(0, 1), 2, counted=CorruptPictures(5), is_filled=True)
    assert str(caught.value) == (
        "all 2 pictures of a rank's batch are corrupt, and none can stand in: `0.jpg` is cut off "
        "(hint: a larger batch, or the data set without them)"
    )


def test_a_corrupt_picture_is_an_error_where_none_is_skipped():
    for counted in (None, CorruptPictures(0)):
        with pytest.raises(CorruptPicture, match=r"1\.jpg"):
            places_without(corrupt(1), 2, counted=counted, is_filled=True)
