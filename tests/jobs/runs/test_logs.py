"""Reading the logs of all ranks: merged by time, chosen, followed, never a torn line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.runs import logs
from jobs.runs.logs import read_logs, since_time

NOW_S = 1_767_323_045.0  # 2026-01-02T03:04:05Z


def stamp(number: int) -> str:
    return f"2026-01-02T03:04:05.{number:06d}Z"


def write(run_dir: Path, rank: int, numbers: list[int], *, rest: str = "") -> None:
    (run_dir / "logs").mkdir(exist_ok=True)
    lines = "".join(f"{stamp(number)} line {number}\n" for number in numbers)
    with (run_dir / "logs" / f"rank-{rank:05d}.log").open("a") as file:
        file.write(lines + rest)


def numbers(run_dir: Path, ranks: list[int] | None = None, **choice: object) -> list[int]:
    found = read_logs(run_dir, ranks, **choice)  # pyright: ignore[reportArgumentType]
    return [int(line.text.removeprefix("line ")) for line in found]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    write(tmp_path, 0, list(range(0, 60, 3)))
    write(tmp_path, 1, list(range(1, 60, 3)))
    write(tmp_path, 2, list(range(2, 60, 3)))
    return tmp_path


@pytest.fixture(params=[7, 64, 1 << 18])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Sizes of the blocks that files are read in."""
    monkeypatch.setattr(logs, "BLOCK", request.param)
    return request.param


def test_lines_of_all_ranks_are_merged_by_time(run_dir: Path, block: int) -> None:
    assert numbers(run_dir) == list(range(60))
    assert numbers(run_dir, [0, 2]) == [n for n in range(60) if n % 3 != 1]


@pytest.mark.parametrize("tail", [0, 1, 5, 59, 60, 100])
def test_tail_is_the_last_lines_of_all_ranks_together(run_dir: Path, block: int, tail: int) -> None:
    assert numbers(run_dir, tail=tail) == list(range(60))[60 - min(tail, 60) :]
    assert numbers(run_dir, tail=tail, since=stamp(57)) == [57, 58, 59][3 - min(tail, 3) :]


@pytest.mark.parametrize("since", [0, 1, 29, 30, 59, 60])
def test_since_begins_at_the_first_line_that_is_not_older(
    run_dir: Path, block: int, since: int
) -> None:
    assert numbers(run_dir, since=stamp(since)) == list(range(since, 60))


def test_grep_counts_before_tail(run_dir: Path, block: int) -> None:
    assert numbers(run_dir, grep=re.compile("0$"), tail=2) == [40, 50]


def test_torn_last_line_is_left_for_later(run_dir: Path, block: int) -> None:
    write(run_dir, 0, [60], rest="2026-01-02T03:04:05.000061Z li")
    assert numbers(run_dir)[-1] == 60
    assert numbers(run_dir, tail=1) == [60]


def test_following_gives_each_line_once_and_ends_with_the_run(
    run_dir: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "POLL_S", 0)
    steps: list[Callable[[], None]] = [
        lambda: None,
        lambda: write(run_dir, 0, [60], rest=f"{stamp(61)} li"),
        lambda: write(run_dir, 0, [], rest="ne 61\n"),
        lambda: write(run_dir, 3, [62]),  # a rank that was silent so far
        lambda: write(run_dir, 1, [63]),
    ]

    def is_over() -> bool:
        if steps:
            steps.pop(0)()
        return not steps

    assert numbers(run_dir, is_over=is_over, tail=1) == [59, 60, 61, 62, 63]


def test_run_without_logs_has_no_lines(tmp_path: Path) -> None:
    assert numbers(tmp_path) == []
    assert numbers(tmp_path, tail=3) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", "2026-01-02T03:02:35.000000Z"),
        ("1.5m", "2026-01-02T03:02:35.000000Z"),
        ("2h", "2026-01-02T01:04:05.000000Z"),
        ("1d", "2026-01-01T03:04:05.000000Z"),
        ("2026-01-02T03:00:00Z", "2026-01-02T03:00:00.000000Z"),
        ("2026-01-02T03:00:00+02:00", "2026-01-02T01:00:00.000000Z"),
    ],
)
def test_since_is_a_duration_or_a_time(text: str, expected: str) -> None:
    assert since_time(text, NOW_S) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "10", "5 m", "9" * 20 + "d"])
def test_since_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="is neither a duration nor a time"):
        since_time(text, NOW_S)


def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "rank-00000.log"
    path.write_bytes(stamp(1).encode() + b" caf\xe9 ok\n")
    assert [line.text for line in read_logs(tmp_path)] == ["caf\ufffd ok"]


def test_each_look_reads_what_was_written_since_the_last_one(tmp_path, monkeypatch):
    ranges = []
    lines_of = logs._lines

    def counted(path, rank, start, end):
        ranges.append((rank, start, end))
        return lines_of(path, rank, start, end)

    monkeypatch.setattr(logs, "_lines", counted)
    (tmp_path / "logs").mkdir()
    first, second = (tmp_path / "logs" / f"rank-0000{rank}.log" for rank in range(2))
    first.write_text("1 a\n2 b\n")
    second.write_text("3 c\n4 d\n5 cut of")
    looks = logs.watch_logs(tmp_path, tail=3)
    assert [each.text for each in next(looks)] == ["b", "c", "d"]
    assert list(next(looks)) == []
    with second.open("a") as log:
        log.write("f\n6 g\n")
    assert [each.text for each in next(looks)] == ["cut off", "g"]
    assert ranges == [(1, 8, 22)]
    matching = logs.watch_logs(tmp_path, [1], since="4", grep=re.compile("g"))
    assert [each.text for each in next(matching)] == ["g"]
    assert list(next(matching)) == []
