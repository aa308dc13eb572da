"""Ranks on a node of Azure ML that give no sign of life; one node, whose store nobody has to ask."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.rank import hang
from jobs.rank.flight import ask_for_records
from jobs.rank.hang import LOOK_S, TELL_S, NodeActivity, RunActivity, pause_s
from jobs.rank.services import Answer
from jobs.rank.settings import read_settings
from jobs.runs.failure import RankReport, root_cause
from tests import busy
from tests.busy import limit_s
from tests.fakes.azureml.ranks import lay_code
from tests.fakes.rank_settings import TOLD
from tests.fakes.turned_clock import TurnedClock

HANG_S = 2.5
# Rank 1 stands still in its own code, rank 0 in the collective that it waits for rank 1 in.
PROGRAM = """
import os, sys, time

def all_reduce():
    time.sleep(600)

def count_words():
    time.sleep(600)

print("began", flush=True)
all_reduce() if os.environ["RANK"] == "0" else count_words()
"""
PIPED = """
import os, time

rank = os.environ["RANK"]
stem = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"]
os.mkfifo(f"{stem}{rank}.pipe")
pipe = os.open(f"{stem}{rank}.pipe", os.O_RDONLY | os.O_NONBLOCK)
while not os.read(pipe, 10):
    time.sleep(0.1)
with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "w") as record:
    record.write("collectives")
time.sleep(600)
"""
TALKING = """
import os, time

for number in range(24):
    if os.environ["RANK"] == "0":
        print("step", number, flush=True)
    time.sleep(0.5)
