"""The C that reads strangers' JPEGs leaves no buffer, whatever it is given."""

from __future__ import annotations

import pytest

from tests.campaign import campaign
from tests.fuzz import jpeg_crop

LONG, CHUNK = 10_000_000, 250_000


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return jpeg_crop.build(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return jpeg_crop.make_seeds(tmp_path_factory.mktemp("seeds"))


@pytest.mark.parametrize("number", [2500, 10_000])
def test_damaged_pictures_are_borne(program, seeds, number):
    outcomes = jpeg_crop.run(program, seeds, number=number)
    assert sum(outcomes.values()) - outcomes["inputs"] <= outcomes["inputs"] == number
    # Damage is met at every depth: in the header, in the code words, and by nobody.
    assert min(outcomes.values()) >= number // 20, outcomes


def test_a_byte_beyond_a_buffer_is_told_of(program, seeds, tmp_path, monkeypatch):
    wrong = tmp_path / "jpeg_crop_fuzz.c"
    text = jpeg_crop.SOURCE.read_text(encoding="utf-8")
    assert "malloc((size_t)side * side * 3)" in text
    text = text.replace("../../trainer", f"{jpeg_crop.SOURCE.parents[2]}/trainer")
    wrong.write_text(text.replace("side * side * 3)", "side * side * 3 - 1)"), encoding="utf-8")
    monkeypatch.setattr(jpeg_crop, "SOURCE", wrong)
    with pytest.raises(AssertionError, match=r"(?s)heap-buffer-overflow.*input \d+"):
        jpeg_crop.run(jpeg_crop.build(tmp_path), seeds, number=100)


@pytest.mark.faults
@pytest.mark.timeout(3000)
def test_ten_million_damaged_pictures_are_borne(program, seeds):
    num_survived = 0
    for first in range(0, LONG, CHUNK):
        outcomes = jpeg_crop.run(program, seeds, number=CHUNK, seed=16, first=first)
        num_survived += outcomes["inputs"]
    campaign("inputs to the JPEG cropper under sanitizers", tried=LONG, survived=num_survived)
    assert num_survived == LONG
