"""`launch report`: show the final figures of runs, draw their curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, options
from jobs.commands.usage import make_app
from jobs.contracts.errors import LaunchError
from jobs.host import console

if TYPE_CHECKING:
    from jobs.contracts.spec import RunHandle, RunRecord
    from jobs.engines.base import Runs
    from jobs.runs.report import RunReport


def report(
    *,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN...]",
            help="Runs to compare: ids, beginnings of ids, or `last` (default).",
            autocompletion=completers.runs,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            *("-o", "--output"),
            metavar="FILE",
            parser=Path,
            help="Picture to write, .png or .svg (default: report.png in the first run's folder).",
        ),
    ] = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show the final figures of runs and draw their curves.

    The main figure comes first: the one that the program declares, else a validation accuracy
    or loss. Runs that are compared are labelled by how they differ.
    """
    from jobs.runs.charts import check_format, draw_report, left_out
    from jobs.runs.report import as_json
    from jobs.runs.report_text import remarks, report_table
    from jobs.runs.selection import shown_ids

    if output is not None:
        check_format(output)
    store = options.open_store(options.open_environment(stack, env))
    # A dict, since `last` and an id may be the same run.
    found = {handle.id: handle for handle in map(store.find, runs or ["last"])}
    handles = list(found.values())
    reports = _read_each(store, handles)
    picture = None
    if any(each.curves for each in reports):
        name = "report.png" if len(reports) == 1 else "comparison.png"
        picture = output or Path(reports[0].status.run_dir, name)
        draw_report(reports, picture)
    if json:
        shown = None if picture is None else str(picture.absolute())
        console.out_json({"picture": shown, "runs": [as_json(each) for each in reports]})
        return
    ids = shown_ids([each.status.id for each in reports], store)
    console.out(report_table(reports, ids))
    for remark in remarks(reports):
        console.say(remark)
    if picture is not None:
        console.say(f"\ncurves: {picture}")
        if names := left_out(reports):
            console.say(f"without {', '.join(names)}, which --json has")


def _read_each(store: Runs, handles: list[RunHandle]) -> list[RunReport]:
    """Read the runs and how they differ; warn of one that cannot be read, if there are others."""
    from msgspec.structs import replace

    from jobs.launching.compare import told_apart
    from jobs.runs.report import read_report

    reports: list[RunReport] = []
    records: list[RunRecord] = []
    errors: list[LaunchError] = []
    for handle in handles:
        try:
            store.bring(handle)
            report = read_report(store.status(handle), store.error(handle))
            if handles[1:]:
                records.append(store.record(handle))
            reports.append(report)
        except LaunchError as error:
            errors.append(error)
    if not reports:
        raise errors[0]
    for error in errors:
        console.warn(error.message)
    differences = told_apart(records) or [{}]
    return [
        replace(each, differs=differs) for each, differs in zip(reports, differences, strict=True)
    ]


app = make_app({"report": report})
