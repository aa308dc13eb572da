"""RunDir: where things lie, with Trainyard and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer.common.errors import TrainingError
from trainer.common.rundir import RunDir


def test_without_trainyard_everything_goes_to_outputs(tmp_path):
    run_dir = RunDir.from_environment({}, cwd=tmp_path)
    assert run_dir.metrics == tmp_path / "outputs" / "metrics.jsonl"
    assert run_dir.output("model") == tmp_path / "outputs" / "model"
    assert run_dir.output("model").is_dir()
    with pytest.raises(TrainingError, match=r"no input `digits`.*--data DIR"):
        run_dir.input("digits")


def test_with_trainyard_the_variables_say_where(tmp_path):
    environ = {
        "TRAINYARD_RUN_DIR": str(tmp_path / "run"),
        "TRAINYARD_INPUT_DIGITS": "/in/digits",
        "TRAINYARD_INPUT_OTHER": "/in/other",
        "TRAINYARD_OUTPUT_MODEL": str(tmp_path / "run" / "outputs" / "model"),
    }
    run_dir = RunDir.from_environment(environ, cwd=tmp_path)
    assert run_dir.metrics == tmp_path / "run" / "metrics.jsonl"
    assert str(run_dir.input("digits")) == "/in/digits"
    assert run_dir.output("model") == tmp_path / "run" / "outputs" / "model"
    assert run_dir.output("plots") == tmp_path / "outputs" / "plots"


def test_the_only_input_serves_under_any_name(tmp_path):
    run_dir = RunDir.from_environment({"TRAINYARD_INPUT_MNIST": "/in/mnist"}, cwd=tmp_path)
    assert str(run_dir.input("digits")) == "/in/mnist"


def test_a_summary_replaces_the_one_before_and_leaves_no_other_file(tmp_path):
    run_dir = RunDir.from_environment({"TRAINYARD_RUN_DIR": str(tmp_path)})
    run_dir.write_summary({"epochs": 1})
    run_dir.write_summary({"epochs": 2, "test_accuracy": 0.5})
    assert json.loads((tmp_path / "summary.json").read_text()) == {
        "epochs": 2,
        "test_accuracy": 0.5,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_what_the_disk_refuses_is_an_error_of_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    run_dir = RunDir.from_environment({"TRAINYARD_RUN_DIR": str(tmp_path / "file")})
    with pytest.raises(TrainingError, match=r"summary\.json` cannot be written: File exists"):
        run_dir.write_summary({"epochs": 1})
    with pytest.raises(TrainingError, match=r"model` cannot be made: Not a directory"):
        RunDir.from_environment({}, cwd=tmp_path / "file").output("model")


def test_an_output_dir_stands_for_outputs_and_leaves_declared_ones_where_they_are(tmp_path):
    environ = {"TRAINYARD_OUTPUT_MODEL": str(tmp_path / "declared")}
    run_dir = RunDir.from_environment(environ, cwd=tmp_path, output_dir=tmp_path / "results")
    assert run_dir.output("predictions") == tmp_path / "results" / "predictions"
    assert run_dir.metrics == tmp_path / "results" / "metrics.jsonl"
    assert run_dir.output("model") == tmp_path / "declared"
    beside = RunDir.from_environment({}, cwd=tmp_path, output_dir=Path("mine"))
    assert beside.output("model") == tmp_path / "mine" / "model"


def test_outputs_that_cannot_be_written_to_are_refused_before_anything_begins(tmp_path):
    (tmp_path / "file").write_text("in the way")
    of_dir = RunDir.from_environment({}, cwd=tmp_path, output_dir=tmp_path / "file")
    with pytest.raises(
        TrainingError, match=r"file` cannot be made: File exists \(hint: --output-d"
    ):
        of_dir.require_outputs()
    environ = {"TRAINYARD_OUTPUT_MODEL": "/proc/self"}
    declared = RunDir.from_environment(environ, cwd=tmp_path)
    with pytest.raises(TrainingError, match=r"`/proc/self` cannot be written to: \w+"):
        declared.require_outputs()
    whole = RunDir.from_environment({}, cwd=tmp_path, output_dir=tmp_path / "new")
    whole.require_outputs()
    assert list((tmp_path / "new").iterdir()) == []


def test_an_output_that_is_there_and_cannot_be_written_to_is_refused_at_once(tmp_path):
    """A job started by hand declares none: its model was refused after the last step."""
    run_dir = RunDir.from_environment({}, cwd=tmp_path)
    for name in ("model", "predictions", "profile"):
        (tmp_path / "outputs").mkdir(exist_ok=True)
        (tmp_path / "outputs" / name).write_text("in the way")
        with pytest.raises(TrainingError, match=rf"{name}` cannot be made: File exists \(hint"):
            run_dir.require_outputs()
        (tmp_path / "outputs" / name).unlink()
        (tmp_path / "outputs" / name).symlink_to("/proc/self")
        with pytest.raises(TrainingError, match=rf"{name}` cannot be written to: "):
            run_dir.require_outputs()
        (tmp_path / "outputs" / name).unlink()
    run_dir.require_outputs()
    assert list((tmp_path / "outputs").iterdir()) == []
