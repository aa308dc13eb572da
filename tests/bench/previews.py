"""`pulumi preview` of a stack on Azure, through the stand-in, against an empty Python stack."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.bench.pairs import Command, median_wall_s, time_in_turn
from tests.bench.table import Row
from tests.integration.azure_stack.conftest import CloudProject, fresh_project
from tests.pulumi_project import PulumiProject

MANY, FEW = 200, 2


def preview_rows(_: Path, rounds: int) -> list[Row]:
    """Previews before anything is there and when all is there, and with many clusters."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as closing:
        folder = Path(name)

        def dev(title: str) -> CloudProject:
            return closing.enter_context(fresh_project(folder / title, "dev"))

        fresh, standing, few, many = (dev(each) for each in ("fresh", "standing", "few", "many"))
        _give_clusters(few, FEW)
        _give_clusters(many, MANY)
        empty = _empty_stack(folder / "empty")
        for project in (standing, few, many, empty):
            project.up()
        commands = [
            _preview("dev, nothing there", fresh),
            _preview("dev, all there", standing),
            _preview(f"dev with {FEW} clusters", few),
            _preview(f"dev with {MANY} clusters", many),
            _preview("empty Python stack", empty),
        ]
        timings = time_in_turn(commands, rounds=rounds)
    fresh_s, standing_s, few_s, many_s, empty_s = (
        median_wall_s(timings[each.name]) for each in commands
    )
    peer = f"empty Python stack {empty_s:.2f} s"
    return [
        _row("`preview -s dev` where nothing is there", fresh_s, peer, empty_s, at_most=1.5),
        _row("`preview -s dev` where all is there", standing_s, peer, empty_s, at_most=1.5),
        _row(
            f"`preview -s dev` with {MANY} clusters",
            many_s,
            f"with {FEW} clusters {few_s:.2f} s",
            few_s,
            at_most=3.0,
        ),
    ]


def _row(goal: str, ours_s: float, peer: str, peer_s: float, *, at_most: float) -> Row:
    return Row(goal=goal, ours=f"{ours_s:.2f} s", peer=peer, ratio=ours_s / peer_s, at_most=at_most)


def _preview(name: str, project: PulumiProject) -> Command:
    return Command(
        name=name,
        argv=project.pulumi_command("preview", "-s", project.stack),
        env=project.environment_variables,
        cwd=project.root,
    )


def _give_clusters(project: CloudProject, number: int) -> None:
    one = next(iter(project.settings["clusters"].values()))
    project.settings["clusters"] = {f"c{index}": one for index in range(number)}
    project.write_settings()


def _empty_stack(folder: Path) -> PulumiProject:
    """Declares nothing and looks for no provider; backend and secrets are as the others'."""
    project = PulumiProject(root=folder, stack="dev")
    project.variables = {
        "PULUMI_BACKEND_URL": f"file://{folder / '.trainyard/state'}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        # The SDK of Azure is installed here, and Pulumi would try to fetch its provider.
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }
    (folder / ".trainyard/state").mkdir(parents=True)
    project.lay()
    (folder / "infra/__main__.py").write_text('"""Declares nothing."""\n')
    return project
