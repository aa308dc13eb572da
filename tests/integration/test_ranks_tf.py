"""Ranks of TensorFlow as they meet, on two kinds of device, and as they leave; by Horovod and by MultiWorkerMirrored."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from tests.fakes.torch_ranks import Place, mirrored_workers

MEETING = "tests.integration.programs.meeting_ranks_tf"
LEAVING = "tests.integration.programs.leaving_ranks_tf"
RUN_S = 120.0
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}


def by_horovod() -> tuple[Place, list[Mapping[str, str]]]:
    place = Place("horovod", 2)
    return place, [*place.environments]


def by_mwms() -> tuple[Place, list[Mapping[str, str]]]:
    return Place("single", 2), [*mirrored_workers(2)]


@pytest.mark.parametrize("strategy", ["horovod", "mwms"])
@pytest.mark.parametrize("kinds", [("cpu", "cuda"), ("cuda", "cpu"), ("cpu", "cpu")])
def test_ranks_on_two_kinds_of_device_are_told_before_they_wait(
    tensorflow_zygote, tmp_path, strategy, kinds
):
    place, environments = by_horovod() if strategy == "horovod" else by_mwms()
    logs = [tmp_path / f"rank-{rank}.log" for rank in (0, 1)]
    pids = [
        tensorflow_zygote.fork(
            [MEETING, strategy, kind], env={**env, **QUIET}, cwd=tmp_path, log=log
        )
        for kind, env, log in zip(kinds, environments, logs, strict=True)
    ]
    assert tensorflow_zygote.wait(pids, RUN_S), [log.read_text() for log in logs]
    place.close()
    own, others = ("GPU" if kind == "cuda" else "CPU" for kind in reversed(kinds))
    is_told = own != others
    codes = [tensorflow_zygote.code(pid) for pid in pids]
    assert codes[1] == int(is_told), logs[1].read_text()
    # Where rank 1 is told and leaves, rank 0 may lose it before its own part of the meeting has ended.
    if codes[0] != 0:
        assert is_told, logs[0].read_text()
        assert "rank 0 lost another one as they met: " in logs[0].read_text()
    said = [line for line in logs[1].read_text().splitlines() if line.startswith("rank 1 ")]
    hint = "--device cpu, or nodes whose GPUs all work"
    wanted = f"rank 1 computes on the {own}, rank 0 on the {others} (hint: {hint})"
    assert said == [wanted] * is_told


def test_mirrored_workers_leave_when_rank_0_has_come_to_the_end_too(tensorflow_zygote, tmp_path):
    """One that ended earlier cut off what rank 0 still waited for: Socket closed."""
    logs = [tmp_path / f"rank-{rank}.log" for rank in (0, 1)]
    pids = [
        tensorflow_zygote.fork([LEAVING], env={**env, **QUIET}, cwd=tmp_path, log=log)
        for env, log in zip(mirrored_workers(2), logs, strict=True)
    ]
    assert tensorflow_zygote.wait(pids, RUN_S), [log.read_text() for log in logs]
    texts = [log.read_text() for log in logs]
    assert [tensorflow_zygote.code(pid) for pid in pids] == [0, 0], texts
    found = [re.search(r"^times (\S+) (\S+)$", text, re.MULTILINE) for text in texts]
    times = [[float(each) for each in one.groups()] for one in found if one]
    (began, _), (other_began, other_left) = times
    assert other_began < began < other_left
