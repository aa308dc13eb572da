"""Shows a run as HTML: state, figures, curves, its last lines; what they hold is text, never HTML."""

from __future__ import annotations

from html import escape
from pathlib import Path

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import RunHandle
from jobs.engines.base import Engine
from jobs.host.console import masked
from jobs.launching.ahead import look_ahead, progress_fields
from jobs.runs.ending import main_figures
from jobs.runs.figures import figures_of
from jobs.runs.progress import read_progress
from jobs.runs.report import read_report
from trainyard.curves import charts_of

NUM_LINES = 10
LONGEST_LINE = 300  # characters


def page_of(engine: Engine, handle: RunHandle) -> str:
    """Give the run as HTML; what a program or a file says in it is escaped."""
    store = engine.store
    status, error = store.status(handle), store.error(handle)
    store.bring(handle)
    report = read_report(status, error)
    progress = progress_fields(
        status, look_ahead(status, read_progress(Path(handle.run_dir)), engine.environment)
    )
    told = [
        ("state", status.state.value),
        *([("reason", status.reason)] if status.reason else []),
        *progress,
        *main_figures(figures_of(report.curves)),
    ]
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left">{_text(name)}</th>'
        f'<td style="text-align:left">{_text(value)}</td></tr>'
        for name, value in told
    )
    return (
        f"<div><p><strong>{_text(status.name)}</strong> {_text(status.id)}</p>"
        f"<table>{rows}</table><div>{charts_of(report)}</div>{_last_lines(engine, handle)}</div>"
    )


def _last_lines(engine: Engine, handle: RunHandle) -> str:
    try:
        lines = list(engine.logs(handle, None, follow=False, tail=NUM_LINES))
    except LaunchError as error:
        return f"<p>{_text(error.message)}</p>"
    if not lines:
        return ""
    has_ranks = engine.store.record(handle).plan.spec.num_processes > 1
    text = "\n".join(
        f"[{line.rank}] {line.text[:LONGEST_LINE]}" if has_ranks else line.text[:LONGEST_LINE]
        for line in lines
    )
    return f"<pre>{_text(text)}</pre>"


def _text(text: str) -> str:
    return escape(masked(text))
