"""Azure ML's logs: whose they are, and reading them by ranges while they grow and change."""

from __future__ import annotations

import pytest

from jobs.contracts.spec import LogLine
from jobs.engines.azure_ml.log_files import (
    LONGEST_LINE,
    LONGEST_RANGE,
    LogName,
    Reading,
    Readings,
    merged,
    parse_block,
    parse_name,
)

NOW = "2026-11-21T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("user_logs/std_log.txt", LogName(rank=0)),
        ("user_logs/std_log_process_0.txt", LogName(rank=0)),
        ("user_logs/std_log_process_07.txt", LogName(rank=7)),
        ("user_logs/std_log_process_1234.txt", LogName(rank=1234)),
        ("user_logs/retry_002/std_log_process_3.txt", LogName(rank=3, retry=2)),
        ("user_logs/std_log_node_01_worker.txt", LogName(rank=1)),
        ("user_logs/std_log_node_00_chief.txt", LogName(rank=0)),
        ("user_logs/std_log_node_01_ps.txt", LogName(rank=5)),
        ("user_logs/mpi_log.txt", None),
        ("user_logs/deep/er/std_log.txt", None),
        ("outputs/std_log.txt", None),
        ("azureml-logs/20_image_build_log.txt", None),
    ],
)
def test_names_tell_ranks(name: str, expected: LogName | None) -> None:
    assert parse_name(name, 4) == expected


