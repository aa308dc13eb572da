"""Draws docs/images/azure-environment.{svg,png}: what a cloud stack holds and who may do what.

    .venv/bin/python -m tools.azure_picture

Its content is written here by hand, after infra/cloud: change both together. Light paper lies under
all of it, so that the picture reads on a dark page as well.
"""

# matplotlib's own types leave the kind of most keyword arguments open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER, INK, FAINT = "#fbfaf7", "#20242b", "#6b7280"
BLUE, GREEN, AMBER, VIOLET = "#dbe7f6", "#dcefdc", "#fbe9c6", "#e9e0f5"
WHITE, GREY = "#ffffff", "#eceae4"
NAME = "azure-environment"

COLUMNS = (
    "workspace",
    "data",
    "runs",
    "workspace's\naccount",
    "vault",
    "registry",
    "App\nInsights",
)
# One role a cell; the second line says on what, where it is not the whole.
RIGHTS = (
    (
        "workspace identity",
        VIOLET,
        (
            "Contributor",
            "approves endpoints\nof the account",
            "",
            "Contributor\nBlob Contributor",
            "Contributor\nAdministrator",
            "Contributor",
            "Contributor",
        ),
    ),
    (
        "cluster identity\n(the nodes)",
        GREEN,
        (
            "",
            "Blob Reader",
            "Blob Contributor",
            "Blob Contributor",
            "Secrets User\nnamed secrets only",
            "pull",
            "",
        ),
    ),
    (
        "practitioners\n(Entra groups)",
        AMBER,
        (
            "Data Scientist",
            "Blob Contributor",
            "Blob Contributor",
            "Blob + File\nContributor",
            "",
            "push",
            "",
        ),
    ),
    (
        "readers\n(Entra groups)",
        AMBER,
        ("Reader", "Blob Reader", "Blob Reader", "Blob + File\nReader", "", "", ""),
    ),
)