"""


def variables(**settings: Any) -> dict[str, str]:
    told = {**TOLD, "hang_s": HANG_S, **settings}
    return {
        "TRAINYARD_RUN": "a",
        "TRAINYARD_ATTEMPT": "1",
        "TRAINYARD_JOB": base64.urlsafe_b64encode(json.dumps(told).encode()).decode(),
    }


def run_ranks(
    node: Path, program: str, hang_s: float = HANG_S, **environ: str
) -> list[tuple[int, str]]:
    """Run two ranks on one node to their end; gives their exit codes and logs."""
    (node / "program.py").write_text(program)
    lay_code(node)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", ".trainyard/rank.pyz", f"checkpoints={node / 'saved'}"],
            cwd=node,
            env={
                "PATH": os.environ["PATH"],
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": "2",
                **variables(hang_s=hang_s),
                **environ,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    logs = [rank.communicate(timeout=busy.HANG_S)[0] for rank in ranks]
    return [(rank.returncode, log) for rank, log in zip(ranks, logs, strict=True)]


def reports(node: Path) -> list[RankReport]:
    folder = node / ".trainyard" / "run" / "ranks"
    return [
        msgspec.json.decode((folder / f"{rank:05d}.json").read_bytes(), type=RankReport)
        for rank in range(2)
    ]


def test_run_that_hangs_in_a_collective_ends_with_124_and_all_stacks(tmp_path: Path) -> None:
    hang_s = limit_s(HANG_S)
    ended = run_ranks(tmp_path, PROGRAM, hang_s)
    assert [code for code, _ in ended] == [124, 124]
    for (_, log), where in zip(ended, ("all_reduce", "count_words"), strict=True):
        assert "Fatal Python error: Aborted" in log
        assert f"in {where}" in log
    error = root_cause(reports(tmp_path), stopped_s=None)
    assert error is not None
    assert (error.rank, error.cause, error.exit_code) == (1, "hang", 124)
    expected = (
        f"no output of any rank, no metrics and no checkpoint for {hang_s:g} s; "
        "it is not in the collective that the others wait in (program.py:8)"
    )
    assert re.sub(r":\d+\)", ":8)", error.message) == expected


@pytest.mark.faults
def test_output_of_one_rank_is_a_sign_of_life_of_all(tmp_path: Path) -> None:
    """It lasts longer than the limit, and rank 1 says nothing."""
    ended = run_ranks(tmp_path, TALKING, limit_s(HANG_S))
    assert [code for code, _ in ended] == [0, 0]


@pytest.mark.faults
def test_torch_is_asked_for_its_flight_record_before_the_end(tmp_path: Path) -> None:
    # Outputs would be brought to the store, which a rank waits two minutes for.
    records = tmp_path / "records"
    records.mkdir()
    place = {"TORCHELASTIC_RESTART_COUNT": "0", "TORCH_FR_DUMP_TEMP_FILE": f"{records}/rank-"}
    ended = run_ranks(tmp_path, PIPED, limit_s(HANG_S), **place)
    assert [code for code, _ in ended] == [124, 124]
    found = {path.name: path.read_text() for path in records.iterdir()}
    assert found == {"rank-0": "collectives", "rank-1": "collectives"}


def test_what_is_no_pipe_of_torchs_gets_no_byte(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "flight-0.pipe").write_text("a file of the job's")
    (tmp_path / "kept").write_text("another one")
    (tmp_path / "nodes" / "flight-1.pipe").symlink_to(tmp_path / "kept")
    os.mkfifo(tmp_path / "nodes" / "flight-2.pipe")  # nobody reads it
    assert not ask_for_records(str(tmp_path), range(4))
    assert (tmp_path / "nodes" / "flight-0.pipe").read_text() == "a file of the job's"
    assert (tmp_path / "kept").read_text() == "another one"


def test_metrics_progress_and_checkpoints_are_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TurnedClock(monkeypatch, hang)
    (tmp_path / "ranks").mkdir()
    saved = tmp_path / "saved" / "step-1"
    saved.mkdir(parents=True)
    node = NodeActivity(str(tmp_path), str(tmp_path / "saved"))
    assert node.checkpoint_age() == clock.time()
    clock.sleep(7.0)
    assert node.silence() == 7.0
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    assert node.silence() == 0.0
    clock.sleep(7.0)
    (tmp_path / "progress.json").write_text("{}\n")
    assert node.silence() == 0.0
    (saved / "weights").write_bytes(b"1")
    for ago_s, expected_s in ((50.0, 50.0), (-50.0, 0.0)):  # the store's clock may be ahead
        os.utime(saved / "weights", (clock.time() - ago_s, clock.time() - ago_s))
        assert node.checkpoint_age() == pytest.approx(expected_s)


class AnsweringRuns:
    """Answers as the store does for the blob by which nodes tell that they live."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    def look(self, blob: str) -> Answer:
        assert blob == "a/alive/1"
        return self.answers.pop(0)

    def put(self, blob: str, content: bytes, headers: dict[str, str]) -> Answer:
        assert (blob, content, headers) == ("a/alive/1", b"", {})
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answer", "silent_s"),
    [
        (Answer(200, {"Date": formatdate(1000.0), "Last-Modified": formatdate(970.0)}, b""), 30.0),
        (Answer(503, {}, b""), None),
        (Answer(0, {}, b"no route"), None),
        (Answer(200, {}, b""), None),
    ],
)
def test_other_nodes_are_silent_by_the_stores_clock_and_nobody_knows_where_it_does_not_say(
    answer: Answer, silent_s: float | None
) -> None:
    others = RunActivity(read_settings(variables()))
    others.__dict__["_runs"] = AnsweringRuns(answer)
    assert others.silence() == silent_s


def test_nodes_that_nobody_heard_of_are_silent_since_the_watch_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = TurnedClock(monkeypatch, hang)
    others = RunActivity(read_settings(variables()))
    others.__dict__["_runs"] = AnsweringRuns(Answer(404, {}, b""))
    clock.sleep(7.0)
    assert others.silence() == 7.0


def test_news_that_the_store_does_not_take_stay_news() -> None:
    others = RunActivity(read_settings(variables()))
    others.__dict__["_runs"] = AnsweringRuns(Answer(403, {}, b""), Answer(201, {}, b""))
    assert [others.tell(), others.tell()] == [False, True]


@pytest.mark.parametrize(
    ("known_s", "elsewhere_s", "expected_s"),
    [(30.0, 30.0, 70.0), (99.9, 99.9, 0.2), (100.0, 250.0, LOOK_S), (0.0, None, TELL_S)],
)
def test_the_store_is_not_asked_in_a_hurry_where_no_rank_is_at_work(
    known_s: float, elsewhere_s: float | None, expected_s: float
) -> None:
    assert pause_s(100.0, known_s, elsewhere_s) == expected_s
