"""Draws docs/images/azure-environment.{svg,png}: what a cloud stack holds and who may do what.

    .venv/bin/python -m tools.azure_picture

Its content is written here by hand, after infra/cloud: change both together. Light paper lies under
all of it, so that the picture reads on a dark page as well.
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
    INK,
    PAPER,
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
        "operators\n(Entra groups)",
        AMBER,
        ("Compute\nOperator", "", "", "", "", "", ""),
    ),
    (
        "readers\n(Entra groups)",
        AMBER,
        ("Reader", "Blob Reader", "Blob Reader", "Blob + File\nReader", "", "", ""),
    ),
)


def main() -> None:
    """Write both files."""
    figure = new_figure(NAME, 13, 13)
    parts = figure.add_axes((0.01, 0.44, 0.98, 0.55))
    draw_parts(parts)
    rights = figure.add_axes((0.01, 0.01, 0.98, 0.41))
    draw_rights(rights)
    save(figure, NAME)


def draw_parts(axes: Axes) -> None:
    """The upper half: what there is, and which way requests go."""
    prepare(axes, 130, 71)
    heading(axes, 1, 69, "What there is, and which way requests go")
    box(axes, (24, 11, 105, 55), "resource group  rg-NAME-STACK", PAPER, edge=INK, top=True)
    box(axes, (1, 40, 19, 16), "people and CI\n\nlaunch\nPulumi", AMBER)
    box(axes, (27, 16, 22, 46), "virtual network\n(test, prod)", BLUE, top=True)
    doors = ("data: blob", "data: dfs", "workspace's: blob", "workspace's: file", "vault")
    for index, door in enumerate((*doors, "registry", "workspace")):
        box(axes, (29, 49 - index * 4.4, 18, 3.5), door, WHITE, size=8)
    axes.text(38, 17.6, "private endpoints and\ntheir DNS zones", **label(8, FAINT))
    for y, height, name, colour in (
        (53, 8, "Azure ML workspace\nno keys, identity datastores", VIOLET),
        (42.5, 9, "our storage account\ncontainers  data  runs", BLUE),
        (34.5, 6.5, "workspace's storage account", BLUE),
        (27, 6, "key vault", BLUE),
        (20, 6, "container registry", BLUE),
    ):
        box(axes, (58, y, 27, height), name, colour)
    box(axes, (96, 24, 30, 37), "the workspace's managed network", GREEN, top=True)
    for index, name in enumerate(("cluster  cpu", "cluster  gpu", "cluster  ...")):
        box(axes, (99, 47 - index * 7.5, 24, 6), name, WHITE)
    axes.text(
        111, 27.6, "nodes: no public address,\nno SSH, no local accounts,\n0 when idle", **label(8)
    )
    box(axes, (58, 12.3, 27, 5), "App Insights, Log Analytics", GREY, size=8.5)
    box(axes, (96, 18, 14.4, 4.5), "2 identities", GREY, size=8.5)
    box(axes, (111.6, 18, 14.4, 4.5), "monthly budget", GREY, size=8.5)
    box(axes, (96, 12.3, 30, 4.5), "locks on accounts, vault, registry (prod)", GREY, size=8.5)
    arrow(axes, (20, 50), (27, 50))
    axes.text(22.2, 51.2, "test\nprod", **label(8, FAINT))
    arrow(axes, (49, 46.8), (58, 46.8))
    axes.plot([10.5, 10.5, 53.5, 53.5], [56, 64, 64, 58.4], color=INK, lw=1.2, ls=(0, (4, 3)))
    arrow(axes, (53.5, 58.4), (58, 58.4))
    axes.text(1, 66, "dev: from allowed_ips", **label(8, FAINT, "left"))
    for y in (57, 47, 38, 30, 25):
        arrow(axes, (96, y), (85, y))
    axes.text(90.5, 59.6, "private\nendpoints", **label(8, FAINT))
    box(axes, (24, 1, 105, 7.5), "", PAPER, edge=FAINT)
    axes.text(
        26, 4.7, "resource group  NAME-state\n(tools/bootstrap_state.py)", **label(8.5, INK, "left")
    )
    box(axes, (58, 2.2, 27, 5), "storage account: Pulumi's state", BLUE, size=8.5)
    box(axes, (96, 2.2, 30, 5), "vault: the key of the state's secrets", BLUE, size=8.5)
    axes.plot([10.5, 10.5], [40, 4.7], color=INK, lw=1.2, ls=(0, (4, 3)))
    arrow(axes, (10.5, 4.7), (24, 4.7))


def draw_rights(axes: Axes) -> None:
    """The lower half: a row for whom, a column for what."""
    prepare(axes, 130, 51)
    heading(axes, 1, 49, "Who may do what: nobody has a key, everybody has a role")
    left, width, height = 24, 15, 7.6
    for index, column in enumerate(COLUMNS):
        axes.text(left + (index + 0.5) * width, 44, column, **label(9), weight="bold")
    for row, (who, colour, roles) in enumerate(RIGHTS):
        y = 33 - row * (height + 0.6)
        box(axes, (1, y, 22, height), who, colour)
        for index, role in enumerate(roles):
            x = left + index * width + 0.3
            box(axes, (x, y, width - 0.6, height), role, colour if role else PAPER, size=8)


if __name__ == "__main__":
    main()
