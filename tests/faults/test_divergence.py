"""F10: a loss or a weight that is not finite stops all PyTorch ranks within a step.

The checkpoint before is kept, and the message names step, epoch, batch, rank and samples. Overflowing
gradients under a GradScaler are no such thing: that step is skipped on all ranks.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.busy import wait_until
from tests.campaign import campaign
from tests.fakes.torch_ranks import Strategy, Zygote
from tests.faults.torch_campaign import (
    Program,
    checkpoints,
    mnist,
    newest,
    read_index,
    state,
    tiny,
)

RUN_S = 120.0
KEEP_ALL = ("--keep-last", "1000")
OVERFLOW = "1 12 overflow"


def run(
    zygote: Zygote, program: Program, folder: Path, strategy: Strategy, *more: str, fault: str = ""
) -> tuple[list[int | None], list[str]]:
    """Run to the end; gives exit codes and what the ranks printed."""
    env = {"WATCH_FAULT": fault}
    gang = program.start(zygote, folder, strategy, *KEEP_ALL, *more, env=env)
    codes = gang.wait(RUN_S)
    gang.end()
    return codes, gang.texts()


def errors_of(
    zygote: Zygote,
    program: Program,
    folder: Path,
    reference: Path,
    strategy: Strategy,
    fault: tuple[int, int, str],
) -> list[str]:
    """Inject one fault; gives what was not as promised."""
    rank, step, kind = fault
    codes, texts = run(zygote, program, folder, strategy, fault=f"{rank} {step} {kind}")
    rows = read_index(folder).rows
    errors: list[str] = []
    if codes != [1, 1]:
        errors.append(f"ended with {codes}: {texts}")
    # A gradient's harm shows in the next step's loss, on whichever ranks.
    named = step + 1 if kind == "gradient" else step
    if max(each for each, _ in rows) > named + 1:
        errors.append(f"went on to step {max(rows)}")
    found = checkpoints(folder)
    last_due = (step - 1) // program.checkpoint_every * program.checkpoint_every
    if max(found, default=0) != last_due:
        errors.append(f"kept {sorted(found)} instead of all up to {last_due}")
    elif found and state(found[last_due]) != state(checkpoints(reference)[last_due]):
        errors.append(f"checkpoint {last_due} is not the one of the run without a fault")
    epoch, batch = divmod(named - 1, program.steps_per_epoch)
    place = f"at step {named} (epoch {epoch + 1}, batch {batch + 1})"
    samples = ", ".join(map(str, rows.get((named, rank), [])))
    who = f"the loss of rank {rank} is" if kind != "gradient" else "the loss of 2 ranks is"
    said = [f"error: training has diverged: {who} not finite {place}"] * 2
    said[rank] += f"; samples of rank {rank}: {samples} (hint: "
    errors += [
        f"no `{each}` in {text}"
        for each, text in zip(said, texts, strict=True)
        if each not in text or "Traceback" in text
    ]
    return errors


class TestDiverged:
    @pytest.mark.parametrize(
        ("strategy", "numbers"),
        [
            pytest.param("ddp", (1, 3), id="ddp"),
            pytest.param("ddp", (0, 2, 4, 5), id="ddp at other steps", marks=pytest.mark.faults),
            pytest.param("horovod", range(6), id="horovod", marks=pytest.mark.faults),
        ],
    )
    def test_all_ranks_stop_within_a_step(self, zygote, pictures, tmp_path, strategy, numbers):
        small, cnn = tiny(2), mnist(pictures)
        faults = [
            (small, (0, 1, "nan")),
            (small, (1, 14, "nan")),  # a step whose checkpoint is due
            (small, (0, 26, "inf")),
            (small, (1, 28, "gradient")),  # due, with a finite loss
            (small, (1, 50, "inf")),  # the last step of all
            (cnn, (1, 13, "nan")),
        ]
        for program in {faults[number][0].name: faults[number][0] for number in numbers}.values():
            codes, texts = run(zygote, program, tmp_path / program.name, strategy)
            assert codes == [0, 0], texts
        errors: list[list[str]] = []
        for number in numbers:
            program, fault = faults[number]
            folder, reference = tmp_path / str(number), tmp_path / program.name
            errors.append(errors_of(zygote, program, folder, reference, strategy, fault))
        campaign(
            f"F10 PyTorch, {strategy}: NaN or Inf in a loss or a gradient, all ranks stopped",
            tried=len(numbers),
            survived=sum(not each for each in errors),
        )
        assert errors == [[]] * len(numbers)


class TestOverflow:
    @pytest.mark.parametrize("strategy", [pytest.param("ddp", marks=pytest.mark.faults), "horovod"])
    def test_a_scaler_skips_the_step_and_its_state_is_kept(self, zygote, tmp_path, strategy):
        codes, texts = run(zygote, tiny(1), tmp_path, strategy, "--scaler", fault=OVERFLOW)
        assert codes == [0, 0], texts
        scales = {step: scaler(tmp_path, step) for step in (7, 14)}
        assert [scales[step]["scale"] for step in (7, 14)] == [65536.0, 32768.0]
        # Steps since the scale was last changed: 13 and 14.
        assert (scales[7]["_growth_tracker"], scales[14]["_growth_tracker"]) == (7, 2)

    @pytest.mark.faults
    @pytest.mark.parametrize("strategy", ["ddp", "horovod"])
    def test_a_resumed_scaler_goes_on_as_it_was(self, zygote, tmp_path, strategy):
        program = tiny(3)
        whole, cut = tmp_path / "whole", tmp_path / "cut"
        codes, texts = run(zygote, program, whole, strategy, "--scaler", fault=OVERFLOW)
        assert codes == [0, 0], texts
        gang = program.start(
            zygote, cut, strategy, *KEEP_ALL, "--scaler", env={"WATCH_FAULT": OVERFLOW}
        )
        wait_until(lambda: 21 in checkpoints(cut), RUN_S, gang.texts)
        gang.send(1, signal.SIGKILL)
        gang.end()
        codes, texts = run(zygote, program, cut, strategy, "--scaler")
        assert codes == [0, 0], texts
        assert "resumed at step" in texts[0]
        assert newest(cut) == newest(whole)


def scaler(folder: Path, step: int) -> dict[str, float]:
    """The scaler's state in the checkpoint of a step."""
    found = next(folder.glob(f"checkpoints/step-{step:09d}-*/state.json"))
    return json.loads(found.read_text())["scaler"]
