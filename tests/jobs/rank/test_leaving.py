"""How long a rank stays after its command, and for whom: its process is what others are ended by."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.rank import azure_node, node
from jobs.rank.azure_node import (
    LINGER_FOR_NODES_S,
    LINGER_FOR_RESULTS_S,
    NOTED_S,
    AzureNode,
)
from jobs.rank.hang import Hung
from jobs.rank.log import Log
from jobs.rank.mask import Mask
from jobs.rank.node import LINGER_FOR_CHECKPOINT_S, LINGER_S, Node, linger, wait_until
from jobs.rank.record import Ending, Record
from jobs.rank.world import RankJob, World
from tests.fakes.rank_settings import SETTINGS
from tests.fakes.turned_clock import TurnedClock

LOOK_S = 0.1  # what is waited for is seen by then


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    return TurnedClock(monkeypatch, node, azure_node)


class Told:
    """Whether the rank was told to leave."""

    def __init__(self) -> None:
        self.is_so = False

    def __call__(self) -> bool:
        return self.is_so

    def tell(self) -> None:
        self.is_so = True


def stays_s(clock: TurnedClock, leave: Callable[[Told], None]) -> float:
    """How long it takes to leave, to a tenth of a second."""
    told = Told()
    clock.at(100.0, told.tell)
    leave(told)
    return round(clock.passed_s, 1)


def never() -> bool:
    return False


@pytest.mark.parametrize(("so_s", "told_s"), [(1.0, 3.0), (3.0, 1.0)])
def test_wait_ends_when_it_is_so_or_the_rank_is_told(
    clock: TurnedClock, so_s: float, told_s: float
) -> None:
    so, told = Told(), Told()
    clock.at(so_s, so.tell)
    clock.at(told_s, told.tell)
    wait_until(so, told, 5.0)
    assert clock.passed_s == pytest.approx(1.0, abs=LOOK_S)


@pytest.mark.parametrize(
    ("code", "expected_s"), [(1, LINGER_S), (137, LINGER_S), (75, LINGER_FOR_CHECKPOINT_S)]
)
def test_rank_stays_for_the_others_as_long_as_they_need(
    clock: TurnedClock, code: int, expected_s: float
) -> None:
    assert stays_s(clock, lambda told: linger(code, never, told)) == expected_s


# --- with a supervisor -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "leaves_together", "expected_s"),
    [(0, True, 0.0), (1, False, 0.0), (1, True, 1.0), (75, True, 1.0)],
)
def test_rank_of_mpirun_stays_until_the_others_have_recorded_their_end(
    tmp_path: Path, clock: TurnedClock, code: int, leaves_together: bool, expected_s: float
) -> None:
    job = RankJob(str(tmp_path), ["true"], leave_together=leaves_together)
    (tmp_path / "ranks").mkdir()
    record(tmp_path, 0, ended_s=1.0)
    record(tmp_path, 1)
    clock.at(1.0, lambda: record(tmp_path, 1, ended_s=1.0))
    rank = Node(job, World(0, 2, 0, 2, 0, "127.0.0.1", "1"))
    assert stays_s(clock, lambda told: rank.before_leaving(code, told)) == expected_s


def record(run_dir: Path, rank: int, **known: Any) -> None:
    path = run_dir / "ranks" / f"{rank:05d}.json"
    path.write_text(json.dumps({"rank": rank, "pid": os.getpid(), **known}))


# --- on Azure ML -----------------------------------------------------------------------------


class Uploads:
    """Stands in for the process that brings the node's results, until `brought_s`."""

    def __init__(self, clock: TurnedClock, brought_s: float) -> None:
        self.is_brought = Told()
        clock.at(brought_s, self.is_brought.tell)

    def finish(self, is_told: Callable[[], bool]) -> bool:
        wait_until(self.is_brought, is_told, 1000.0)
        return self.is_brought.is_so


def azure(
    run_dir: Path, *, rank: int = 1, size: int = 2, uploads: Uploads | None = None, **changes: Any
) -> AzureNode:
    """A rank of a node with two; none that would start processes beside itself."""
    (run_dir / "ranks").mkdir(exist_ok=True)
    world = World(rank, size, 1, 2, 0, "127.0.0.1", "1")
    settings = SETTINGS._replace(**changes)
    made = AzureNode(settings, RankJob(str(run_dir), ["true"]), world, {}, Log(None, Mask([])))
    made._uploads = cast(Any, uploads)
    return made


@pytest.mark.parametrize(("brought_s", "expected_s"), [(7.0, 7.0), (1.0, 3.0)])
def test_results_are_brought_when_all_ranks_of_the_node_are_over(
    tmp_path: Path, clock: TurnedClock, brought_s: float, expected_s: float
) -> None:
    rank = azure(tmp_path, rank=0, uploads=Uploads(clock, brought_s))
    record(tmp_path, 1)
    clock.at(3.0, lambda: record(tmp_path, 1, ended_s=1.0))
    assert stays_s(clock, lambda told: rank.before_leaving(0, told)) == expected_s
    assert (tmp_path / "brought").exists()


