"""`launch report`: show the final figures of runs, draw their curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands import completers, options
from jobs.commands.usage import make_app
from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.host import console

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobs.contracts.spec import Environment, RunHandle, RunRecord
    from jobs.engines.base import Runs
    from jobs.runs.beside_forecast import BesideForecast
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
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw no curves.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            parser=Path,
            help="Page to write: figures, curves and failures in one file, to be mailed.",
        ),
    ] = None,
    json: options.Json = False,
    stack: options.Stack,
    env: options.EnvFile = None,
) -> None:
    """Show the final figures of runs and draw their curves.

    The main figure comes first: the one that the program declares, else a validation accuracy
    or loss. Runs that are compared are labelled by how they differ. A run that was forecast
    is shown beside its forecast.
    """
    from jobs.runs.charts import check_format, draw_report, left_out
    from jobs.runs.report import as_json
    from jobs.runs.report_text import remarks, report_table
    from jobs.runs.selection import shown_ids

    if output is not None:
        if no_picture:
            message = "--output has no effect with --no-picture"
            raise LaunchError(message, hint="leave one of them out")
        check_format(output)
    environment = options.open_priced(stack, env)
    store = options.open_store(environment)
    # A dict, since `last` and an id may be the same run.
    found = {handle.id: handle for handle in map(store.find, runs or ["last"])}
    handles = list(found.values())
    reports = _read_each(store, handles)
    picture = None
    if not no_picture and any(each.curves for each in reports):
        name = "report.png" if len(reports) == 1 else "comparison.png"
        picture = output or Path(reports[0].status.run_dir, name)
        draw_report(reports, picture)
    if html is not None:
        _write_page(reports, html)
    beside = [_beside_forecast(each, store, environment) for each in reports]
    if json:
        shown = None if picture is None else str(picture.absolute())
        told = [
            {**as_json(each), "forecast": compared}
            for each, compared in zip(reports, beside, strict=True)
        ]
        console.out_json({"picture": shown, "runs": told})
        return
    ids = shown_ids([each.status.id for each in reports], store)
    console.out(report_table(reports, ids))
    _show_forecasts(reports, beside, ids, environment)
    for remark in remarks(reports):
        console.say(remark)
    if html is not None:
        console.say(f"\npage: {html}")
    if picture is not None:
        console.say(f"\ncurves: {picture}")
        if names := left_out(reports):
            console.say(f"without {', '.join(names)}, which --json has")


def _show_forecasts(
    reports: Sequence[RunReport],
    beside: Sequence[BesideForecast | None],
    ids: Mapping[str, str],
    environment: Environment,
) -> None:
    """Print each run's forecast beside what came of it, where one was kept."""
    from jobs.runs.beside_forecast import comparison_text

    for each, compared in zip(reports, beside, strict=True):
        if compared is not None:
            cluster = environment.clusters.get(each.status.cluster)
            title = f"{ids[each.status.id]}: " if reports[1:] else ""
            text = comparison_text(compared, cluster.currency if cluster else None)
            console.out(f"\n{title}{text}")


def _write_page(reports: Sequence[RunReport], path: Path) -> None:
    """Write the runs as one page; raises EnvironmentFailure where it cannot be written."""
    from tempfile import TemporaryDirectory

    from jobs.host.files import write_file
    from jobs.runs.charts import draw_report
    from jobs.runs.report_page import page_of

    picture = None
    if any(each.curves for each in reports):
        with TemporaryDirectory() as folder:
            drawn = Path(folder, "curves.png")
            draw_report(reports, drawn)
            picture = drawn.read_bytes()
    try:
        write_file(path, page_of(reports, picture).encode())
    except OSError as error:
        message = f"`{path}` cannot be written: {error.strerror or error}"
        raise EnvironmentFailure(message, hint="--html FILE in another folder") from None


def _beside_forecast(
    report: RunReport, store: Runs, environment: Environment
) -> BesideForecast | None:
    """Compare a run with its forecast; None where none was kept, or the run is not over."""
    from jobs.runs.beside_forecast import beside_forecast
    from jobs.runs.forecast_file import read_forecast
    from jobs.runs.outcome import attempts_of
    from jobs.runs.progress import read_progress
    from jobs.runs.report import read_summary
    from jobs.runs.sum_up import told_rate
    from jobs.stacks.cost import spent

    status = report.status
    run_dir = Path(status.run_dir)
    forecast = read_forecast(run_dir)
    if forecast is None:
        return None
    attempts = attempts_of(status.id, store.events(store.handle(status.id)))
    cost = spent(status, attempts, environment)
    return beside_forecast(
        forecast,
        status,
        attempts,
        read_progress(run_dir),
        samples_per_s=told_rate(read_summary(run_dir / "summary.json"), report.curves),
        cost=None if cost is None else cost.amount,
    )


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
