"""`launch report`: rows, remarks and pictures of run directories as the contract lays them out."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.contracts.spec import Plan, RankError, RunRecord, RunState
from jobs.runs import charts
from jobs.runs import report as reports
from jobs.runs.charts import check_format, draw_report, headings, panel_names, report_label, thinned
from jobs.runs.figures import Figure
from jobs.runs.metrics import Curve
from jobs.runs.report import Figures, RunReport, as_json
from jobs.runs.report_text import NO_METRICS, remarks, report_table
from jobs.runs.run_folder import read_error, read_status
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


MAIN = Figure(
    split="test",
    name="accuracy",
    goal="max",
    axis="epoch",
    last=0.9,
    last_at=2,
    best=0.9,
    best_at=2,
)


def table(*reports: RunReport) -> list[list[str]]:
    ids = {each.status.id: each.status.id for each in reports}
    return [line.split() for line in report_table(reports, ids).splitlines()]


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
            Curve(split="train", name="loss", at=[0.5, 1.5], values=[2.0, 1.0]),
            Curve(split="test", name="loss", at=[1, 2], values=[1.0, 0.5]),
            Curve(split="test", name="accuracy", at=[1, 2], values=[0.5, 0.9]),
            Curve(split="train", name="images_per_s", at=[1, 2], values=[1000.4, 1000.4]),
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
            epochs=2, test_accuracy=0.9, test_loss=0.5, images_per_s=1000.4, main=MAIN
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
            epochs=2, test_accuracy=0.91, test_loss=0.4, images_per_s=1234.5, main=MAIN
        )
        assert report.summary == summary

    def test_a_program_that_writes_a_summary_alone_has_a_main_figure(self, tmp_path):
        summary = {"epochs": 3, "val_loss": 0.5, "val_iou": 0.75, "note": "x"}
        report = read_report(make_run(tmp_path, accuracies=(), summary=summary))
        assert report.figures.main == Figure(
            split="val",
            name="iou",
            goal="max",
            axis="epoch",
            last=0.75,
            last_at=3,
            best=0.75,
            best_at=3,
        )
        assert report.curves == []

    def test_a_line_cut_off_and_a_broken_summary_do_no_harm(self, tmp_path):
        run_dir = make_run(tmp_path)
        whole = read_report(run_dir)
        with (run_dir / "metrics.jsonl").open("a") as file:
            file.write('{"ts": "2026-11-21T12:00:02Z", "step": 20, "ep')
        (run_dir / "summary.json").write_text("[1, 2]")
        assert read_report(run_dir) == whole

    def test_numbers_that_json_has_no_word_for_and_a_byte_order_mark_cost_nothing_else(
        self, tmp_path
    ):
        run_dir = make_run(tmp_path, accuracies=())
        text = '{"epochs": 3, "val_accuracy": 0.75, "val_loss": NaN, "lrs": [Infinity, -Infinity]}'
        (run_dir / "summary.json").write_text(f"\ufeff{text}", encoding="utf-8")
        told = {"epochs": 3, "val_accuracy": 0.75, "val_loss": None, "lrs": [None, None]}
        report = read_report(run_dir)
        assert (report.summary, [each.label for each in report.metrics]) == (told, ["val accuracy"])
        lines = [f'{{"step": {step}, "name": "iou", "value": {step}}}\n' for step in (1, 2)]
        (run_dir / "metrics.jsonl").write_text("\ufeff" + "".join(lines), encoding="utf-8")
        assert read_report(run_dir).curves == [
            Curve(split="", name="iou", axis="step", at=[1, 2], values=[1, 2])
        ]

    def test_sizes_in_a_summary_are_no_figures(self, tmp_path):
        run_dir = make_run(tmp_path)
        (run_dir / "metrics.jsonl").unlink()
        content = {"epochs": 3, "parameters": 12, "val_accuracy": 0.75, "loss": 0.5}
        (run_dir / "summary.json").write_text(json.dumps(content))
        labels = [each.label for each in read_report(run_dir).metrics]
        assert labels == ["val accuracy", "loss"]

    def test_true_and_false_in_a_summary_are_no_figures(self, tmp_path):
        summary = {"epochs": True, "val_iou": True, "test_accuracy": False, "val_loss": 0.5}
        report = read_report(make_run(tmp_path, accuracies=(), summary=summary))
        assert [each.label for each in report.metrics] == ["val loss"]
        figures = report.figures
        assert (figures.epochs, figures.test_accuracy) == (None, None)

    def test_a_folder_that_is_no_run_is_named(self, tmp_path):
        with pytest.raises(NotFound, match="there is no run in"):
            read_report(tmp_path)


class TestRows:
    def test_a_row_has_every_figure(self, tmp_path):
        report = read_report(make_run(tmp_path))
        assert table(report) == [
            [
                *("RUN", "NAME", "STATE", "RANKS", "EPOCHS", "TEST", "ACCURACY", "BEST"),
                *("TEST", "LOSS", "IMAGES/S", "TIME"),
            ],
            [
                *(RUN_ID.format(1), "digits", "completed", "2", "2", "90.00%", "90.00%"),
                *("0.5000", "1,000", "42", "s"),
            ],
        ]
        assert remarks([report]) == []

    def test_programs_of_different_figures_have_columns_each(self, tmp_path):
        digits = read_report(make_run(tmp_path, 1))
        run_dir = make_run(tmp_path, 2, accuracies=())
        lines = [{"step": 5, "name": "ppl", "value": 40.5}, {"step": 9, "name": "ppl", "value": 41}]
        (run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        other = replace(read_report(run_dir), differs={"name": "lm", "lr": "0.1"})
        header, *rows = table(digits, other)
        assert header == [
            *("RUN", "NAME", "DIFFERS", "STATE", "RANKS", "EPOCHS", "TEST", "ACCURACY", "BEST"),
            *("PPL", "BEST", "TEST", "LOSS", "IMAGES/S", "TIME"),
        ]
        assert rows[0][4:] == ["2", "90.00%", "90.00%", "-", "-", "0.5000", "1,000", "42", "s"]
        assert rows[1][2:] == [
            *("lr=0.1", "completed", "2", "-", "-", "-", "41.0000", "40.5000", "-", "-", "42", "s"),
        ]

    def test_the_wait_for_data_is_the_summarys_else_the_mean_of_what_was_logged(self, tmp_path):
        told = make_run(tmp_path, 1, summary={"data_wait_s": 0.25})
        logged, neither = make_run(tmp_path, 2), make_run(tmp_path, 3)
        for run_dir in (told, logged):
            with (run_dir / "metrics.jsonl").open("a") as file:
                for step, wait_s in ((10, 0.001), (15, None), (20, 0.002)):
                    line = {"step": step, "split": "train", "name": "data_wait_s", "value": wait_s}
                    file.write(json.dumps(line) + "\n")
        reports = [read_report(each) for each in (told, logged, neither)]
        assert [each.figures.data_wait_s for each in reports] == [0.25, 0.0015, None]
        header, *rows = table(*reports)
        assert header[-4:] == ["IMAGES/S", "DATA", "WAIT", "TIME"]
        assert [row[9:] for row in rows] == [
            ["250.0", "ms", "42", "s"],
            ["1.5", "ms", "42", "s"],
            ["-", "42", "s"],
        ]

    def test_a_failed_run_says_why(self, tmp_path):
        run_dir = make_run(tmp_path, state=RunState.FAILED, exit_code=3)
        fail(run_dir)
        report = read_report(run_dir)
        assert table(report)[1][2] == "failed"
        assert remarks([report]) == [
            f"{RUN_ID.format(1)} failed after 42 s: rank 1 on box: exit code 3: ValueError: no such thing",
        ]

    def test_a_run_without_metrics_says_so(self, tmp_path):
        report = read_report(make_run(tmp_path, accuracies=()))
        assert table(report) == [
            ["RUN", "NAME", "STATE", "RANKS", "TIME"],
            [RUN_ID.format(1), "digits", "completed", "2", "42", "s"],
        ]
        assert remarks([report]) == [f"{RUN_ID.format(1)} {NO_METRICS}"]

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
            "experiment": "digits",
            "tags": {},
            "time_s": 42.5,
            "figures": {
                "epochs": 2.0,
                "test_accuracy": 0.9,
                "test_loss": 0.5,
                "images_per_s": 1000.4,
                "data_wait_s": None,
                "main": msgspec.to_builtins(MAIN),
            },
            "metrics": [msgspec.to_builtins(each) for each in report.metrics],
            "differs": {},
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
        accuracy, loss, rate = charts._figure([report]).axes
        drawn = {
            line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
            for line in loss.lines
        }
        assert drawn == {"train": ([0.5, 1.5], [2.0, 1.0]), "test": ([1, 2], [1.0, 0.5])}
        (line,) = accuracy.lines
        assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 2], [0.5, 0.9])
        titles = [panel.get_title(loc="left") for panel in (accuracy, loss, rate)]
        assert (titles, loss.get_xlabel(), accuracy.get_xlabel()) == (
            ["accuracy", "loss", "images_per_s"],
            "epoch",
            "epoch",
        )
        assert [text.get_text() for text in accuracy.texts] == ["90.00%"]
        formatter = accuracy.yaxis.get_major_formatter()
        assert formatter(0.5, 0) == "50%"

    def test_several_runs_are_labelled_by_how_they_differ(self, tmp_path):
        reports = [
            read_report(make_run(tmp_path, 1, summary={"strategy": "horovod"})),
            read_report(make_run(tmp_path, 2, state=RunState.FAILED, exit_code=1)),
        ]
        reports[0] = replace(reports[0], differs={"lr": "$0.1$"})
        figure = charts._figure(reports)
        (legend,) = figure.legends
        texts = [text.get_text() for text in legend.get_texts()]
        assert texts == [
            rf"lr=\$0.1\$  ·  test accuracy 90.00%  ·  {RUN_ID.format(1)}",
            f"digits  ·  test accuracy 90.00%  ·  failed  ·  {RUN_ID.format(2)}",
        ]
        assert headings(reports) == ("digits: 2 runs", "solid: test, dotted: train")
        assert report_label(reports[1]) == texts[1]

    def test_the_heading_of_one_run_says_what_it_was(self, tmp_path):
        report = read_report(make_run(tmp_path, summary={"strategy": "horovod"}))
        subtitle = (
            f"{RUN_ID.format(1)}  ·  completed  ·  2 ranks  ·  horovod  ·  test accuracy 90.00%"
            "  ·  1,000 images/s"
        )
        assert headings([report]) == ("digits", subtitle)

    def test_every_metric_has_a_panel_main_figure_first(self, tmp_path):
        report = read_report(make_run(tmp_path))
        assert panel_names([report]) == ["accuracy", "loss", "images_per_s"]
        others = [Curve(split="test", name=f"m{n}", at=[1], values=[2]) for n in range(11)]
        many = replace(report, curves=[*report.curves, *others])
        assert len([each for each in charts._figure([many]).axes if each.get_visible()]) == 9
        assert charts.left_out([many]) == ["m7", "m8", "m9", "m10", "images_per_s"]

    def test_what_is_no_number_leaves_a_gap_and_a_name_is_no_formula(self, tmp_path):
        run_dir = make_run(tmp_path, accuracies=())
        values = ["1e308", "NaN", "0.5", "null", "-Infinity", "0.25"]
        lines = [
            f'{{"step": {n}, "name": "_$x^{{$", "value": {value}}}'
            for n, value in enumerate(values)
        ]
        (run_dir / "metrics.jsonl").write_text("\n".join(lines))
        report = read_report(run_dir)
        (panel,) = charts._figure([report]).axes
        (line,) = panel.lines
        assert [None if math.isnan(y) else y for y in line.get_ydata()] == [
            *(None, None, 0.5, None, None, 0.25),
        ]
        assert (panel.get_xlabel(), panel.get_title(loc="left")) == ("step", r" _\$x^{\$")
        draw_report([report], tmp_path / "a.png")

    def test_of_a_million_points_peaks_and_ends_are_drawn(self):
        values = [1.0] * 1_000_000
        values[333_333], values[777_777] = 5.0, -5.0
        curve = Curve(split="", name="x", at=[float(n) for n in range(1_000_000)], values=values)
        drawn = thinned(curve)
        assert len(drawn) <= charts.MAX_POINTS
        assert [point for point in drawn if point[1] != 1] == [(333_333, 5.0), (777_777, -5.0)]
        assert (drawn[0], drawn[-1]) == ((0, 1.0), (999_999, 1.0))

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
            [
                *("RUN", "NAME", "STATE", "RANKS", "EPOCHS", "TEST", "ACCURACY", "BEST"),
                *("TEST", "LOSS", "IMAGES/S", "TIME"),
            ],
            [
                *(run_dir.name, "digits", "completed", "2", "2", "90.00%", "90.00%", "0.5000"),
                *("1,000", "42", "s"),
            ],
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

    def test_a_place_for_no_picture_is_refused(self, launching):
        make_run(launching.workspace)
        typed = launching.type("report", "--no-picture", "-o", "x.png")
        message = "--output has no effect with --no-picture"
        assert typed.code == 2
        assert typed.err == f"error: {message}\n\nhint: leave one of them out\n"

    def test_a_failed_run_without_metrics_says_both_and_draws_nothing(self, launching):
        run_dir = make_run(launching.workspace, state=RunState.FAILED, exit_code=3, accuracies=())
        fail(run_dir)
        typed = launching.type("report", "last")
        assert typed.code == 0
        assert typed.err.splitlines() == [
            f"{run_dir.name} failed after 42 s: rank 1 on box: exit code 3: ValueError: no such thing",
            f"{run_dir.name} {NO_METRICS}",
        ]
        assert not (run_dir / "report.png").exists()
        assert launching.type("report", "--json").json()["picture"] is None

    def test_what_is_not_there_and_what_cannot_be_drawn_end_with_their_codes(self, launching):
        assert launching.type("report").code == 102
        make_run(launching.workspace)
        typed = launching.type("report", "last", "--output", "report.pdf")
        assert (typed.code, typed.out) == (2, "")
        assert "hint: --output report.png" in typed.err