def test_rank_that_is_told_to_leave_does_not_wait_for_the_results(
    tmp_path: Path, clock: TurnedClock
) -> None:
    rank = azure(tmp_path, rank=0, uploads=Uploads(clock, 500.0))
    assert stays_s(clock, lambda told: rank.before_leaving(0, told)) == 100.0
    assert not (tmp_path / "brought").exists()


def test_rank_that_ended_well_and_brings_nothing_leaves_at_once(
    tmp_path: Path, clock: TurnedClock
) -> None:
    rank = azure(tmp_path)
    record(tmp_path, 0)
    assert stays_s(clock, lambda told: rank.before_leaving(0, told)) == 0.0


@pytest.mark.parametrize(("brought_s", "stays_for_s"), [(4.0, 4.0), (60.0, LINGER_FOR_RESULTS_S)])
def test_rank_that_failed_stays_for_the_results_that_another_one_brings(
    tmp_path: Path, clock: TurnedClock, brought_s: float, stays_for_s: float
) -> None:
    rank = azure(tmp_path)
    (tmp_path / "bringing").touch()
    clock.at(brought_s, (tmp_path / "brought").touch)
    assert stays_s(clock, lambda told: rank.before_leaving(1, told)) == stays_for_s


@pytest.mark.parametrize(
    ("code", "others", "expected_s"),
    [
        (1, {"rank": 0}, LINGER_S),
        (75, {"rank": 0}, LINGER_FOR_CHECKPOINT_S),
        (1, {"rank": 0, "ended_s": 1.0}, 0.0),
        (1, {"rank": 0, "pid": 2**22 + 1}, 0.0),  # it was killed
        (1, {"rank": 2}, 0.0),  # a parameter server, who ends by nobody but us
    ],
)
def test_rank_that_failed_stays_for_those_of_its_node_that_are_at_work(
    tmp_path: Path, clock: TurnedClock, code: int, others: dict[str, Any], expected_s: float
) -> None:
    rank = azure(tmp_path)
    record(tmp_path, **others)
    assert stays_s(clock, lambda told: rank.before_leaving(code, told)) == expected_s


def test_workers_that_serve_a_chief_are_waited_for_by_nobody(
    tmp_path: Path, clock: TurnedClock
) -> None:
    rank = azure(tmp_path, rank=0, chief=True)
    record(tmp_path, 1)
    assert stays_s(clock, lambda told: rank.before_leaving(1, told)) == 0.0


def hang(run_dir: Path) -> None:
    (run_dir / "hung.json").write_text(json.dumps(Hung(60.0, {"1": 61.0}, [1, 5])._asdict()))


@pytest.mark.parametrize(
    ("size", "has_hung", "expected_s"),
    [(4, True, LINGER_FOR_NODES_S), (2, True, 0.0), (4, False, 0.0)],
)
def test_rank_that_hung_stays_for_the_records_of_other_nodes(
    tmp_path: Path, clock: TurnedClock, size: int, has_hung: bool, expected_s: float
) -> None:
    rank = azure(tmp_path, size=size)
    if has_hung:
        hang(tmp_path)
    assert stays_s(clock, lambda told: rank.before_leaving(124, told)) == expected_s


@pytest.mark.parametrize(
    ("ending", "has_hung", "has_served", "expected"),
    [
        (Ending(0, None), True, False, Ending(0, None)),
        (Ending(None, 6), True, False, Ending(124, None)),
        (Ending(None, 6), True, True, Ending(124, None)),
        (Ending(None, 15), False, True, Ending(0, None)),
        (Ending(None, 15), False, False, Ending(None, 15)),
    ],
)
def test_ending_is_judged_by_what_the_node_knows(
    tmp_path: Path, ending: Ending, has_hung: bool, has_served: bool, expected: Ending
) -> None:
    rank = azure(tmp_path, rank=0, chief=True)
    if has_hung:
        hang(tmp_path)
    if has_served:
        (tmp_path / "served-0").touch()
    assert rank.judge(ending) == expected


def test_output_is_noted_twice_a_second_at_most(
    tmp_path: Path, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = azure(tmp_path)
    noted: list[float] = []
    monkeypatch.setattr(azure_node.os, "utime", lambda _path: noted.append(clock.passed_s))
    for _ in range(15):
        rank.note_output()
        clock.sleep(0.1)
    assert noted == [0.0, NOTED_S, 2 * NOTED_S]


@pytest.mark.parametrize(
    ("code", "rank", "expected"),
    [
        (124, 1, (60.0, 61.0, True)),
        (0, 1, None),
        (124, 3, None),  # a server stands still by nature ...
        (124, 5, (60.0, 0.0, True)),  # ... and this one because somebody had stopped it
    ],
)
def test_record_says_of_a_hang_what_was_seen_of_this_rank(
    tmp_path: Path, code: int, rank: int, expected: tuple[float, float, bool] | None
) -> None:
    hung = azure(tmp_path, rank=rank)
    hang(tmp_path)
    sent: list[Record] = []
    hung._send = sent.append
    kept = Record(hung.world)
    kept.exit_code, kept.ended_s = code, time.monotonic()
    hung.save_record(kept)
    told = json.loads((tmp_path / "ranks" / f"{rank:05d}.json").read_bytes())
    names = ("hang_seconds", "silent_seconds", "was_stopped")
    assert tuple(told[name] for name in names if name in told) == (expected or ())
    assert sent == ([kept] if code else [])
