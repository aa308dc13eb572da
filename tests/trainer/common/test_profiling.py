"""Profiles: which steps they are of, in trainings that are long, short, cut off, or over."""

from __future__ import annotations

import contextlib

import pytest

from trainer.common.errors import TrainingError
from trainer.common.profiling import StepProfiler
from trainer.common.rundir import RunDir


class Told(StepProfiler):
    """Tells what a framework's profiler would be asked; `error` is raised as it does what `fails` says."""

    def __init__(self, folder, num_steps, error=None, fails="write"):
        run_dir = RunDir.from_environment({}, cwd=folder)
        self.told = []
        super().__init__(run_dir, num_steps=num_steps, say=self.told.append)
        self._error, self._fails = error, fails

    def _fail(self, doing):
        if self._error is not None and self._fails == doing:
            raise self._error

    def _start(self):
        self._fail("start")
        self.told.append(f"begins after {self._seen}")

    def _stop(self):
        self.told.append(f"ends after {self._seen}")
        self._fail("stop")

    def _write(self, folder, steps):
        self._fail("write")
        assert folder.is_dir()


def told_of(folder, first, number):
    """What is told of a profile that begins after so many steps and is of so many."""
    steps = "1 step" if number == 1 else f"{number} steps"
    out = folder / "outputs" / "profile"
    written = f"profile of {steps}: {out / 'kernels.txt'}, trace.json"
    return [f"begins after {first}", f"ends after {first + number}", written]


@pytest.mark.parametrize(
    ("num_steps", "num_left", "num_taken", "profiled"),
    [
        (3, 100, 100, (10, 3)),
        (3, 13, 13, (10, 3)),
        (3, 5, 5, (2, 3)),
        (3, 3, 3, (0, 3)),
        (3, 1, 1, (0, 1)),
        (3, 100, 12, (10, 2)),
        (3, 100, 9, None),
        (0, 100, 100, None),
        (3, 0, 0, None),
    ],
)
def test_a_profile_is_of_so_many_steps_after_a_warm_up_that_is_short_where_few_are_left(
    tmp_path, capsys, num_steps, num_left, num_taken, profiled
):
    profiler = Told(tmp_path, num_steps)
    profiler.plan(num_left)
    with profiler:
        for _ in range(num_taken):
            profiler.step()
    assert profiler.told == (told_of(tmp_path, *profiled) if profiled else [])
    warned = ["warning: --profile: no step is left to take, so there is none to profile"]
    assert capsys.readouterr().err.splitlines() == (warned if not num_left else [])


@pytest.mark.parametrize(
    "error", [OSError("no space"), RuntimeError("no space"), TrainingError("no space")]
)
@pytest.mark.parametrize(
    ("fails", "told", "warned"),
    [
        ("start", [], "begun"),
        ("stop", ["begins after 0", "ends after 1"], "written"),
        ("write", ["begins after 0", "ends after 1"], "written"),
    ],
)
def test_a_profile_that_fails_is_told_and_ends_and_hides_nothing(
    tmp_path, capsys, error, fails, told, warned
):
    for num_steps in (1, 2):
        profiler = Told(tmp_path, num_steps, error, fails)
        profiler.plan(num_steps)
        with contextlib.suppress(ZeroDivisionError), profiler:
            profiler.step()
            raise ZeroDivisionError  # what the training itself ends by
        assert profiler.told == told
        said = f"warning: the profile could not be {warned}: no space\n"
        assert capsys.readouterr().err == said
