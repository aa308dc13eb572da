"""`launch report`: rows, remarks and pictures of run directories as the contract lays them out."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.contracts.spec import Plan, RankError, RunRecord, RunState
from jobs.runs import charts
from jobs.runs import report as reports
from jobs.runs.charts import check_format, draw_report, headings, panel_names, report_label
from jobs.runs.report import Curve, Figures, RunReport, as_json, remarks, row
from jobs.runs.store import read_error, read_status
from tests.fakes.gangs import make_spec
from trainer.common.metrics import Metrics
from trainer.common.rundir import RunDir
from trainer.common.world import World

RUN_ID = "20261121-120000-{:04}"
CREATED = "2026-11-21T12:00:00.000000Z"


def make_run(
    workspace: Path,
    number: int = 1,
    *,
    state: RunState = RunState.COMPLETED,
    exit_code: int | None = 0,
    accuracies: tuple[float, ...] = (0.5, 0.9),
    summary: dict[str, object] | None = None,
) -> Path:
    """A run as the engine and a trainer leave it, written by the trainer's own code."""
    run_dir = workspace / "runs" / RUN_ID.format(number)
    run_dir.mkdir(parents=True)
    record = RunRecord(
        schema=1,
        id=run_dir.name,
        created=CREATED,
        plan=Plan(
            engine="local", spec=make_spec(["python"], name="digits"), request=msgspec.Raw(b"{}")
        ),
        git=None,
        image_digest=None,
        environment_digest="",
    )
    (run_dir / "run.json").write_bytes(msgspec.json.encode(record))
    events = [
        {"ts": CREATED, "state": "queued"},
        {"ts": "2026-11-21T12:00:01.000000Z", "state": "running"},
        {
            "ts": "2026-11-21T12:00:43.500000Z",
            "state": state.value,
            "reason": None if exit_code == 0 else "rank 1 ended with exit code 3",
            "exit_code": exit_code,
        },
    ]
    (run_dir / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    files = RunDir.from_environment({"TRAINYARD_RUN_DIR": str(run_dir)})
    if accuracies:
        with Metrics(files.metrics, World()) as metrics:
            for epoch, accuracy in enumerate(accuracies, 1):
                metrics.log(step=epoch * 10 - 5, epoch=epoch - 0.5, split="train", loss=2 / epoch)
                metrics.log(
                    step=epoch * 10, epoch=epoch, split="test", loss=1 / epoch, accuracy=accuracy
                )
                metrics.log(step=epoch * 10, epoch=epoch, split="train", images_per_s=1000.4)
    if summary is not None:
        files.write_summary(summary)
    return run_dir


def fail(run_dir: Path) -> None:
    error = RankError(
        rank=1,
        host="box",
        cause="exit code 3",
        message="ValueError: no such thing",
        traceback=None,
        exit_code=3,
    )
    (run_dir / "error.json").write_bytes(msgspec.json.encode(error))


def read_report(run_dir: Path) -> RunReport:
    return reports.read_report(read_status(run_dir), read_error(run_dir))


class TestReading:
    def test_curves_are_what_the_trainer_wrote(self, tmp_path):
        report = read_report(make_run(tmp_path))
        assert report.curves == [
            Curve(split="train", name="loss", epochs=[0.5, 1.5], values=[2.0, 1.0]),
            Curve(split="test", name="loss", epochs=[1, 2], values=[1.0, 0.5]),
            Curve(split="test", name="accuracy", epochs=[1, 2], values=[0.5, 0.9]),
            Curve(split="train", name="images_per_s", epochs=[1, 2], values=[1000.4, 1000.4]),
        ]

    def test_what_a_node_wrote_too_deep_is_passed_over(self, tmp_path):
        run_dir = make_run(tmp_path)
        whole = read_report(run_dir)
        deep = b'{"x": ' + b"[" * 200_000
        for name in ("metrics.jsonl", "summary.json"):
            with (run_dir / name).open("ab") as file:
                file.write(b"\n" + deep + b"\n\xff\n")
        assert read_report(run_dir) == whole

    def test_figures_come_from_the_summary_else_from_the_last_metrics(self, tmp_path):
        without = read_report(make_run(tmp_path, 1))
        assert without.figures == Figures(
            epochs=2, test_accuracy=0.9, test_loss=0.5, images_per_s=1000.4
        )
        summary = {
            "epochs": 2,
            "test_accuracy": 0.91,
            "test_loss": 0.4,
            "images_per_s": 1234.5,
            "strategy": "horovod",
        }
        report = read_report(make_run(tmp_path, 2, summary=summary))
        assert report.figures == Figures(
            epochs=2, test_accuracy=0.91, test_loss=0.4, images_per_s=1234.5
        )
        assert report.summary == summary

    def test_a_line_cut_off_and_a_broken_summary_do_no_harm(self, tmp_path):
        run_dir = make_run(tmp_path)
        whole = read_report(run_dir)
        with (run_dir / "metrics.jsonl").open("a") as file:
            file.write('{"ts": "2026-11-21T12:00:02Z", "step": 20, "ep')
        (run_dir / "summary.json").write_text("[1, 2]")
        assert read_report(run_dir) == whole

    def test_a_folder_that_is_no_run_is_named(self, tmp_path):
        with pytest.raises(NotFound, match="there is no run in"):
            read_report(tmp_path)


class TestRows:
    def test_a_row_has_every_figure(self, tmp_path):
        report = read_report(make_run(tmp_path))
        expected = (RUN_ID.format(1), "digits", "completed", "2", "2", "90.00%", "0.5000", "1,000")
        assert row(report) == (*expected, "42 s")
        assert remarks([report]) == []

    def test_a_failed_run_says_why(self, tmp_path):
        run_dir = make_run(tmp_path, state=RunState.FAILED, exit_code=3)
        fail(run_dir)
        report = read_report(run_dir)
        assert row(report)[2] == "failed"
        assert remarks([report]) == [
            f"{RUN_ID.format(1)} failed after 42 s: rank 1 on box: exit code 3: ValueError: no such thing",
        ]

    def test_a_run_without_metrics_says_so(self, tmp_path):
        report = read_report(make_run(tmp_path, accuracies=()))
        assert row(report)[4:8] == ("-", "-", "-", "-")
        assert remarks([report]) == [f"{RUN_ID.format(1)} has no metrics to draw"]

    def test_json_has_the_fields_of_a_run_and_its_figures(self, tmp_path):
        report = read_report(make_run(tmp_path, summary={"strategy": "ddp"}))
        assert as_json(report) == {
            "id": RUN_ID.format(1),
            "name": "digits",
            "state": "completed",
            "reason": None,
            "exit_code": 0,
            "stack": "local",
            "cluster": "cpu",
            "nodes": 1,
            "world_size": 2,
            "created": CREATED,
            "started": "2026-11-21T12:00:01.000000Z",
            "ended": "2026-11-21T12:00:43.500000Z",
            "run_dir": str(tmp_path / "runs" / RUN_ID.format(1)),
            "time_s": 42.5,
            "figures": {
                "epochs": 2.0,
                "test_accuracy": 0.9,
                "test_loss": 0.5,
                "images_per_s": 1000.4,
            },
            "summary": {"strategy": "ddp"},
            "error": None,
        }


class TestPicture:
    def test_a_png_and_an_svg_are_what_they_say(self, tmp_path):
        report = read_report(make_run(tmp_path, summary={"strategy": "horovod"}))
        draw_report([report], tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        draw_report([report], tmp_path / "a.svg")
        assert "<svg" in (tmp_path / "a.svg").read_text()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "runs"]

    def test_it_shows_the_very_curves(self, tmp_path):
        report = read_report(make_run(tmp_path))
        loss, accuracy = charts._figure([report]).axes
        drawn = {
            line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
            for line in loss.lines
        }
        assert drawn == {"train": ([0.5, 1.5], [2.0, 1.0]), "test": ([1, 2], [1.0, 0.5])}
        (line,) = accuracy.lines
        assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 2], [0.5, 0.9])
        titles = [panel.get_title(loc="left") for panel in (loss, accuracy)]
        assert (titles, loss.get_xlabel(), accuracy.get_xlabel()) == (
            ["Loss", "Accuracy"],
            "epoch",
            "epoch",
        )
        assert [text.get_text() for text in accuracy.texts] == ["90.0%"]
        formatter = accuracy.yaxis.get_major_formatter()
        assert formatter(0.5, 0) == "50%"

    def test_several_runs_get_a_legend_line_each(self, tmp_path):
        reports = [
            read_report(make_run(tmp_path, 1, summary={"strategy": "horovod"})),
            read_report(make_run(tmp_path, 2, state=RunState.FAILED, exit_code=1)),
        ]
        figure = charts._figure(reports)
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == [
            f"digits {RUN_ID.format(1)}, 2 x horovod, 90.0%",
            f"digits {RUN_ID.format(2)}, 2 x ?, 90.0%, failed",
        ]
        assert headings(reports) == ("digits: 2 runs", "solid: test, dotted: train")
        assert report_label(reports[0]) == legend.get_texts()[0].get_text()

    def test_the_heading_of_one_run_says_what_it_was(self, tmp_path):
        report = read_report(make_run(tmp_path, summary={"strategy": "horovod"}))
        subtitle = f"{RUN_ID.format(1)}  ·  completed  ·  2 ranks  ·  horovod  ·  1,000 images/s"
        assert headings([report]) == ("digits", subtitle)

    def test_metrics_of_other_names_get_the_panels_where_there_is_no_loss(self, tmp_path):
        report = read_report(make_run(tmp_path))
        others = [
            Curve(split="test", name=name, epochs=[1], values=[2]) for name in ("a", "b", "c")
        ]
        assert panel_names([report]) == ["loss", "accuracy"]
        assert panel_names([msgspec.structs.replace(report, curves=others)]) == ["a", "b"]

    def test_a_place_or_a_name_that_will_not_do_is_refused(self, tmp_path):
        report = read_report(make_run(tmp_path))
        with pytest.raises(LaunchError, match=r"neither a \.png nor a \.svg"):
            check_format(Path("report.pdf"))
        with pytest.raises(EnvironmentFailure, match="cannot be written: No such file"):
            draw_report([report], tmp_path / "nowhere" / "a.png")


