"""Stacks of ranks: which are grouped, how they are written, what a recorded one tells."""

import pytest

from jobs.runs.stacks import Frame, Thread, grouped, parse_traceback, ranks_text, stacks_text


def frame(function, line, file="train.py"):
    return Frame(function=function, file=file, line=line)


def thread(*frames, name="MainThread"):
    return Thread(name=name, is_main=name == "MainThread", is_active=False, frames=frames)


WAITING = thread(
    frame("all_reduce", 7, "/x/lib/python3.11/site-packages/torch/c10d.py"), frame("main", 9)
)
LOADING = thread(frame("load", 3), frame("main", 8))
HELPER = thread(frame("run", 1), name="pin memory")


def test_ranks_of_one_stack_are_one_group_and_the_largest_comes_first():
    ranks = {rank: [HELPER, WAITING] for rank in (0, 2, 3, 4)} | {1: [LOADING]}
    found = grouped(ranks, {5: "it has ended"})
    assert [each.ranks for each in found.groups] == [(0, 2, 3, 4), (1,)]
    assert found.groups[0].threads == (WAITING, HELPER)
    assert stacks_text(found, has_all_threads=False) == (
        "ranks 0, 2-4 (4 of them):\n"
        "  all_reduce  torch/c10d.py:7\n"
        "  main        train.py:9\n"
        "  1 more thread: --threads\n"
        "\n"
        "rank 1:\n"
        "  load  train.py:3\n"
        "  main  train.py:8\n"
        "\n"
        "rank 5: it has ended"
    )
    whole = stacks_text(found, has_all_threads=True)
    assert "  thread pin memory:\n    run  train.py:1\n" in whole


def test_other_threads_make_no_other_group():
    found = grouped({0: [WAITING, HELPER], 1: [WAITING]}, {})
    assert [each.ranks for each in found.groups] == [(0, 1)]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([0, 1], "ranks 0-1 (2 of them)"),
        ([0, 2, 3, 4, 8], "ranks 0, 2-4, 8 (5 of them)"),
    ],
)
def test_ranks_are_written_as_ranges(ranks, text):
    assert ranks_text(ranks) == text


RECORDED = """Fatal Python error: Aborted

Thread 0x00007f0000000001 [loader] (most recent call first):
  File "/code/loader.py", line 12 in wait

Current thread 0x00007f0000000002 (most recent call first):
  File "/code/train.py", line 7 in load
  File "/code/train.py", line 10 in <module>

Extension modules: numpy.linalg (total: 1)
"""


def test_a_recorded_stack_is_read_with_its_threads():
    main, loader = parse_traceback(RECORDED)
    assert (main.is_main, loader.is_main, loader.name) == (True, False, "loader")
    assert main.frames == (
        frame("load", 7, "/code/train.py"),
        frame("<module>", 10, "/code/train.py"),
    )


@pytest.mark.parametrize(
    "text", ["", 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x']
)
def test_another_text_is_no_stack(text):
    assert parse_traceback(text) == ()
