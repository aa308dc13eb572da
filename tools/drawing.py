"""What the pictures of the docs are drawn with: paper, boxes, arrows, and where the files go.

Light paper lies under all of it, so that a picture reads on a dark page as well.
"""

# matplotlib's own types leave the kind of most keyword arguments open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER, INK, FAINT = "#fbfaf7", "#20242b", "#6b7280"
BLUE, GREEN, AMBER, VIOLET = "#dbe7f6", "#dcefdc", "#fbe9c6", "#e9e0f5"
WHITE, GREY = "#ffffff", "#eceae4"


def new_figure(name: str, width: float, height: float) -> Figure:
    """An empty picture of so many inches, the same file on every run."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["font.family"] = "DejaVu Sans"
    # Text stays text.
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = name
    return Figure(figsize=(width, height), facecolor=PAPER)


def save(figure: Figure, name: str) -> None:
    """Write docs/images/<name>.svg and .png."""
    here = Path(__file__).parents[1] / "docs" / "images"
    figure.savefig(here / f"{name}.svg", facecolor=PAPER, metadata={"Date": None})
    figure.savefig(here / f"{name}.png", facecolor=PAPER, dpi=110, metadata={"Software": None})


def prepare(axes: Axes, width: float, height: float) -> None:
    """Make a sheet of so many units, without axes."""
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")


def heading(axes: Axes, x: float, y: float, text: str) -> None:
    """Write what a sheet shows."""
    axes.text(x, y, text, ha="left", va="center", fontsize=13, color=INK, weight="bold")


def box(
    axes: Axes,
    place: tuple[float, float, float, float],
    text: str,
    colour: str,
    *,
    edge: str = FAINT,
    size: float = 9.5,
    top: bool = False,
) -> None:
    """A rounded box at (left, bottom, width, height); the text in its middle or at its top."""
    from matplotlib.patches import FancyBboxPatch

    x, y, width, height = place
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.8",
            facecolor=colour,
            edgecolor=edge,
            linewidth=1,
        )
    )
    at, anchor = (y + height - 1, "top") if top else (y + height / 2, "center")
    axes.text(x + width / 2, at, text, ha="center", va=anchor, fontsize=size, color=INK)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """From here to there."""
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.2, "shrinkA": 0, "shrinkB": 0},
    )


def label(size: float, colour: str = INK, align: str = "center") -> dict[str, Any]:
    """How a line beside the boxes is written."""
    return {"ha": align, "va": "center", "fontsize": size, "color": colour}
