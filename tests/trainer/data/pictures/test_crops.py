"""Random crops stay inside the picture, are spread as the paper says, and depend on the seed only.

tests/integration/test_loader.py compares their spread with torchvision's.
"""

import math
from statistics import mean

import pytest

from tests import seeds
from trainer.data.pictures.crops import Crop, center_crop, picture_rng, random_crop

SIZES = [(500, 375), (375, 500), (32, 32), (1, 1), (1, 900), (900, 1), (7, 3)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_crop_lies_inside_its_picture(width, height):
    rng = seeds.dice(1)
    for _ in range(500):
        left, top, right, bottom = random_crop(width, height, rng).box
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_areas_and_aspects_are_spread_evenly_and_half_is_mirrored():
    rng = seeds.dice(2)
    crops = [random_crop(1000, 1000, rng) for _ in range(20_000)]
    aspects = [math.log(crop.width / crop.height) for crop in crops]
    assert mean(aspects) == pytest.approx(0.0, abs=0.01)
    assert max(map(abs, aspects)) == pytest.approx(math.log(4 / 3), abs=0.02)
    areas = sorted(crop.width * crop.height / 1e6 for crop in crops)
    assert areas[0] == pytest.approx(0.08, abs=0.005)
    # Wide crops of nearly the whole area do not fit and are drawn again.
    assert areas[len(areas) // 2] == pytest.approx(0.5, abs=0.03)
    assert mean(crop.is_flipped for crop in crops) == pytest.approx(0.5, abs=0.02)


def test_a_picture_too_long_for_any_try_is_cropped_in_its_middle():
    assert random_crop(900, 3, seeds.dice(3)).box == (448, 0, 452, 3)
    assert random_crop(3, 900, seeds.dice(3)).box == (0, 448, 3, 452)


def test_a_pictures_crop_depends_on_seed_epoch_and_index_only():
    crops = {
        (seed, epoch, index): random_crop(500, 375, picture_rng(seed, epoch, index))
        for seed in (1, 2)
        for epoch in (1, 2)
        for index in (0, 1, 11)
    }
    again = {key: random_crop(500, 375, picture_rng(*key)) for key in reversed(crops)}
    assert again == crops
    assert len({crop.box for crop in crops.values()}) == len(crops)


def test_crops_stay_the_same_from_release_to_release():
    crop = random_crop(500, 375, picture_rng(1, 1, 0))
    assert crop == Crop(left=70, top=47, width=344, height=314, is_flipped=False)


def test_the_center_is_seven_eighths_of_the_shorter_side():
    assert center_crop(0, 500, 256).box == (138, 16, 362, 240)
    assert center_crop(1, 256, 500).box == (16, 138, 240, 362)
    assert center_crop(2, 1, 5).box == (0, 2, 1, 3)
