"""Profiles: which steps they are of, in trainings that are long, short, cut off, or over."""

from __future__ import annotations

import pytest

from trainer.common.errors import TrainingError
from trainer.common.profiling import StepProfiler
from trainer.common.rundir import RunDir


class Told(StepProfiler):
    """Tells what a framework's profiler would be asked; `error` is raised as it writes."""

    def __init__(self, folder, num_steps, error=None):
        run_dir = RunDir.from_environment({}, cwd=folder)
        self.told = []
        super().__init__(run_dir, num_steps=num_steps, say=self.told.append)
        self._error = error

    def _start(self):
        self.told.append(f"begins after {self._seen}")

    def _stop(self):
        self.told.append(f"ends after {self._seen}")

    def _write(self, folder, steps):
        if self._error is not None:
            raise self._error
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
def test_a_profile_that_cannot_be_written_is_told_and_ends_nothing(tmp_path, capsys, error):
    profiler = Told(tmp_path, 1, error)
    profiler.plan(1)
    with profiler:
        profiler.step()
    assert profiler.told == ["begins after 0", "ends after 1"]
    assert capsys.readouterr().err == "warning: the profile could not be written: no space\n"
