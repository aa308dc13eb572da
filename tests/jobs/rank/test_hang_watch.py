"""The watch over a node of Azure ML, by a clock that is turned: when it ends a run, and how."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.rank import hang
from jobs.rank.flight import WRITING_S
from jobs.rank.hang import (
    LOOK_S,
    STACKS_S,
    STANDING_S,
    TELL_S,
    Hung,
    end_hanging,
    read_hung,
    watch_hang,
)
from tests.fakes.rank_settings import SETTINGS
from tests.fakes.turned_clock import TurnedClock

LIMIT_S = 100.0
HANGING = SETTINGS._replace(hang_s=LIMIT_S)


class WatchedNode:
    """A node, its clock, and the other nodes as far as the store knows of them.

    `elsewhere_s` is the age of their last sign, `is_taken` whether the store takes this node's.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run_dir, self.checkpoints = folder / "run", folder / "checkpoints"
        (self.run_dir / "ranks").mkdir(parents=True)
        self.checkpoints.mkdir()
        self.clock = TurnedClock(monkeypatch, hang)
        self.is_closed = False
        self.longest_s = 0.0
        self.told_s: list[float] = []
        self.asked_s: list[float] = []
        self.ended_s: list[float] = []
        self.elsewhere_s: float | None = 1000.0
        self.is_taken = True
        self.are_ranks_at_work = True
        monkeypatch.setattr(hang, "select", SimpleNamespace(select=self.select))
        monkeypatch.setattr(hang, "die_with_parent", lambda: None)
        monkeypatch.setattr(hang, "end_hanging", self.end_hanging)
        monkeypatch.setattr(hang, "RunActivity", lambda _settings: self)

    def writes(self, path: Path) -> Callable[[], None]:
        def write() -> None:
            path.touch()
            os.utime(path, (self.clock.time(), self.clock.time()))

        return write

    def watch(self, until_s: float, *, is_alone: bool = False) -> list[float]:
        """Watch until a run is ended or so long; gives when it was ended."""
        self.clock.at(until_s, lambda: setattr(self, "is_closed", True))
        watch_hang(HANGING, str(self.run_dir), str(self.checkpoints), is_alone=is_alone)
        return self.ended_s

    # --- as select, the other nodes and the end of the ranks ----------------------------------

    def select(self, _read: object, _write: object, _error: object, timeout_s: float) -> Any:
        assert timeout_s > 0, "it would look in a busy loop"
        self.longest_s = max(self.longest_s, timeout_s)
        self.clock.sleep(timeout_s)
        return ([0] if self.is_closed else []), [], []

    def tell(self) -> bool:
        self.told_s.append(self.clock.passed_s)
        return self.is_taken

    def silence(self) -> float | None:
        self.asked_s.append(self.clock.passed_s)
        return self.elsewhere_s

    def end_hanging(self, _run_dir: str, limit_s: float, *, is_alone: bool) -> bool:
        assert limit_s == LIMIT_S
        self.ended_s.append(self.clock.passed_s)
        return self.are_ranks_at_work


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WatchedNode:
    return WatchedNode(tmp_path, monkeypatch)


def test_node_that_is_alone_ends_a_silent_run_at_the_limit(node: WatchedNode) -> None:
    assert node.watch(1000.0, is_alone=True) == [LIMIT_S]
    assert (node.asked_s, node.told_s, node.longest_s) == ([], [], LOOK_S)


def test_record_of_a_rank_and_a_line_of_metrics_put_the_end_off(node: WatchedNode) -> None:
    for when_s, name in ((60.0, "ranks/00000.json"), (155.0, "ranks/00003.json")):
        node.clock.at(when_s, node.writes(node.run_dir / name))
    node.clock.at(250.0, node.writes(node.run_dir / "metrics.jsonl"))
    node.clock.at(300.0, node.writes(node.run_dir / "ranks" / "00000.json.new"))  # is none yet
    assert node.watch(1000.0, is_alone=True) == [250.0 + LIMIT_S]


def test_byte_of_a_checkpoint_puts_the_end_off(node: WatchedNode) -> None:
    """Whichever node wrote it: checkpoints are in the store, and mounted."""
    (node.checkpoints / "step-1").mkdir()
    node.clock.at(42.0, node.writes(node.checkpoints / "step-1" / "weights"))
    assert node.watch(1000.0, is_alone=True) == [42.0 + LIMIT_S]


def test_input_that_is_closed_ends_the_watch(node: WatchedNode) -> None:
    assert node.watch(LIMIT_S - 1, is_alone=True) == []


def test_node_tells_the_others_of_news_and_no_more_often_than_they_need(node: WatchedNode) -> None:
    for when_s in range(1, 31):
        node.clock.at(float(when_s), node.writes(node.run_dir / "metrics.jsonl"))
    node.watch(90.0)
    # A look every five seconds; a tenth of the limit and more between two tellings.
    assert node.told_s == [0.0, 15.0, 30.0]


def test_news_that_the_store_did_not_take_are_told_again(node: WatchedNode) -> None:
    node.is_taken = False
    node.clock.at(40.0, lambda: setattr(node, "is_taken", True))
    node.watch(90.0)
    assert node.told_s == [0.0, 15.0, 30.0, 45.0]


def test_run_is_ended_when_the_other_nodes_were_silent_as_long(node: WatchedNode) -> None:
    node.elsewhere_s = LIMIT_S
    assert node.watch(1000.0) == [LIMIT_S]
    assert node.asked_s == [LIMIT_S]