def main() -> None:
    """Write both files."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["font.family"] = "DejaVu Sans"
    # Text stays text, and the file is the same on every run.
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = NAME
    figure = Figure(figsize=(13, 12), facecolor=PAPER)
    parts = figure.add_axes((0.01, 0.40, 0.98, 0.59))
    draw_parts(parts)
    rights = figure.add_axes((0.01, 0.01, 0.98, 0.37))
    draw_rights(rights)
    here = Path(__file__).parents[1] / "docs" / "images"
    figure.savefig(here / f"{NAME}.svg", facecolor=PAPER, metadata={"Date": None})
    figure.savefig(here / f"{NAME}.png", facecolor=PAPER, dpi=110, metadata={"Software": None})


def draw_parts(axes: Axes) -> None:
    """The upper half: what there is, and which way requests go."""
    _prepare(axes, 130, 71)
    _heading(axes, 1, 69, "What there is, and which way requests go")
    _box(axes, (24, 11, 105, 55), "resource group  rg-NAME-STACK", PAPER, edge=INK, top=True)
    _box(axes, (1, 40, 19, 16), "people and CI\n\nlaunch\nPulumi", AMBER)
    _box(axes, (27, 16, 22, 46), "virtual network\n(test, prod)", BLUE, top=True)
    doors = ("data: blob", "data: dfs", "workspace's: blob", "workspace's: file", "vault")
    for index, door in enumerate((*doors, "registry", "workspace")):
        _box(axes, (29, 49 - index * 4.4, 18, 3.5), door, WHITE, size=8)
    axes.text(38, 17.6, "private endpoints and\ntheir DNS zones", **_text(8, FAINT))
    for y, height, label, colour in (
        (53, 8, "Azure ML workspace\nno keys, identity datastores", VIOLET),
        (42.5, 9, "our storage account\ncontainers  data  runs", BLUE),
        (34.5, 6.5, "workspace's storage account", BLUE),
        (27, 6, "key vault", BLUE),
        (20, 6, "container registry", BLUE),
    ):
        _box(axes, (58, y, 27, height), label, colour)
    _box(axes, (96, 24, 30, 37), "the workspace's managed network", GREEN, top=True)
    for index, label in enumerate(("cluster  cpu", "cluster  gpu", "cluster  ...")):
        _box(axes, (99, 47 - index * 7.5, 24, 6), label, WHITE)
    axes.text(
        111, 27.6, "nodes: no public address,\nno SSH, no local accounts,\n0 when idle", **_text(8)
    )
    _box(axes, (58, 12.3, 27, 5), "App Insights, Log Analytics", GREY, size=8.5)
    _box(axes, (96, 18, 14.4, 4.5), "2 identities", GREY, size=8.5)
    _box(axes, (111.6, 18, 14.4, 4.5), "monthly budget", GREY, size=8.5)
    _box(axes, (96, 12.3, 30, 4.5), "locks on accounts, vault, registry (prod)", GREY, size=8.5)
    _arrow(axes, (20, 50), (27, 50))
    axes.text(22.2, 51.2, "test\nprod", **_text(8, FAINT))
    _arrow(axes, (49, 46.8), (58, 46.8))
    axes.plot([10.5, 10.5, 53.5, 53.5], [56, 64, 64, 58.4], color=INK, lw=1.2, ls=(0, (4, 3)))
    _arrow(axes, (53.5, 58.4), (58, 58.4))
    axes.text(1, 66, "dev: from allowed_ips", **_text(8, FAINT, "left"))
    for y in (57, 47, 38, 30, 25):
        _arrow(axes, (96, y), (85, y))
    axes.text(90.5, 59.6, "private\nendpoints", **_text(8, FAINT))
    _box(axes, (24, 1, 105, 7.5), "", PAPER, edge=FAINT)
    axes.text(
        26, 4.7, "resource group  NAME-state\n(tools/bootstrap_state.py)", **_text(8.5, INK, "left")
    )
    _box(axes, (58, 2.2, 27, 5), "storage account: Pulumi's state", BLUE, size=8.5)
    _box(axes, (96, 2.2, 30, 5), "vault: the key of the state's secrets", BLUE, size=8.5)
    axes.plot([10.5, 10.5], [40, 4.7], color=INK, lw=1.2, ls=(0, (4, 3)))
    _arrow(axes, (10.5, 4.7), (24, 4.7))


def draw_rights(axes: Axes) -> None:
    """The lower half: a row for whom, a column for what."""
    _prepare(axes, 130, 43)
    _heading(axes, 1, 41, "Who may do what: nobody has a key, everybody has a role")
    left, width, height = 24, 15, 7.6
    for index, column in enumerate(COLUMNS):
        axes.text(left + (index + 0.5) * width, 36, column, **_text(9), weight="bold")
    for row, (who, colour, roles) in enumerate(RIGHTS):
        y = 25 - row * (height + 0.6)
        _box(axes, (1, y, 22, height), who, colour)
        for index, role in enumerate(roles):
            x = left + index * width + 0.3
            _box(axes, (x, y, width - 0.6, height), role, colour if role else PAPER, size=8)


def _prepare(axes: Axes, width: float, height: float) -> None:
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")


def _heading(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="left", va="center", fontsize=13, color=INK, weight="bold")


def _box(
    axes: Axes,
    place: tuple[float, float, float, float],
    label: str,
    colour: str,
    *,
    edge: str = FAINT,
    size: float = 9.5,
    top: bool = False,
) -> None:
    """A rounded box at (left, bottom, width, height); the label in its middle or at its top."""
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
    axes.text(x + width / 2, at, label, ha="center", va=anchor, fontsize=size, color=INK)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.2, "shrinkA": 0, "shrinkB": 0},
    )


def _text(size: float, colour: str = INK, align: str = "center") -> dict[str, Any]:
    return {"ha": align, "va": "center", "fontsize": size, "color": colour}


if __name__ == "__main__":
    main()
