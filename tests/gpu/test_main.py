"""`make gpu` says where it cannot try anything, goes on behind a check that fails, and writes a page."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import needs
from tests.gpu.__main__ import PAGE, in_turn, page_text, try_all
from tests.gpu.findings import Finding, at_least, within
from tests.gpu.programs import PROJECT, Where


def test_without_pytorch_it_says_so_and_leaves_the_page_alone():
    before = PAGE.read_bytes()

    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.startswith("error: not installed here: torch")
    assert "hint: `make gpu` makes a Python that has them" in done.stderr
    assert PAGE.read_bytes() == before


def test_a_check_that_fails_is_a_finding_and_keeps_none_away(capsys, tmp_path):
    def fails(where):
        raise RuntimeError(f"{where.num_gpus} GPUs were too few")

    def counts(where):
        return [within("difference", 0.25, 0.5), at_least("rate", 0.4, 0.5)]

    where = Where(device="cuda", num_gpus=3, folder=tmp_path)
    found = try_all({"first": fails, "second": counts}, where)

    assert [each.is_met for each in found] == [False, True, False]
    assert "NO  first: 3 GPUs were too few" in capsys.readouterr().out


def test_no_number_meets_no_bound():
    assert not within("difference", float("nan"), 1.0).is_met
    assert not at_least("rate", float("nan"), 0.0).is_met


def test_the_page_tells_what_was_missed_in_rows_of_one_line():
    found = [
        Finding(what="a | b", seen="two\nlines", wanted="one", is_met=False),
        within("difference", 0.25, 0.5),
    ]

    page = page_text(found, "1 x GPU", 3, 600)

    assert "10 minutes" in page
    assert "Hardware: 1 x GPU." in page
    assert "2 findings, 1 of them missed. What" in page
    assert "| a \\| b | two lines | one | NO |" in page
    assert "| difference | 0.25 | <= 0.5 | yes |" in page


def test_after_each_step_it_is_written_what_was_found_and_what_is_left(tmp_path):
    def check(where):
        return [within(where.folder.name, 1, 2)]

    written = []
    where = Where(device="cuda", num_gpus=1, folder=tmp_path)
    steps = [{"a": check, "b": check}, {"c": check}, {"d": check}]

    found = in_turn(
        steps, where, lambda so_far, left: written.append(([each.what for each in so_far], left))
    )

    assert [each.what for each in found] == ["a", "b", "c", "d"]
    assert written == [
        (["a", "b"], ["c", "d"]),
        (["a", "b", "c"], ["d"]),
        (["a", "b", "c", "d"], []),
    ]


def test_the_page_of_a_run_that_has_not_ended_tells_what_was_not_tried():
    page = page_text([within("difference", 0.25, 0.5)], "", 1, 60, not_tried=["pictures", "memory"])

    assert "1 findings, 0 of them missed. Not tried: pictures, memory. What" in page


# The rates of a loader and of a program, of a few pictures.
SMALL = """
from pathlib import Path
from tests.gpu import speed
from tests.gpu.programs import Where

speed.SIDE, speed.PICTURES, speed.STEPS = 64, 1, 2
where = Where(device="cpu", num_gpus=0, folder=Path.cwd())
speed.make_jpegs(Path("jpegs"), num_images=100)
for each in [*speed._loaded(where, Path("jpegs")), speed._mask_rcnn_program(where)]:
    print(each.what, each.seen)
"""


@pytest.mark.faults
def test_rates_of_loaders_and_of_mask_rcnns_program_are_told_on_the_cpu(tmp_path):
    done = subprocess.run(
        [str(needs.runtime("pytorch")), "-c", SMALL],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.splitlines()[-3:]  # behind what the making of pictures says
    assert [line.partition(",")[0] for line in told] == [
        *["loader alone"] * 2,
        "Mask R-CNN's program",
    ]
    assert all("images/s" in line for line in told)


@pytest.mark.faults
def test_make_gpu_has_all_packages_and_says_that_it_sees_no_gpu():
    needs.runtime("pytorch")
    command = ["make", "--silent", "gpu"]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}

    done = subprocess.run(
        command, cwd=PROJECT, env=environ, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "sees no GPU here" in done.stderr, done.stdout + done.stderr


@pytest.mark.faults
def test_every_check_but_those_of_speed_is_met_on_the_cpu():
    command = [str(needs.runtime("pytorch")), "-m", "tests.gpu", "--device", "cpu"]

    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "links (" in done.stdout
    assert "NO " not in done.stdout