class Blobs:
    """Logs that grow, and readings of them as a follower reads."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.readings = Readings(num_ranks=4)

    def write(self, rank: int, text: str, *, folder: str = "") -> None:
        name = f"user_logs/{folder}std_log_process_{rank}.txt"
        self.files[name] = self.files.get(name, b"") + text.encode()

    def look(self) -> None:
        self.readings.see([(name, len(each)) for name, each in self.files.items()])

    def read(self) -> list[tuple[int, str, str]]:
        lines: list[LogLine] = []
        self.look()
        while due := self.readings.due(1):
            start, end = due[0].next_range()
            lines += due[0].take(self.files[due[0].name][start:end], NOW) or []
        return [(line.rank, line.ts[17:19], line.text) for line in merged(lines)]


def stamped(second: int, text: str) -> str:
    return f"2026-11-21T11:00:{second:02}.000000Z {text}\n"


def test_only_whole_lines_are_given_and_each_once() -> None:
    blobs = Blobs()
    blobs.write(0, stamped(1, "a") + stamped(3, "c")[:-1])
    blobs.write(1, stamped(2, "b"))
    assert blobs.read() == [(0, "01", "a"), (1, "02", "b")]
    assert blobs.read() == []
    blobs.write(0, " more\n")
    assert blobs.read() == [(0, "03", "c more")]


def test_lines_without_a_time_have_that_of_a_neighbour() -> None:
    blobs = Blobs()
    blobs.write(0, "mpirun says\n" + stamped(5, "a") + "  a warning\r\n")
    assert blobs.read() == [(0, "05", "mpirun says"), (0, "05", "a"), (0, "05", "  a warning")]


def test_a_log_that_is_cut_off_is_read_from_its_new_begin() -> None:
    blobs = Blobs()
    blobs.write(0, stamped(1, "a") + stamped(2, "b"))
    blobs.read()
    blobs.files.clear()
    blobs.look()
    blobs.write(0, stamped(3, "c"))
    assert blobs.read() == [(0, "03", "c")]


def test_a_new_log_that_has_outgrown_the_old_one_is_told_by_its_bytes() -> None:
    blobs = Blobs()
    blobs.write(0, stamped(1, "a"))
    blobs.read()
    blobs.files.clear()
    blobs.write(0, stamped(2, "b") + stamped(3, "c"))
    assert blobs.read() == [(0, "02", "b"), (0, "03", "c")]


@pytest.mark.parametrize("is_seen_between", [False, True])
def test_a_rotated_log_is_read_to_its_end_and_goes_on_in_the_new_one(
    *, is_seen_between: bool
) -> None:
    blobs = Blobs()
    blobs.write(0, stamped(1, "a") + stamped(2, "b")[:-1])
    blobs.read()
    found: list[tuple[int, str, str]] = []
    old = blobs.files.pop("user_logs/std_log_process_0.txt").decode()
    blobs.write(0, stamped(4, "d"))
    if is_seen_between:
        found += blobs.read()
    blobs.write(0, old + "!\n" + stamped(3, "c"), folder="retry_001/")
    found += blobs.read()
    assert sorted(found) == [(0, "02", "b!"), (0, "03", "c"), (0, "04", "d")]


def test_of_many_logs_those_are_read_that_waited_longest() -> None:
    blobs = Blobs()
    for rank in range(4):
        blobs.write(rank, stamped(rank, "a"))
    blobs.look()
    for reading in blobs.readings.due(2):
        reading.read_at_s = 1.0
    assert [each.rank for each in blobs.readings.due(2)] == [2, 3]


def test_a_range_is_bounded_and_begins_with_what_is_known() -> None:
    reading = Reading(name="user_logs/std_log.txt", rank=0, size=1000)
    assert reading.next_range(600) == (0, 600)
    reading.take(b"x" * 600, NOW)
    assert reading.next_range(600) == (600 - 96, 1000)


def test_other_ranks_are_not_read() -> None:
    readings = Readings(num_ranks=4, ranks=[2])
    readings.see([(f"user_logs/std_log_process_{rank}.txt", 10) for rank in range(4)])
    assert [each.rank for each in readings.due(10)] == [2]


def test_a_restarted_ranks_logs_are_in_the_order_of_their_writing() -> None:
    readings = Readings(num_ranks=2)
    folders = ["", "retry_002/", "retry_001/"]
    readings.see([(f"user_logs/{folder}std_log_process_1.txt", 10) for folder in folders])
    assert [each.retry for each in readings.in_order()] == [1, 2, 0]


def test_blocks_read_backwards_give_every_line_its_time() -> None:
    text = "".join(stamped(second, f"{second}\n  more") for second in range(30)).encode() + b"cut o"
    found: list[LogLine] = []
    content, end = b"", len(text)
    while end > 0:
        start = max(end - 100, 0)
        content, lines = parse_block(text[start:end] + content, 0, is_first=start == 0, now=NOW)
        found[:0] = lines
        end = start
    expected = [(f"{second:02}", line) for second in range(30) for line in (f"{second}", "  more")]
    assert [(line.ts[17:19], line.text) for line in found] == expected


@pytest.mark.parametrize("start", [0, 40, 90])
def test_reading_begins_before_a_time_and_at_a_line(start: int) -> None:
    text = "".join(stamped(second, "a") for second in range(10)).encode()
    reading = Reading(name="user_logs/std_log.txt", rank=0, size=len(text))
    assert reading.begin_before(stamped(5, "")[:27], start, text[start:])
    first, _ = reading.next_range()
    assert text[first : first + 10] == b"2026-11-21"
    assert first >= start
    assert not reading.begin_before(stamped(5, "")[:27], 200, text[200:])


def test_a_line_without_an_end_is_not_held_for_ever() -> None:
    piece = b"x" * (1 << 20)
    reading = Reading(name="user_logs/std_log.txt", rank=0)
    lengths: list[int] = []
    for _ in range(8):
        reading.size += len(piece)
        lines = reading.take(reading.tail + piece, NOW) or []
        lengths += [len(line.text) for line in lines]
        assert len(reading.rest) <= LONGEST_LINE
    assert sum(lengths) + len(reading.rest) == 8 * len(piece)


def test_lines_without_a_time_are_not_held_for_ever() -> None:
    content = b"no time\n" * (LONGEST_RANGE // 8)
    assert parse_block(content, 0, is_first=False, now=NOW) == (content, [])
    rest, lines = parse_block(content + b"last\n", 0, is_first=False, now=NOW)
    assert (rest, len(lines)) == (b"no time\n", LONGEST_RANGE // 8)
