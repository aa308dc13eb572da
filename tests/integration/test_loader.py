"""The loader's pictures are those of other decoders, and its crops are spread like torchvision's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.fakes.hostile_pictures import damaged_pngs, hostile_pictures
from trainer.data.synthesize.stripes import make_pictures

CHECKS = "tests.integration.programs.picture_checks"
WHAT = ("crops", "batches", "decoders", "formats", "broken", "corrupt")


@pytest.fixture(scope="module")
def found(zygote, tmp_path_factory) -> dict[str, Any]:
    """What the checks found in the runtime."""
    folder = tmp_path_factory.mktemp("pictures") / "set"
    make_pictures(folder, num_classes=2, num_train=6, num_val=2, size=90, seed=3)
    return json.loads(zygote.run(CHECKS, "check", str(folder), *WHAT, folder=folder))


def test_crops_are_spread_like_torchvisions(found):
    assert len(found["crops"]) == 3
    for size, crops in found["crops"].items():
        assert crops["torchvision"], size
        for name, theirs in crops["torchvision"].items():
            assert crops["ours"][name] == pytest.approx(theirs, abs=0.03), (size, name)


def test_batches_hold_what_other_decoders_see_however_many_decode(found):
    batches = {**found["batches"]}
    worst = batches.pop("worst_difference")
    assert batches == {
        "samples": [[3, 0, 2], [], [1, 4]],
        "labels": [[1, 0, 0], [], [0, 1]],
        "shapes": [[3, 3, 32, 32], [0, 3, 32, 32], [2, 3, 32, 32]],
        "is_channels_last": True,
        "workers_change_nothing": [True, True],
        "num_threads_after": 2,
        "threads_of_workers": 1,
        "counts_its_pictures": True,
    }
    assert worst <= 2  # of 255: libjpeg's versions round differently


def test_every_usual_format_is_three_colours_of_bytes(found):
    formats = found["formats"]["formats"]
    assert {tuple(shape) for shape, _ in formats.values()} == {(10, 20, 3)}
    for name in ("RGB JPEG", "CMYK JPEG", "RGB PNG", "P PNG", "RGBA PNG"):
        assert formats[name][1] == pytest.approx([200, 100, 50], abs=5), name
    for name in ("L JPEG", "LA PNG"):
        assert formats[name][1] == pytest.approx([124, 124, 124], abs=2), name


def test_a_picture_that_libjpeg_turbo_warns_of_is_decoded(found):
    assert found["formats"]["stray"] == [True, True]


def test_a_file_that_is_no_whole_picture_is_named(found):
    said = found["broken"]
    files = {"empty", "text", "cut", "header", "deep", "deep colours"}
    assert set(said) == {*files, *damaged_pngs(), *hostile_pictures()}
    hint = "(hint: get the file again, or take it away)"
    for name in ("deep", "deep colours"):
        why = "has more than 8 bits a colour (hint: convert it to 8 bits)"
        assert said[name] == f"`DIR/x.jpg` {why}"
    # By torchvision's decoder of PNGs each of them ended the process.
    for name in damaged_pngs():
        assert said[name].startswith("`DIR/x.jpg` is not a complete picture: ")
        assert said[name].endswith(hint)
        assert " at 0x" not in said[name]
    for name in ("huge JPEG", "huge PNG"):
        why = "65500 x 65500 pixels are more than 89,478,485"
        assert said[name] == f"`DIR/x.jpg` is not a complete picture: {why} {hint}"
    for name in ("empty", "text", "GIF"):
        assert said[name] == f"`DIR/x.jpg` is not a complete picture: Unsupported image file {hint}"
    # As Pillow says it, which is asked where libjpeg-turbo finds something.
    for name, why in (
        ("cut", r"image file is truncated \(\d+ bytes not processed\)"),
        ("header", "Truncated File Read"),
    ):
        assert re.fullmatch(
            rf"`DIR/x.jpg` is not a complete picture: {why} {re.escape(hint)}", said[name]
        )


def test_our_decoder_gives_the_librarys_batches(found):
    # By two threads and by five processes, of each decoder.
    assert found["decoders"] == {
        "plain": [True] * 4,
        "augmented": [True] * 4,
        "augments": True,
    }


def test_corrupt_pictures_are_named_counted_and_skipped_up_to_a_limit(found):
    why = "`picture {}` is not a complete picture: image file is truncated"
    hint = "(hint: get the file again, or take it away)"
    warning = f"warning: {why.format(0)}; it is skipped, 1 of at most 1\n"
    said = {
        name: json.loads(re.sub(r" \(\d+ bytes not processed\)", "", json.dumps(each)))
        for name, each in found["corrupt"].items()
    }
    assert said == {
        # Another of the batch in its place, once named and counted each time.
        "filled": [[[2, 3, 2], [4, 4]], 2, warning],
        "filled by processes": [[[2, 3, 2], [4, 4]], 2, warning],
        "left out": [[[2, 3], []], 2, warning],
        "one too many": (
            f"2 corrupt pictures are more than --max-corrupt 1: {why.format(1)} {hint}"
        ),
        "none allowed": f"{why.format(0)} {hint}",
        "all": f"all 2 pictures of a rank's batch are corrupt, and none can stand in: {why.format(0)} "
        "(hint: a larger batch, or the data set without them)",
    }
