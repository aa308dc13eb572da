"""Draws docs/images/azure-run.{svg,png}: what goes where while a job runs on Azure ML.

    .venv/bin/python -m tools.azure_run_picture

Its content is written here by hand, after jobs/azure_ml and jobs/rank_*.py: change both together.
"""

# matplotlib's own types leave the kind of most keyword arguments open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.drawing import (
    AMBER,
    BLUE,
    FAINT,
    GREEN,
    GREY,
    VIOLET,
    WHITE,
    arrow,
    box,
    heading,
    label,
    new_figure,
    prepare,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "azure-run"
# Height, what it is, its colour; then what `launch` and what the nodes have to do with it.
SERVICES = (
    (
        53,
        "Azure ML workspace\njob  RUN",
        VIOLET,
        "1  quota?   4  PUT job RUN",
        "5  starts the ranks",
    ),
    (
        42,
        "workspace's account\ncode, logs",
        BLUE,
        "2  code, once    6  log lines",
        "code   6  log lines",
    ),
    (31, "our account: runs\nRUN/", BLUE, "3  run.json    8  fetch", "7  results, every 10 s"),
    (20, "our account: runs\ncheckpoints/RUN/", BLUE, "", "a mounted folder"),
    (
        9,
        "our account: data\nregistry, key vault",
        BLUE,
        "before: data push, image push",
        "data, image, secrets",
    ),
)
TO_NODES = {"Azure ML workspace\njob  RUN", "our account: data\nregistry, key vault"}


def main() -> None:
    """Write both files."""
    figure = new_figure(NAME, 13, 6.9)
    draw(figure.add_axes((0.01, 0.01, 0.98, 0.98)))
    save(figure, NAME)


def draw(axes: Axes) -> None:
    """One sheet: who types on the left, the stores in the middle, the nodes on the right."""
    prepare(axes, 130, 68)
    heading(axes, 1, 66, "A run on Azure ML, from launch run to the fetched model")
    box(axes, (1, 9, 26, 53), "your machine", AMBER, top=True)
    box(axes, (3, 48, 22, 8), "launch run", WHITE)
    box(axes, (3, 36, 22, 9), "intent.json, run.json\non disk before a request", WHITE, size=8.5)
    box(axes, (3, 24, 22, 9), "all ranks' lines,\nmerged by time", WHITE, size=8.5)
    box(axes, (3, 12, 22, 9), "./RUN: outputs, logs,\nmetrics, summary", WHITE, size=8.5)
    box(axes, (97, 9, 32, 53), "the cluster of the stack", GREEN, top=True)
    for node, y in ((0, 37), (1, 14)):
        box(axes, (99, y, 28, 20), f"node {node}", WHITE, top=True)
        for rank in (0, 1):
            box(axes, (101 + rank * 12.5, y + 6.5, 11.5, 8.5), f"rank {2 * node + rank}", GREEN)
        text = "rank.pyz: secrets, setup, times\nof lines; brings what they make"
        axes.text(113, y + 3, text, **label(8, FAINT))
    for y, text, colour, ours, theirs in SERVICES:
        box(axes, (51, y, 24, 9), text, colour)
        middle = y + 4.5
        if ours:
            arrow(axes, (27, middle), (51, middle))
            axes.text(39, middle + 1.6, ours, **label(8))
        ends = ((75, middle), (97, middle))
        arrow(axes, *(ends if text in TO_NODES else ends[::-1]))
        axes.text(86, middle + 1.6, theirs, **label(8))
    for y in (46.5, 35.5):  # what comes home by the same way
        arrow(axes, (51, y), (27, y))
    for y in (46.5, 24.5):  # what the nodes read there
        arrow(axes, (75, y), (97, y))
    box(axes, (1, 1, 128, 5.5), "", GREY)
    text = (
        "Azure takes a node back: whoever is attached submits the job RUN_2, with the same code, "
        "image and inputs, which goes on from checkpoints/RUN/"
    )
    axes.text(65, 3.7, text, **label(9))


if __name__ == "__main__":
    main()
