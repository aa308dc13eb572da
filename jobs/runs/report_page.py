"""Writes a report as one page of HTML that needs nothing beside itself, to be mailed."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from jobs.host.console import duration_text, masked
from jobs.runs.charts import headings, report_label
from jobs.runs.figures import figure_text
from jobs.runs.outcome import run_time_s
from jobs.runs.report import RunReport

# No script, and nothing from elsewhere: what a program wrote in its metrics is text.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse } .wide { overflow-x: auto }
th, td { border-bottom: 1px solid #8886; padding: .3rem .7rem; text-align: left; vertical-align: top }
img { max-width: 100%; background: #fff } pre { overflow-x: auto; background: #8882; padding: .7rem }
"""


def page_of(reports: Sequence[RunReport], picture: bytes | None) -> str:
    """Give the page: title, a table with a column a run, the curves (PNG), causes of failures."""
    title, about = headings(reports)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(title)}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>{text(title)}</h1><p>{text(about)}</p>",
        f'<div class="wide" tabindex="0" role="region" aria-label="Figures">{_table(reports)}</div>',
        "" if picture is None else image(picture, f"Curves of {title}"),
        *(_failure(each) for each in reports if each.error is not None),
        "</main></body></html>\n",
    ]
    return "\n".join(filter(None, parts))


def image(picture: bytes, about: str) -> str:
    """Put a PNG into a page."""
    encoded = base64.b64encode(picture).decode()
    return f'<p><img alt="{text(about)}" src="data:image/png;base64,{encoded}"></p>'


def text(words: str) -> str:
    """Make text of words that anybody may have written."""
    return escape(masked(words))


def _table(reports: Sequence[RunReport]) -> str:
    labels = dict.fromkeys(each.label for report in reports for each in report.metrics)
    figures = [{each.label: figure_text(each) for each in report.metrics} for report in reports]
    rows = [
        ("run", [each.status.id for each in reports]),
        ("state", [each.status.state.value for each in reports]),
        ("reason", [each.status.reason or "" for each in reports]),
        ("size", [each.status.size for each in reports]),
        ("time", [_time(each) for each in reports]),
        *((label, [found.get(label, "") for found in figures]) for label in labels),
    ]
    heads = "".join(f'<th scope="col">{text(report_label(each))}</th>' for each in reports)
    body = "".join(
        f'<tr><th scope="row">{text(name)}</th>'
        + "".join(f"<td>{text(value)}</td>" for value in values)
        + "</tr>"
        for name, values in rows
        if any(values)
    )
    return f"<table><thead><tr><td></td>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _time(report: RunReport) -> str:
    seconds = run_time_s(report.status)
    return "" if seconds is None else duration_text(seconds)


def _failure(report: RunReport) -> str:
    error = report.error
    assert error is not None
    told = "\n".join(filter(None, [error.message, error.traceback]))
    who = "the run" if error.rank is None else f"rank {error.rank}"
    head = f"{report.status.id}: {who}, {error.cause}"
    return f"<h2>{text(head)}</h2><pre>{text(told)}</pre>"
