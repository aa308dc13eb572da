"""The queue for a cluster's nodes: order, priorities, claims, and holders that vanish."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import Priority, RunState
from jobs.engines.local.queue import Claim, Slots, free_nodes
from jobs.runs import supervision
from tests.busy import wait_until
from tests.fakes.gangs import UNTIL, Gangs
from tests.folders import read_folder


class Cluster:
    """Slots of a cluster of four nodes, and runs that this process supervises."""

    capacity = 4

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._locks: dict[str, int] = {}
        self.slots = Slots(workspace, "cpu")

    def enqueue(self, name: str, nodes: int, priority: Priority = "normal") -> None:
        run_dir = self._workspace / "runs" / name
        run_dir.mkdir(parents=True)
        self._locks[name] = supervision.take_lock(run_dir)
        self.slots.enqueue(run_dir, nodes, priority)

    def claim(self, name: str) -> tuple[int, ...] | None:
        return self.slots.claim(self._workspace / "runs" / name, self.capacity)

    def release(self, name: str) -> None:
        self.slots.release(self._workspace / "runs" / name)

    def die(self, name: str) -> None:
        os.close(self._locks.pop(name))

    def close(self) -> None:
        for lock in self._locks.values():
            os.close(lock)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_free_nodes_are_the_lowest_that_nobody_holds() -> None:
    claims = [Claim(run_dir="a", nodes=(0, 2))]
    assert free_nodes(2, claims, 4) == (1, 3)
    assert free_nodes(3, claims, 4) is None
    assert free_nodes(4, [], 4) == (0, 1, 2, 3)


def test_claim_waits_until_the_nodes_are_given_back(cluster: Cluster) -> None:
    cluster.enqueue("a", 3)
    cluster.enqueue("b", 2)
    assert cluster.claim("a") == (0, 1, 2)
    assert cluster.claim("b") is None
    cluster.release("a")
    assert cluster.claim("b") == (0, 1)


def test_small_run_never_passes_a_large_one_that_came_first(cluster: Cluster) -> None:
    cluster.enqueue("a", 3)
    assert cluster.claim("a") is not None
    cluster.enqueue("b", 4)
    cluster.enqueue("c", 1)
    assert cluster.claim("c") is None
    assert cluster.slots.ahead_of(Path("c")) == 1
    cluster.release("a")
    assert cluster.claim("c") is None
    assert cluster.claim("b") == (0, 1, 2, 3)


def test_higher_priority_goes_first_and_age_decides_within_one(cluster: Cluster) -> None:
    cluster.enqueue("a-low", 4, "low")
    cluster.enqueue("b-normal", 4)
    cluster.enqueue("c-high", 4, "high")
    cluster.enqueue("d-high", 4, "high")
    order: list[str] = []
    waiting = ["a-low", "b-normal", "c-high", "d-high"]
    while waiting:
        granted = [name for name in waiting if cluster.claim(name)]
        assert len(granted) == 1
        order += granted
        waiting.remove(granted[0])
        cluster.release(granted[0])
    assert order == ["c-high", "d-high", "b-normal", "a-low"]


def test_claims_and_places_of_vanished_supervisors_are_dropped(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        cluster.enqueue(name, 4)
    assert cluster.claim("a") is not None
    cluster.die("a")
    cluster.die("b")
    assert cluster.claim("c") == (0, 1, 2, 3)


def test_release_of_a_run_that_holds_nothing_is_silent(cluster: Cluster, tmp_path: Path) -> None:
    before = read_folder(tmp_path)
    cluster.release("nobody")
    Slots(tmp_path, "elsewhere").release(tmp_path / "runs" / "nobody")
    assert read_folder(tmp_path) == before


# --- with real runs --------------------------------------------------------------------------


def test_run_waits_says_for_what_and_starts_when_the_nodes_are_free(tmp_path: Path) -> None:
    gangs = Gangs(tmp_path, nodes=2)
    gate = tmp_path / "gate"
    first = gangs.python(UNTIL, str(gate), nodes=2, processes_per_node=1)
    gangs.wait_for_file(first, "ranks/00001.json")
    second = gangs.submit(["true"], nodes=1)
    third = gangs.submit(["true"], nodes=1)
    wait_until(lambda: gangs.engine.store.status(third).reason is not None)
    status = gangs.engine.store.status(third)
    assert status.state is RunState.QUEUED
    assert status.reason == "1 run before it in the queue"
    gate.touch()
    assert [gangs.wait(each).state for each in (first, second, third)] == ["completed"] * 3
    events = [gangs.engine.store.events(each) for each in (first, second)]
    assert events[0][-1].ts < events[1][-2].ts  # the second ran after the first had ended
    gangs.end()


def test_large_run_is_not_starved_by_a_stream_of_small_ones(tmp_path: Path) -> None:
    gangs = Gangs(tmp_path, nodes=2)
    gate = tmp_path / "gate"
    small = [gangs.python(UNTIL, str(gate), processes_per_node=1) for _ in range(3)]
    large = gangs.submit(["true"], nodes=2, processes_per_node=1)
    later = [gangs.submit(["true"], processes_per_node=1) for _ in range(3)]
    gate.touch()
    for each in (*small, large, *later):
        assert gangs.wait(each).state is RunState.COMPLETED
    started = {each.id: gangs.engine.store.status(each).started or "" for each in (large, *later)}
    assert min(started.values()) == started[large.id]
    gangs.end()


def test_nodes_of_a_killed_supervisor_and_watcher_become_free(tmp_path: Path) -> None:
    gangs = Gangs(tmp_path)
    first = gangs.python("import time; time.sleep(3600)")
    gangs.wait_for_file(first, "ranks/00001.json")
    second = gangs.submit(["true"])
    for pid in gangs.supervisors(first):
        os.kill(pid, 9)
    assert gangs.wait(second).state is RunState.COMPLETED
    assert gangs.engine.store.status(first).state is RunState.LOST
    gangs.end()


def test_damaged_claim_holds_no_nodes_and_a_damaged_place_is_an_error(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        cluster.enqueue(name, 4)
    assert cluster.claim("a") == (0, 1, 2, 3)
    (tmp_path / "clusters/cpu/claims/a").write_bytes(b"[" * 200_000)
    assert cluster.claim("b") == (0, 1, 2, 3)
    (tmp_path / "clusters/cpu/queue/1-c").write_bytes(b"")
    with pytest.raises(LaunchError, match="1-c` has a format that this version does not know"):
        cluster.claim("c")


@pytest.mark.parametrize("compute", ["", ".", "..", "../../x", "/etc", "a/b", "a\n", "a\0"])
def test_a_record_whose_cluster_is_a_path_reaches_no_folder(tmp_path: Path, compute: str) -> None:
    with pytest.raises(LaunchError, match="invalid cluster name"):
        Slots(tmp_path, compute)
