"""Curves that are read on keep their extremes and last values, whatever the file's size."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.runs.figures import figures_of
from jobs.runs.metrics import Metric, read_all_curves
from jobs.ui import curves
from jobs.ui.curves import Curves, RunCurves, Thinned

VALUES = st.one_of(st.integers(-5, 5).map(float), st.just(math.nan))


def line(name, step, value, **more):
    return json.dumps({"name": name, "step": step, "value": value, **more}) + "\n"


def thinned_by(points):
    made = Thinned(Metric("loss", 1.0))
    for place, value in points:
        made.add(place, value)
    return made.points()


@pytest.fixture
def run(tmp_path):
    """Append lines to the metrics of a run, whose folder it gives."""

    def write(*lines, mode="a"):
        with (tmp_path / "metrics.jsonl").open(mode) as file:
            file.write("".join(lines))
        return tmp_path

    return write


def told(kept, folder, wanted=()):
    return kept.charts([("r", folder)], dict.fromkeys(wanted, ""))


def values_of(kept, folder, title):
    answer = told(kept, folder, [title])
    (series,) = next(each["series"] for each in answer["charts"] if each["title"] == title)
    return series["at"], series["values"]


def test_charts_of_several_runs_are_sent_once_for_each_version(run, tmp_path):
    folder, kept = run(line("loss", 1, 2.0)), Curves()
    runs = [("a", folder), ("b", folder)]
    version = kept.charts(runs, {"loss": ""})["charts"][0]["version"]
    assert " " not in version  # a page sends it before the title, with a space between
    assert "series" not in kept.charts(runs, {"loss": version})["charts"][0]
    run(line("loss", 2, 1.0))
    assert len(kept.charts(runs, {"loss": version})["charts"][0]["series"]) == 2


def test_points_are_whole_while_another_request_reads_on(run):
    folder = run(*(line("loss", step, float(step % 7)) for step in range(20_000)))
    shared, ended = RunCurves(folder / "metrics.jsonl"), []

    def look():
        while not ended:
            for key in list(shared.curves):
                shared.points(key)
            shared.told()

    looking = threading.Thread(target=look)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns between any two steps
    with patch.object(threading, "excepthook", lambda args: ended.append(args.exc_value)):
        looking.start()
        for _ in range(3):
            shared.read_on(math.inf)
            shared._begin(0)
        ended.append(None)
        looking.join()
    sys.setswitchinterval(before)
    assert ended == [None]


@given(values=st.lists(VALUES, min_size=1, max_size=200))
def test_thinned_points_have_the_extremes_and_the_last_value(values):
    points = [(float(place), value) for place, value in enumerate(values)]
    with patch.object(curves, "MOST_BUCKETS", 4):
        left = thinned_by(points)
    finite = [each for each in points if not math.isnan(each[1])]
    drawn = [each for each in left if not math.isnan(each[1])]
    assert set(drawn) <= set(finite)
    assert drawn == sorted(drawn)
    assert len(left) <= 2 * 2 * 4 + 1
    assert drawn[-1:] == finite[-1:]
    for choose in (min, max):
        first = choose(finite, key=lambda each: each[1], default=None)
        assert choose(drawn, key=lambda each: each[1], default=None) == first


def test_few_points_are_all_there_and_gaps_stay():
    points = [(1.0, 3.0), (2.0, math.nan), (3.0, -1.0)]
    assert str(thinned_by(points)) == str(points)
    again = [(5.0, 1.0), (6.0, 2.0), (5.0, 4.0)]  # a step that was made again
    assert thinned_by(again) == again


def test_what_is_new_is_read_and_nothing_again(run, monkeypatch):
    read = []
    pread = os.pread

    def counted(file, size, offset):
        found = pread(file, size, offset)
        read.append((offset, len(found)))
        return found

    kept = Curves()
    first, torn = line("loss", 1, 3.0) + line("loss", 2, 2.0), '{"name": "lo'
    folder = run(first, torn)
    monkeypatch.setattr(os, "pread", counted)
    assert values_of(kept, folder, "loss") == ([1.0, 2.0], [3.0, 2.0])
    rest = 'ss", "step": 3, "value": NaN}\nno line of ours\n' + line("loss", 4, 1.0, epoch=9)
    run(rest)
    assert values_of(kept, folder, "loss") == ([1.0, 2.0, 3.0, 4.0], [3.0, 2.0, None, 1.0])
    assert read == [
        (0, len(first + torn)),
        (len(first), len(torn)),  # whether its end has come
        (len(first), len(torn + rest)),
    ]


def test_a_last_line_counts_that_lacks_its_end_alone(run):
    """As a script leaves it that joins its lines: `launch show` counts it, too."""
    first, last = line("loss", 1, 3.0), line("loss", 2, 2.0).rstrip()
    folder, kept = run(first, last), Curves()
    assert values_of(kept, folder, "loss") == ([1.0, 2.0], [3.0, 2.0])
    assert told(kept, folder)["share"] == 1.0
    run("\n", line("loss", 3, 1.0))
    assert values_of(kept, folder, "loss") == ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    assert kept.read(folder / "metrics.jsonl") == read_all_curves(folder / "metrics.jsonl")


def test_runs_by_epoch_and_by_step_have_charts_of_their_own(run, tmp_path):
    kept, other = Curves(), tmp_path / "other"
    other.mkdir()
    by_step = run(line("loss", 1000, 3.0))
    (other / "metrics.jsonl").write_text(line("loss", 1000, 2.0, epoch=1))
    runs = [("a", by_step), ("b", other), ("c", by_step)]
    charts = kept.charts(runs, {"loss": "", "loss (epoch)": ""})["charts"]
    assert [(each["title"], each["axis"]) for each in charts] == [
        *(("loss", "step"), ("loss (epoch)", "epoch")),
    ]
    named = [[(each["name"], each["at"]) for each in chart["series"]] for chart in charts]
    assert named == [[("a", [1000.0]), ("c", [1000.0])], [("b", [1.0])]]


def test_blocks_end_within_lines_and_a_line_longer_than_one_is_passed_over(run, monkeypatch):
    monkeypatch.setattr(curves, "BLOCK", 100)
    lines = [line("loss", step, float(step)) for step in range(50)]
    folder = run(*lines[:20], line("x" * 300, 1, 1.0), *lines[20:])
    places = [float(step) for step in range(50)]
    assert values_of(Curves(), folder, "loss") == (places, places)


def test_a_long_file_is_shown_by_samples_first_and_known_to_verbs_once_it_was_read(
    run, monkeypatch
):
    monkeypatch.setattr(curves, "LARGE", 10_000)
    monkeypatch.setattr(curves, "SAMPLE", 200)
    monkeypatch.setattr(curves, "BLOCK", 2_000)
    monkeypatch.setattr(RunCurves, "read_on", one_block_a_look(RunCurves.read_on))
    folder = run(*(line("loss", step, float(abs(step - 2500))) for step in range(4000)))
    path = folder / "metrics.jsonl"
    kept = Curves()
    answer = told(kept, folder, ["loss"])
    assert answer["share"] == 0.0
    (first,) = answer["charts"]
    at = first["series"][0]["at"]
    assert len(at) > curves.NUM_SAMPLES / 2
    assert at == sorted(at)
    assert at[-1] > 3900
    assert kept.read(path) == []
    # A page that comes waits for no more of it.
    assert told(kept, folder, ["loss"])["share"] == 0.0
    shares, versions = [0.0], [first["version"]]
    while shares[-1] < 1:
        answer = kept.charts([("r", folder)], {"loss": versions[-1]})
        shares.append(answer["share"])
        (chart,) = answer["charts"]
        assert ("series" in chart) == (chart["version"] != versions[-1])
        versions.append(chart["version"])
    assert shares == sorted(shares)
    assert len(shares) > 50
    # It is drawn again at each tenth, and once all of it was read.
    assert list(dict.fromkeys(versions)) == [*(f"{tenth}/10" for tenth in range(10)), "4000"]
    assert figures_of(kept.read(path)) == figures_of(read_all_curves(path))
    assert len(values_of(kept, folder, "loss")[0]) <= 4 * curves.MOST_BUCKETS + 1


def one_block_a_look(read_on):
    """Read one block, however slow or fast the machine is."""

    def read(self, seconds):
        clock = iter([0.0, 0.0])
        with patch.object(curves.time, "monotonic", lambda: next(clock, 1.0)):
            read_on(self, seconds)

    return read


def test_a_short_file_is_read_whole_for_verbs_and_not_kept(run):
    folder = run(*(line("loss", step, float(step)) for step in range(3000)))
    kept = Curves()
    assert kept.read(folder / "metrics.jsonl") == read_all_curves(folder / "metrics.jsonl")
    assert not kept._kept
    assert kept.read(folder / "none.jsonl") == []


@pytest.mark.parametrize("is_new", [True, False], ids=["another file", "cut off"])
def test_a_file_that_began_anew_is_read_anew(run, is_new):
    kept = Curves()
    folder = run(line("loss", 1, 3.0), line("loss", 2, 2.0))
    values_of(kept, folder, "loss")
    if is_new:
        (folder / "metrics.jsonl").rename(folder / "old")
        run(*(line("loss", step, 7.0) for step in range(9)))
    else:
        run(line("loss", 0, 7.0), mode="w")
    assert values_of(kept, folder, "loss")[1] == [7.0] * (9 if is_new else 1)
    (folder / "metrics.jsonl").unlink()
    assert told(kept, folder) == {"share": 1.0, "charts": []}


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert told(Curves(), tmp_path) == {"share": 1.0, "charts": []}


def test_points_come_for_the_charts_that_are_wanted_and_have_changed(run):
    kept = Curves()
    folder = run(line("a", 1, 1.0), line("b_s", 1, 1.0), line("c", 1, 1.0, split="val"))
    titles = [each["title"] for each in told(kept, folder)["charts"]]
    assert titles == ["a", "val c", "b_s"]
    first = told(kept, folder, ["a"])["charts"]
    assert ["series" in each for each in first] == [True, False, False]
    known = {"a": first[0]["version"]}
    assert "series" not in kept.charts([("r", folder)], known)["charts"][0]
    run(line("a", 2, 2.0))
    (series,) = kept.charts([("r", folder)], known)["charts"][0]["series"]
    assert series == {"name": "r", "at": [1.0, 2.0], "values": [1.0, 2.0]}


def test_memory_is_bounded(run, tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "MOST_CURVES", 3)
    monkeypatch.setattr(curves, "MOST_KEPT", 10)
    kept = Curves()
    folder = run(*(line(f"m{number}", 1, 1.0) for number in range(5)), line("x" * 501, 1, 1.0))
    assert [each["title"] for each in told(kept, folder)["charts"]] == ["m0", "m1", "m2"]
    others = []
    for number in range(4):
        other = tmp_path / str(number)
        other.mkdir()
        (other / "metrics.jsonl").write_text("".join(line("m", step, 1.0) for step in range(6)))
        told(kept, other)
        others.append(other / "metrics.jsonl")
    assert list(kept._kept) == others[-1:]
