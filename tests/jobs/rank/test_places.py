"""Places that a rank's program notes while the command writes its progress file."""

import json
import os
from itertools import pairwise

import pytest

from jobs.rank import places as noting
from jobs.rank.places import MOST_BYTES, Places


class Clock:
    """Seconds that pass only when told."""

    def __init__(self, monkeypatch):
        self.now_s = 1000.0
        monkeypatch.setattr(noting.time, "time", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def write(folder, content, when_s):
    path = folder / "progress.json"
    path.write_text(content if isinstance(content, str) else json.dumps({"done": content}))
    os.utime(path, (when_s, when_s))


def noted(folder):
    path = folder / "progress-history.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(each["time_s"], each["done"]) for each in map(json.loads, lines)]


def run(folder, clock, *, seconds, per_s=1):
    """Look each second at a program that writes each second."""
    places = Places(str(folder))
    for second in range(seconds):
        clock.now_s += 1
        write(folder, per_s * second, clock.now_s)
        places.look()
    clock.now_s += 1
    places.look(is_last=True)


def test_places_come_every_2_s_then_at_a_hundredth_of_the_time(tmp_path, clock):
    run(tmp_path, clock, seconds=1000)
    (begun, first, *_), found = noted(tmp_path), noted(tmp_path)
    assert (begun, first) == ((1000, None), (1001, 0))
    gaps = [after - before for (before, _), (after, _) in pairwise(found[1:])]
    assert set(gaps[:90]) == {2}
    # The last place is noted, however near the one before is.
    assert found[-1] == (2000, 999)
    assert gaps[-2] == 10
    assert len(found) == 244


def test_another_attempt_goes_on_below_and_takes_no_place_of_the_one_before(tmp_path, clock):
    run(tmp_path, clock, seconds=3)
    before = noted(tmp_path)
    clock.now_s += 100
    places = Places(str(tmp_path))
    clock.now_s += 5
    places.look()
    assert noted(tmp_path) == before == [(1000, None), (1001, 0), (1003, 2)]
    write(tmp_path, 1, clock.now_s)
    clock.now_s += 1
    places.look()
    assert noted(tmp_path)[3:] == [(1104, None), (1109, 1)]


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[1]", '"done"', '{"done": -1}', '{"done": NaN}', '{"done": "x"}'),
        *('{"done": true}', '{"done": 1e999}', "[" * 30_000, '{"done": 1}' + " " * MOST_BYTES),
    ],
)
def test_what_is_no_amount_is_not_noted(tmp_path, clock, content):
    places = Places(str(tmp_path))
    clock.now_s += 2
    write(tmp_path, content, clock.now_s)
    places.look()
    assert noted(tmp_path) == []


def test_a_pipe_is_not_waited_for(tmp_path, clock):
    places = Places(str(tmp_path))
    os.mkfifo(tmp_path / "progress.json")
    clock.now_s += 2
    places.look()
    assert noted(tmp_path) == []


@pytest.mark.parametrize("when_s", [5, 1e12])
def test_times_that_a_program_makes_up_stay_within_the_attempt(tmp_path, clock, when_s):
    places = Places(str(tmp_path))
    clock.now_s += 2
    write(tmp_path, 5, when_s)
    places.look()
    assert noted(tmp_path) == [(1000, None), (1000 if when_s == 5 else 1002, 5)]


def test_a_clock_that_was_set_back_leaves_no_place_before_another(tmp_path, clock):
    places = Places(str(tmp_path))
    for done, passed_s in ((1, 5), (2, 5), (3, -600)):
        clock.now_s += passed_s
        write(tmp_path, done, clock.now_s)
        places.look(is_last=done == 3)
    assert noted(tmp_path) == [(1000, None), (1005, 1), (1010, 2), (1010, 3)]
