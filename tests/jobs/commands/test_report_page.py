"""`launch report --html`: one page with all of it, and nothing in it that is obeyed."""

from __future__ import annotations

import json
from pathlib import Path

from jobs.engines.local.runs import LocalRuns
from jobs.runs.report import read_report
from jobs.runs.report_page import page_of

SCRIPT = "<script>alert(1)</script>"


def test_a_page_holds_figures_curves_and_failures_as_text(launching):
    run = launching.add_run(name="digits", ends_as="failed", reason=SCRIPT)
    other = launching.add_run(name="digits", nodes=1)
    told = {"step": 1, "epoch": 1.0, "split": "val", "name": SCRIPT, "value": 0.5}
    for each in (run, other):
        Path(launching.workspace, "runs", each, "metrics.jsonl").write_text(json.dumps(told) + "\n")

    typed = launching.type("report", run, other, "--html", "page.html")

    assert typed.code == 0
    assert "page: page.html" in typed.err
    page = (launching.folder / "page.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("data:image/png;base64,iVBOR") == 1
    assert "default-src 'none'" in page
    assert 'src="http' not in page
    assert "ValueError: no luck" in page
    assert f"<td>{run}</td><td>{other}</td>" in page


def test_a_page_that_cannot_be_written_is_said(launching):
    launching.add_run()
    typed = launching.type("report", "--html", "nowhere/page.html")
    assert typed.code == 1
    assert "`nowhere/page.html` cannot be written" in typed.err


def test_a_run_whose_folder_was_deleted_has_no_size(tmp_path):
    store = LocalRuns(tmp_path)
    status = store.status(store.handle("20261121-120000-0001"))
    page = page_of([read_report(status, None)], None)
    assert "<td>its folder was deleted</td>" in page
    assert ">size<" not in page
