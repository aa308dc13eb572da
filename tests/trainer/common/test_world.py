"""World: what the launcher's variables come to."""

from __future__ import annotations

import os
import re

import pytest

from trainer.common.errors import TrainingError
from trainer.common.world import RankArguments, World


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


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
MEETING = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize("url", ["tcp://10.0.0.4:23456", "file:///mnt/share/init", "env://"])
def test_a_command_line_may_say_it_all(url):
    environ = {**ONE_THREAD, **MEETING, "WORLD_SIZE": "1", "RANK": "0"}
    arguments = RankArguments(dist_backend="gloo", dist_url=url, rank=1, world_size=2)
    store = "tcp://10.0.0.1:29500" if url == "env://" else None
    place = {"rank": 1, "size": 2, "local_size": 1, "node_rank": 1}
    expected = World(**place, backend="gloo", url=url, store=store)
    assert World.from_environment(environ, arguments) == expected


def test_what_the_command_line_leaves_out_is_the_launchers():
    served = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    place = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_WORLD_SIZE": "1"}
    environ = {**ONE_THREAD, **MEETING, **served, **place}
    expected = World(rank=1, size=2, local_size=1, node_rank=1, backend="gloo", url="env://")
    arguments = RankArguments(dist_backend="gloo")
    assert World.from_environment(environ, arguments) == expected


@pytest.mark.parametrize(
    ("environ", "arguments", "message"),
    [
        (MEETING, {"world_size": 2}, "--world-size is 2 but --rank is not set"),
        (MEETING, {"world_size": 2, "rank": 2}, "--rank 2 is not below --world-size 2"),
        (MEETING, {"rank": 1}, "--rank 1 is not below --world-size 1"),
        (MEETING, {"world_size": 2, "rank": -1}, "--rank -1 is not below --world-size 2"),
        (
            {"WORLD_SIZE": "2", "RANK": "0"},
            {"rank": 1},
            "--rank is 1, but the launcher says RANK 0",
        ),
        (
            {"WORLD_SIZE": "2", "RANK": "0"},
            {"world_size": 4},
            "--world-size is 4, but the launcher says WORLD_SIZE 2",
        ),
        ({}, {"world_size": 2, "rank": 0}, "neither --dist-url nor MASTER_ADDR and MASTER_PORT"),
        ({}, {"dist_url": "env://"}, "neither --dist-url nor MASTER_ADDR and MASTER_PORT"),
        *(
            ({}, {"world_size": 2, "rank": 0, "dist_url": url}, f"--dist-url `{url}` is none")
            for url in ("tcp://host", "tcp://host:x", "file://share/init", "file:///", "s3://a/b")
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(environ, arguments, message):
    with pytest.raises(TrainingError, match=re.escape(message)):
        World.from_environment(environ, RankArguments(**arguments))


def test_a_collective_may_take_as_long_as_the_launcher_says():
    assert World.from_environment({}).collective_timeout_s == 30 * 60
    told = {"TRAINYARD_COLLECTIVE_TIMEOUT_S": "660"}
    assert World.from_environment(told).collective_timeout_s == 660


@pytest.mark.parametrize(
    ("num_threads", "num_cores", "workers"),
    [
        (1, 8, {"cpu": 1, "cuda": 4}),
        # The launcher has given the rank cores of its own.
        (4, 4, {"cpu": 4, "cuda": 4}),
    ],
)
def test_a_gpus_rank_decodes_on_its_share_of_cores_and_another_on_its_threads(
    monkeypatch, num_threads, num_cores, workers
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(num_cores)), raising=False)
    world = World(size=2, local_size=2, num_threads=num_threads)
    assert {device: world.num_workers(device) for device in workers} == workers