def test_node_whose_others_live_asks_again_when_they_could_be_silent(node: WatchedNode) -> None:
    node.elsewhere_s = 30.0
    node.clock.at(150.0, lambda: setattr(node, "elsewhere_s", LIMIT_S))
    assert node.watch(1000.0) == [170.0]
    assert node.asked_s == [100.0, 170.0]


def test_node_that_cannot_ask_ends_nothing(node: WatchedNode) -> None:
    node.elsewhere_s = None
    assert node.watch(300.0) == []
    assert node.asked_s == [LIMIT_S, LIMIT_S + TELL_S, LIMIT_S + 2 * TELL_S, LIMIT_S + 3 * TELL_S]


def test_node_without_a_rank_at_work_stays_and_looks_again(node: WatchedNode) -> None:
    node.are_ranks_at_work = False
    node.clock.at(111.0, lambda: setattr(node, "are_ranks_at_work", True))
    assert node.watch(1000.0, is_alone=True) == [100.0, 105.0, 110.0, 115.0]


# --- the end of the ranks --------------------------------------------------------------------


class EndingRanks:
    """Groups of commands, by their ids, and what they are told; those in `heed` end of SIGABRT."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run_dir = run_dir
        (run_dir / "ranks").mkdir(parents=True)
        self.clock = TurnedClock(monkeypatch, hang)
        self.groups: set[int] = set()
        self.heed: set[int] = set()
        self.told: list[tuple[float, str, int]] = []
        own_os = SimpleNamespace(**{**vars(os), "killpg": self.killpg, "getpgid": self.getpgid})
        monkeypatch.setattr(hang, "os", own_os)
        monkeypatch.setattr(hang, "_is_stopped", lambda child: child == 301)
        monkeypatch.setattr(hang, "ask_for_records", lambda *_: False)

    def rank(self, rank: int, child: object, *, silent_s: float = 0.0, **known: Any) -> None:
        path = self.run_dir / "ranks" / f"{rank:05d}.json"
        path.write_text(json.dumps({"rank": rank, "child": child, **known}))
        when_s = self.clock.time() - silent_s
        os.utime(path, (when_s, when_s))

    def getpgid(self, pid: int) -> int:
        if pid not in self.groups:
            raise ProcessLookupError
        return max(pid, 300)

    def killpg(self, group: int, number: signal.Signals) -> None:
        self.told.append((self.clock.passed_s, number.name, group))
        if number == signal.SIGKILL or (number == signal.SIGABRT and group in self.heed):
            if group not in self.groups:
                raise ProcessLookupError
            self.groups.discard(group)


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EndingRanks:
    return EndingRanks(tmp_path, monkeypatch)


@pytest.mark.parametrize(("is_alone", "aborted_s"), [(False, STANDING_S), (True, 0.0)])
def test_all_stand_still_on_all_nodes_before_the_first_is_aborted(
    ending: EndingRanks, is_alone: bool, aborted_s: float
) -> None:
    ending.groups, ending.heed = {300, 301}, {300, 301}
    ending.rank(0, 300, silent_s=150.0)
    ending.rank(1, 301, silent_s=120.0)
    assert end_hanging(str(ending.run_dir), LIMIT_S, is_alone=is_alone)
    assert ending.told == [
        (0.0, "SIGSTOP", 300),
        (0.0, "SIGSTOP", 301),
        *(
            (aborted_s, name, pid)
            for name in ("SIGABRT", "SIGCONT", "SIGKILL")
            for pid in (300, 301)
        ),
    ]
    verdict = read_hung(str(ending.run_dir))
    assert verdict is not None
    silent_s = {rank: round(each, 3) for rank, each in verdict.silent_s.items()}
    assert verdict._replace(silent_s=silent_s) == Hung(LIMIT_S, {"0": 150.0, "1": 120.0}, [1])


def test_rank_that_ignores_its_end_is_killed_after_the_time_for_stacks(ending: EndingRanks) -> None:
    ending.groups = {300}
    ending.rank(0, 300)
    assert end_hanging(str(ending.run_dir), LIMIT_S, is_alone=True)
    ((killed_s, name, group),) = ending.told[3:]
    assert (name, group) == ("SIGKILL", 300)
    assert STACKS_S <= killed_s < STACKS_S + 0.1


def test_flight_records_have_time_where_a_rank_listens(
    ending: EndingRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []
    monkeypatch.setattr(hang, "ask_for_records", lambda _, ranks: asked.append(ranks) or True)
    ending.groups, ending.heed = {300, 301}, {300, 301}
    ending.rank(2, 300)
    ending.rank(5, 301)
    assert end_hanging(str(ending.run_dir), LIMIT_S, is_alone=True)
    assert (asked, ending.told[0]) == ([[2, 5]], (WRITING_S, "SIGSTOP", 300))


def test_rank_that_is_over_gone_or_names_no_group_of_its_own_is_not_ended(
    ending: EndingRanks,
) -> None:
    ending.groups = {0, 1, 250, 300}
    ending.rank(0, 300, ended_s=5.0)
    for rank, child in enumerate((302, 250, "300", 1, 0, -300, None), start=1):
        ending.rank(rank, child)
    assert not end_hanging(str(ending.run_dir), LIMIT_S, is_alone=True)
    assert (ending.told, read_hung(str(ending.run_dir))) == ([], None)
