"""The cropper gives what a full decoder gives, refuses what is not plain, and bears any bytes."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, create_string_buffer

import pytest
from PIL import Image

from tests.seeds import dice
from trainer.common.errors import TrainingError
from trainer.data.pictures import jpeg_crop
from trainer.data.pictures.crops import Crop, random_crop
from trainer.data.pictures.jpeg_crop import open_cropper

SUBSAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


@pytest.fixture(scope="module")
def cropper(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return open_cropper()


def picture(width: int, height: int, seed: int, mode: str = "RGB"):
    """Soft colours with some noise: edges, flat parts and saturated ones."""
    small = dice(seed).randbytes((width // 7 + 2) * (height // 7 + 2) * 3)
    soft = Image.frombytes("RGB", (width // 7 + 2, height // 7 + 2), small)
    soft = soft.resize((width, height), Image.Resampling.BICUBIC)
    noise = Image.effect_noise((width, height), 40).convert("RGB")
    return Image.blend(soft, noise, 0.2).convert(mode)


def encoded(image, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


def cut(cropper, data: bytes, crop: Crop, side: int) -> bytes | None:
    buffer = create_string_buffer(side * side * 3)
    done = cropper.crop(data, crop, side=side, address=addressof(buffer))
    return buffer.raw if done else None


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_every_square_is_what_the_whole_picture_has_there(cropper, subsampling):
    rng = dice(subsampling)
    for number in range(60):
        width, height = rng.randint(8, 120), rng.randint(1, 120)
        quality = rng.choice([30, 75, 92, 100])
        data = encoded(
            picture(width, height, number), quality=quality, subsampling=SUBSAMPLINGS[subsampling]
        )
        assert cropper.size(data) == (width, height)
        side = rng.randint(1, min(width, height))
        left, top = rng.randint(0, width - side), rng.randint(0, height - side)
        crop = Crop(left=left, top=top, width=side, height=side)
        # Its own size is the one size at which resizing changes nothing.
        whole = Image.open(io.BytesIO(data)).crop(crop.box)
        assert cut(cropper, data, crop, side) == whole.tobytes(), (width, height, quality, crop)


def test_grey_is_three_equal_colours(cropper):
    data = encoded(picture(61, 43, 1, "L"))
    crop = Crop(left=5, top=7, width=30, height=30)
    whole = Image.open(io.BytesIO(data)).convert("RGB").crop(crop.box)
    assert cut(cropper, data, crop, 30) == whole.tobytes()


@pytest.mark.parametrize(("width", "height", "side"), [(500, 375, 224), (90, 60, 224), (300, 9, 7)])
def test_resized_parts_are_those_of_another_antialiased_filter(cropper, width, height, side):
    data = encoded(picture(width, height, 2), quality=92)
    whole = Image.open(io.BytesIO(data))
    rng = dice("parts")
    for _ in range(20):
        crop = random_crop(width, height, rng)
        part = whole.crop(crop.box).resize((side, side), Image.Resampling.BILINEAR)
        if crop.is_flipped:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        found = cut(cropper, data, crop, side)
        worst = max(abs(one - other) for one, other in zip(found, part.tobytes(), strict=True))
        assert worst <= 2, (crop, worst)  # weights of 15 bits and of 22


def test_threads_change_nothing(cropper):
    data = encoded(picture(200, 150, 3))
    rng = dice("crops")
    crops = [random_crop(200, 150, rng) for _ in range(200)]
    alone = [cut(cropper, data, crop, 32) for crop in crops]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda crop: cut(cropper, data, crop, 32), crops)) == alone


def test_what_is_not_plain_is_left_to_other_decoders(cropper):
    whole = picture(64, 48, 4)
    png = io.BytesIO()
    whole.save(png, "PNG")
    plain = encoded(whole)
    # Tables for DC come first: 12 symbols after 17 bytes. The last is one of no picture of 8 bits.
    last = plain.index(b"\xff\xc4") + 4 + 17 + 11
    assert plain[last] == 11
    frame = plain.index(b"\xff\xc0") + 5
    others = {
        "progressive": encoded(whole, progressive=True),
        "restarts": encoded(whole, restart_marker_rows=1),
        "CMYK": encoded(whole.convert("CMYK")),
        "narrow": encoded(picture(7, 48, 4)),
        "PNG": png.getvalue(),
        "empty": b"",
        "cut off": plain[: len(plain) // 2],
        "without its end": plain[:-2],
        "header": plain[:100],
        "wrong table": plain[:last] + b"\x0c" + plain[last + 1 :],
        "too many pixels": plain[:frame] + b"\x40\x00\x40\x00" + plain[frame + 4 :],
    }
    assert cropper.size(plain) == (64, 48)
    assert {name for name, data in others.items() if cropper.size(data) is not None} == set()


def test_a_part_outside_of_the_picture_is_refused(cropper):
    data = encoded(picture(64, 48, 4))
    for left, top, width, height in ((60, 0, 5, 5), (0, 44, 5, 5), (-1, 0, 5, 5), (0, 0, 0, 5)):
        assert cut(cropper, data, Crop(left=left, top=top, width=width, height=height), 8) is None


def test_without_a_compiler_the_other_decoder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(TrainingError) as told:
        open_cropper()
    assert str(told.value) == (
        "--decoder fast cannot be used here: `false` failed: exit code 1 (hint: --decoder library)"
    )
    assert not list(tmp_path.rglob("*.so*"))


def test_a_relative_home_keeps_no_cache(tmp_path, monkeypatch):
    # As of a container's user who has no name and no home: then `~` stays as it is.
    monkeypatch.setenv("HOME", "~")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TrainingError, match="there is no home folder to keep it in"):
        open_cropper()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_loaded_from_a_folder_that_others_write_into(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "trainyard" / "native").mkdir(parents=True)
    (tmp_path / "trainyard" / "native").chmod(0o777)
    with pytest.raises(TrainingError, match="is not a folder of yours alone"):
        open_cropper()


def test_another_processor_with_the_same_home_compiles_its_own(tmp_path, monkeypatch):
    """It may lack the first one's instructions, by which it would end by SIGILL."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for instructions in ("avx2 bmi2", "avx2 bmi2 avx512f"):
        monkeypatch.setattr(jpeg_crop, "_processor_instructions", lambda found=instructions: found)
        open_cropper()
    assert len(list(tmp_path.rglob("*.so"))) == 2
