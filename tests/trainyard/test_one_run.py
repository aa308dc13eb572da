"""A run as an object: what it tells, how it shows itself, and that nothing in it is HTML."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import trainyard
from jobs.contracts.errors import LaunchError, NotFound
from jobs.contracts.spec import LogLine
from tests.fakes.launching import FakeEngine

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def run(launching):
    launching.add_run(name="digits")
    return trainyard.Run(env=launching.env_file)


def write_metrics(run, *lines):
    told = [{"step": 1, "epoch": 0.5, "split": "train", "name": "loss", "value": 2.0}, *lines]
    path = Path(run.status().run_dir, "metrics.jsonl")
    path.write_text("".join(f"{json.dumps(each)}\n" for each in told) + '{"torn')


def test_it_tells_its_state_lines_and_metrics(launching, run):
    write_metrics(run)
    assert (run.state, run.is_over) == ("completed", True)
    assert repr(run) == f"<Run {run.id} completed>"
    assert [each.text for each in run.logs()] == ["hello", "there"]
    assert [each.text for each in run.logs(rank=1, follow=True)] == ["there"]
    assert run.metrics() == [
        {"name": "loss", "value": 2.0, "step": 1.0, "epoch": 0.5, "split": "train", "goal": None}
    ]
    assert run.wait(10).show()["state"] == "completed"
    assert run.wait(timeout=60.0).wait(timeout=0.5).wait(timeout=1e3).wait("10m") is run
    assert run.report()["runs"][0]["id"] == run.id
    assert run.fetch(launching.folder / "results") == launching.folder / "results"
    assert trainyard.Run(run.id[:-1], env=launching.env_file).id == run.id


def test_lines_of_a_parameter_server_are_read_and_shown_as_its_own(launching):
    launching.add_run(processes_per_node=1, parameter_servers=1)
    run = trainyard.Run(env=launching.env_file)
    assert [each.text for each in run.logs(rank=1)] == ["there"]
    assert "[0] hello\n[1] there" in run._repr_html_()
    with pytest.raises(LaunchError, match="the run has the ranks 0 to 1"):
        list(run.logs(rank=2))


def test_its_frame_has_a_row_for_each_metric(run):
    import pandas

    write_metrics(run, {"step": 2, "split": "val", "name": "top1", "value": 0.5, "goal": "max"})
    frame = run.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc[frame["name"] == "top1", ["split", "step", "value"]].values.tolist() == [
        ["val", 2.0, 0.5]
    ]


def test_a_rerun_is_another_run_of_the_same_environment(launching, run):
    again = run.rerun(set={"env.A": "b"})
    assert again.id != run.id
    assert trainyard.diff(run.id, again.id, env=launching.env_file)["a"]["id"] == run.id


def test_cancelling_reaches_the_engine(run):
    FakeEngine.cancelled.clear()
    assert run.cancel() is run
    assert FakeEngine.cancelled == [run.id]


def test_there_is_no_run_without_one(launching):
    with pytest.raises(NotFound):
        trainyard.Run("nope", env=launching.env_file)


def test_it_shows_state_figures_curves_and_lines(run):
    write_metrics(run, {"step": 2, "epoch": 1.0, "split": "train", "name": "loss", "value": 1.25})
    page = run._repr_html_()
    assert f"<strong>digits</strong> {run.id}" in page
    assert "completed" in page
    assert "1.250" in page
    assert '<svg role="img" aria-label="loss"' in page
    assert 'points="52.0,24.0 310.0,160.0"' in page
    assert "<img" not in page
    assert "[0] hello\n[1] there" in page


def charts(run):
    """The charts that it shows: the points of each one's lines, by the metric."""
    found = re.findall(r"<svg.*?</svg>", run._repr_html_())
    return {
        chart.get("aria-label"): [
            [tuple(map(float, each.split(","))) for each in line.get("points").split()]
            for line in chart.iter("polyline")
        ]
        for chart in map(ElementTree.fromstring, found)
    }


def test_a_spike_among_many_points_is_drawn_and_the_page_stays_small(run):
    told = [{"step": step, "name": "load", "value": step % 2} for step in range(2, 20_000)]
    told[7_777]["value"] = 9.0
    write_metrics(run, *told)
    (line,) = charts(run)["load"]
    assert len(line) <= 2_002
    assert [each for each in line if each[1] == 24.0] == [(pytest.approx(152.3, abs=1), 24.0)]
    assert (line[0][0], line[-1][0]) == (52.0, 310.0)


def test_splits_of_a_metric_share_a_chart_and_what_is_no_line_has_none(run):
    write_metrics(
        run,
        {"step": 2, "epoch": 1, "split": "train", "name": "loss", "value": 1.0},
        {"step": 2, "epoch": 1, "split": "val", "name": "loss", "value": 3.0},
        {"step": 3, "epoch": 2, "split": "val", "name": "loss", "value": 1.0},
        {"step": 1, "epoch": 0, "split": "val", "name": "once", "value": 1.0},
        *({"step": each, "name": "wide", "value": 1.7e308 * (-1) ** each} for each in range(4)),
        *({"step": each, "name": "even", "value": 2.0} for each in range(2)),
    )
    assert charts(run) == {
        "loss": [[(52.0, 92.0), (138.0, 160.0)], [(138.0, 24.0), (310.0, 160.0)]],
        "even": [[(52.0, 92.0), (310.0, 92.0)]],
    }


def test_nothing_of_a_name_a_metric_a_reason_or_a_line_is_html(launching, monkeypatch):
    launching.add_run(name="digits", ends_as="failed", reason=SCRIPT)
    run = trainyard.Run(env=launching.env_file)
    write_metrics(run, {"step": 1, "split": SCRIPT, "name": f'"{SCRIPT}', "value": 1.0})
    line = LogLine(
        ts="2026-01-02T03:04:05.000006Z", rank=0, text=f"\x1b]0;x\x07{SCRIPT}" + "x" * 999
    )
    monkeypatch.setattr(FakeEngine, "logs", lambda *_, **__: iter([line]))

    page = run._repr_html_()

    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 3
    assert "\x1b" not in page
    assert "x" * 500 not in page


def test_following_shows_lines_and_an_interrupt_detaches(run, monkeypatch, capsys):
    run.follow()
    assert capsys.readouterr().out == "[0] hello\n[1] there\n"

    def interrupted(*_, **__):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(FakeEngine, "logs", interrupted)
    run.follow()
    assert capsys.readouterr().err == f"detached; {run.id} goes on\n"


def test_in_a_notebook_following_shows_the_run_until_it_is_over(run, monkeypatch):
    shown = []

    class Handle:
        def update(self, value):
            shown.append(value.state)

    shell = SimpleNamespace(kernel=object())
    display = SimpleNamespace(display=lambda value, display_id: shown.append("first") or Handle())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)

    run.follow()

    assert shown == ["first", "completed"]
