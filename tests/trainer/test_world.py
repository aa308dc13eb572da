"""World: what the launcher's variables come to."""

from __future__ import annotations

import pytest

from trainer.common.errors import TrainingError
from trainer.common.world import World


def test_a_program_started_by_hand_is_a_world_of_one():
    assert World.from_environment({"OMP_NUM_THREADS": "3"}) == World(num_threads=3)


def test_every_variable_is_read():
    environ = {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "NODE_RANK": "1",
        "OMP_NUM_THREADS": "2",
    }
    expected = World(rank=5, size=8, local_rank=1, local_size=4, node_rank=1, num_threads=2)
    assert World.from_environment(environ) == expected
    assert not expected.is_main


def test_rank_and_size_alone_mean_one_node():
    environ = {"RANK": "1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    assert World.from_environment(environ) == World(rank=1, size=2, local_rank=1, local_size=2)


def test_threads_default_to_an_equal_share_of_the_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    environ = {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}
    assert World.from_environment(environ).num_threads == 2


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2 but RANK is not set"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK 2 is not below WORLD_SIZE 2"),
        ({"WORLD_SIZE": "two", "RANK": "0"}, "WORLD_SIZE is `two`, not a whole number"),
    ],
)
def test_contradictions_are_named(environ, message):
    with pytest.raises(TrainingError, match=message):
        World.from_environment(environ)
