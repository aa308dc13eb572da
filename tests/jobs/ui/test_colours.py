"""Colours of lines: told apart by everybody, and seen on light and on dark."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from jobs.runs.charts import COLOURS, COLOURS_ON_DARK
from jobs.ui.rendering import FOLDER

# How eyes without one of the three kinds of cones see linear RGB (Machado, Oliveira, Fernandes 2009, severity 1).
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# In CIELAB 2.3 is a difference that is just seen; Okabe and Ito's seven have 16.
LEAST_DIFFERENCE, LEAST_CONTRAST = 25.0, 3.0


def linear(colour: str) -> list[float]:
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in values]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def seen(colour: str, eyes: str) -> tuple[float, float, float]:
    """The colour in CIELAB as these eyes see it."""
    rgb = linear(colour)
    red, green, blue = (
        max(0.0, min(1.0, sum(part * value for part, value in zip(row, rgb, strict=True))))
        for row in EYES[eyes]
    )
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
    )
    x, y, z = (each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def grounds(at: int) -> list[str]:
    """What lines stand on: page and panel, in light (0) or dark (1)."""
    style = (FOLDER / "static" / "style.css").read_text()
    found = [
        re.search(rf"--{name}: light-dark\((#\w+), (#\w+)\)", style)[at + 1]
        for name in ("page", "panel")
    ]
    return [f"#{each[1:] * 2}" if len(each) == 4 else each for each in found]


@pytest.mark.parametrize(("colours", "at"), [(COLOURS, 0), (COLOURS_ON_DARK, 1)])
def test_every_line_stands_out_from_its_ground(colours, at):
    found = {(each, ground): contrast(each, ground) for each in colours for ground in grounds(at)}
    assert {key: value for key, value in found.items() if value < LEAST_CONTRAST} == {}


@pytest.mark.parametrize("colours", [COLOURS, COLOURS_ON_DARK])
@pytest.mark.parametrize("eyes", EYES)
def test_lines_are_told_apart_by_eyes_of_every_kind(colours, eyes):
    assert len(colours) == 7
    pairs = itertools.combinations(colours, 2)
    near = {
        pair: math.dist(*(seen(each, eyes) for each in pair))
        for pair in pairs
        if math.dist(*(seen(each, eyes) for each in pair)) < LEAST_DIFFERENCE
    }
    assert near == {}


# WCAG AA for text.
LEAST_FOR_TEXT = 4.5


@pytest.mark.parametrize("at", [0, 1], ids=["light", "dark"])
def test_every_text_stands_out_from_its_ground(at):
    """axe tells it of the pages that it sees; these are all colours that a text can have."""
    style = (FOLDER / "static" / "style.css").read_text()
    colours = {
        name: f"#{each[at][1:] * 2}" if len(each[at]) == 4 else each[at]
        for name, *each in re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", style)
    }
    texts = [name for name in colours if name not in ("page", "panel", "line")]
    assert len(texts) == 6
    found = {
        (text, ground): contrast(colours[text], colours[ground])
        for text in texts
        for ground in ("page", "panel")
    }
    assert {key: value for key, value in found.items() if value < LEAST_FOR_TEXT} == {}


def test_colours_are_said_in_one_place():
    for name in ("app.js", "style.css"):
        text = (FOLDER / "static" / name).read_text().lower()
        assert [each for each in (*COLOURS, *COLOURS_ON_DARK) if each.lower() in text] == []
