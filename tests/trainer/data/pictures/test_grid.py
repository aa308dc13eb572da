"""The grid of predictions has a cell for each picture, whatever their shapes and names."""

import io

import pytest
from PIL import Image

from trainer.data.pictures.grid import Prediction, write_grid


def encoded(size, colour, mode="RGB"):
    buffer = io.BytesIO()
    Image.new(mode, size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def read(path):
    return Image.open(io.BytesIO(path.read_bytes()))


def prediction(picture, predicted="ants", true="ants"):
    return Prediction(
        picture=picture,
        predicted=predicted,
        share=0.9,
        about=f"true {true}",
        is_right=predicted == true,
    )


@pytest.mark.parametrize(("number", "size"), [(1, (248, 294)), (4, (956, 294)), (5, (956, 576))])
def test_pictures_stand_in_rows_of_four(tmp_path, number, size):
    write_grid(tmp_path / "grid.png", [prediction(encoded((60, 40), "blue"))] * number)
    grid = read(tmp_path / "grid.png")
    assert (grid.format, grid.size) == ("PNG", size)
    assert [path.name for path in tmp_path.iterdir()] == ["grid.png"]


def test_a_picture_is_shown_whole_and_its_titles_colour_says_whether_it_is_right(tmp_path):
    tall, grey = encoded((10, 40), "blue"), encoded((40, 10), 128, "L")
    write_grid(tmp_path / "grid.png", [prediction(tall), prediction(grey, true="bees")])
    grid = read(tmp_path / "grid.png").convert("RGB")
    assert grid.getpixel((12 + 20, 12 + 46 + 200)) == (0, 0, 255)
    assert grid.getpixel((12 + 200, 12 + 46 + 200)) == (255, 255, 255)
    titles = [grid.crop((left, 12, left + 224, 34)).getcolors(10_000) for left in (12, 248)]
    darkest = [min((colour for _, colour in each), key=sum) for each in titles]
    assert darkest == [(22, 120, 60), (190, 30, 30)]


def test_a_picture_that_cannot_be_drawn_leaves_its_place_empty(tmp_path, capsys):
    """A decoder that is not Pillow takes a PNG whose text has a wrong checksum."""
    blue = encoded((40, 40), "blue")
    text = b"\x00\x00\x00\x04tEXtA\x00bc\x00\x00\x00\x00"
    odd = blue[:33] + text + blue[33:]
    write_grid(tmp_path / "grid.png", [prediction(odd), prediction(blue)])
    assert "the picture of true ants` is not a complete picture: " in capsys.readouterr().err
    grid = read(tmp_path / "grid.png").convert("RGB")
    assert [grid.getpixel((left, 12 + 46 + 20)) for left in (12 + 20, 248 + 20)] == [
        *((255, 255, 255), (0, 0, 255))
    ]


def test_a_title_wider_than_its_picture_is_cut(tmp_path):
    name = "n02105505 komondor " * 9
    write_grid(tmp_path / "grid.png", [prediction(encoded((9, 9), "blue"), predicted=name)] * 2)
    grid = read(tmp_path / "grid.png").convert("RGB")
    assert set(grid.crop((236, 0, 248, 58)).get_flattened_data()) == {(255, 255, 255)}