class TestCommand:
    def test_table_on_stdout_picture_in_the_run_directory(self, launching):
        run_dir = make_run(launching.workspace)
        typed = launching.type("report")
        assert typed.code == 0
        assert [line.split() for line in typed.out.splitlines()] == [
            ["RUN", "NAME", "STATE", "RANKS", "EPOCHS", "ACCURACY", "LOSS", "IMAGES/S", "TIME"],
            [run_dir.name, "digits", "completed", "2", "2", "90.00%", "0.5000", "1,000", "42", "s"],
        ]
        assert typed.err == f"\ncurves: {run_dir}/report.png\n"
        assert (run_dir / "report.png").stat().st_size > 10_000

    def test_several_runs_are_compared_in_one_picture(self, launching, tmp_path):
        runs = [make_run(launching.workspace, number) for number in (1, 2)]
        typed = launching.type("report", "last", runs[0].name, runs[1].name)
        assert [line.split()[0] for line in typed.out.splitlines()[1:]] == [
            runs[1].name,
            runs[0].name,
        ]
        assert (runs[1] / "comparison.png").exists()
        picture = tmp_path / "both.svg"
        typed = launching.type("report", runs[0].name, "last", "-o", str(picture), "--json")
        found = typed.json()
        assert found["picture"] == str(picture)
        assert [each["id"] for each in found["runs"]] == [run.name for run in runs]
        assert picture.exists()

    def test_a_failed_run_without_metrics_says_both_and_draws_nothing(self, launching):
        run_dir = make_run(launching.workspace, state=RunState.FAILED, exit_code=3, accuracies=())
        fail(run_dir)
        typed = launching.type("report", "last")
        assert typed.code == 0
        assert typed.err.splitlines() == [
            f"{run_dir.name} failed after 42 s: rank 1 on box: exit code 3: ValueError: no such thing",
            f"{run_dir.name} has no metrics to draw",
        ]
        assert not (run_dir / "report.png").exists()
        assert launching.type("report", "--json").json()["picture"] is None

    def test_what_is_not_there_and_what_cannot_be_drawn_end_with_their_codes(self, launching):
        assert launching.type("report").code == 102
        make_run(launching.workspace)
        typed = launching.type("report", "last", "--output", "report.pdf")
        assert (typed.code, typed.out) == (2, "")
        assert "hint: --output report.png" in typed.err
