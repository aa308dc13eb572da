"""The scaling report: ideal and efficiency, cost, parts of a step, and its two texts."""

from __future__ import annotations

import csv
from io import StringIO

import pytest
from msgspec.structs import replace

from jobs.runs.scaling import (
    CSV_COLUMNS,
    RECKONED,
    Point,
    Size,
    csv_text,
    markdown,
    notes_of,
    rows_of,
    share_cells,
)


def point(nodes, rate, **more):
    size = Size(nodes=nodes, processes_per_node=1, scaling=more.pop("scaling", "weak"))
    return Point(
        size=size, run=f"run-{nodes}", rate=rate, low=rate * 0.99, high=rate * 1.01, **more
    )


def test_the_smallest_size_sets_the_ideal():
    rows = rows_of([point(2, 190.0), point(1, 100.0), point(4, 340.0)])
    assert [row.ideal for row in rows] == [200.0, 100.0, 400.0]
    assert [row.efficiency for row in rows] == [0.95, 1.0, 0.85]


def test_a_size_that_failed_is_a_row_and_sets_nothing():
    failed = Point(size=Size(nodes=1, processes_per_node=1), why="failed: rank 0")
    rows = rows_of([failed, point(2, 190.0), point(4, 380.0)])
    assert [row.ideal for row in rows] == [None, 190.0, 380.0]
    assert notes_of(failed) == ["failed: rank 0"]


def test_a_million_samples_cost_their_time_on_all_nodes():
    assert point(1, 1000.0, price_per_hour=3.6).cost_per_million == pytest.approx(1.0)
    assert point(1, 1000.0).cost_per_million is None
    assert point(1, 1000.0, price_per_hour=0.0).cost_per_million is None


def test_parts_of_a_step_add_up_to_it():
    first = point(1, 100.0, step_s=0.100, data_wait_s=0.010, host_s=0.005)
    second = point(2, 160.0, step_s=0.125, data_wait_s=0.020, host_s=0.005)
    rows = rows_of([first, second])
    assert rows[0].shares is not None
    assert rows[0].shares.of == pytest.approx(
        {"compute": 0.85, "exchange": 0.0, "data wait": 0.10, "host": 0.05}
    )
    assert rows[1].shares is not None
    assert rows[1].shares.of == pytest.approx(
        {"compute": 0.68, "exchange": 0.12, "data wait": 0.16, "host": 0.04}
    )
    assert [row.shares.total for row in rows if row.shares] == pytest.approx([1.0, 1.0])


def test_parts_that_a_program_measured_are_taken_as_they_are():
    first = point(1, 100.0, step_s=0.100, compute_s=0.095, exchange_s=0.0, host_s=0.004)
    second = point(2, 160.0, step_s=0.125, compute_s=0.098, exchange_s=0.015)
    found = rows_of([first, second])
    assert [each.shares and round(each.shares.total, 3) for each in found] == [0.99, 0.904]
    assert found[1].shares is not None
    assert found[1].shares.of["exchange"] == pytest.approx(0.12)
    assert share_cells(found[1])[-1] == "90% (no account of it)"
    assert found[1].notes == ()
    # Measured while a step took longer than the median one.
    slower = rows_of([first, replace(second, told_step_s=0.15, compute_s=0.132)])[1]
    assert share_cells(slower)[-1] == "98%"
    unmeasured = rows_of([first, replace(second, exchange_s=None)])[1]
    assert (unmeasured.notes, share_cells(unmeasured)[-1]) == ((RECKONED,), "100%")


def test_a_rank_of_strong_scaling_computes_its_part():
    first = point(1, 100.0, step_s=0.100)
    strong = point(2, 160.0, step_s=0.0625, scaling="strong")
    shares = rows_of([first, strong])[1].shares
    assert shares is not None
    known = {part: each for part, each in shares.of.items() if each is not None}
    assert known == pytest.approx({"compute": 0.8, "exchange": 0.2})


def test_a_program_that_keeps_the_batch_of_all_ranks_is_said_to_scale_strongly():
    first = point(1, 640.0, step_s=0.100, batch=64.0)
    kept, grown = (
        point(2, 512.0, step_s=0.125, batch=64.0),
        point(2, 1024.0, step_s=0.125, batch=128.0),
    )
    rows = rows_of([first, kept, grown])
    assert [each.shares.of["compute"] for each in rows if each.shares] == pytest.approx(
        [1, 0.4, 0.8]
    )
    told = "the batch of all ranks stays 64: this is strong scaling"
    assert [each.notes for each in rows] == [(), (told, RECKONED), (RECKONED,)]


def test_a_step_that_is_shorter_than_its_compute_is_said_to_be_no_account():
    rows = rows_of([point(1, 100.0, step_s=0.100), point(2, 250.0, step_s=0.080)])
    page = markdown("Scaling", [], rows, "scaling.svg")
    assert "| 2x1 | 125% | 0% | not told | not told | 125% (no account of it) |" in page
    assert "| 1x1 | 100% | 0% | not told | not told | 100% |" in page


def test_noise_is_said_with_what_the_machine_did():
    noisy = point(1, 100.0, variation=0.031, disturbed="load 9.0 on 2 cores")
    assert notes_of(noisy) == ["noisy, its windows vary by 3.1%: load 9.0 on 2 cores"]
    assert notes_of(point(1, 100.0, variation=0.029, disturbed="load 9.0")) == []


def test_the_csv_has_every_figure_and_nothing_for_what_is_unknown():
    failed = Point(size=Size(nodes=4, processes_per_node=2), why='said "no", twice')
    rows = rows_of([point(1, 100.0, unit="sample", num_windows=9), failed])
    header, first, last = csv.reader(StringIO(csv_text(rows)))
    assert tuple(header) == CSV_COLUMNS
    told = dict(zip(header, first, strict=True))
    assert (told["rate"], told["windows"], told["efficiency"]) == ("100", "9", "1")
    assert (told["predicted"], told["cost_per_million"], told["data_wait_share"]) == ("", "", "")
    told = dict(zip(header, last, strict=True))
    assert (told["ranks"], told["rate"], told["windows"]) == ("8", "", "")
    assert told["note"] == 'said "no", twice'


def test_markdown_has_a_row_a_size_and_a_remark_for_what_failed():
    rows = rows_of([point(1, 1234.0), Point(size=Size(nodes=2, processes_per_node=1), why="a|b")])
    lines = markdown("Scaling of x", ["`python x.py`"], rows, "scaling.svg").splitlines()
    assert lines[0] == "# Scaling of x"
    assert "- `python x.py`" in lines
    assert "![Scaling](scaling.svg)" in lines
    assert "| 1x1 | 1 | 1,234 | 1,222 | 1,246 |  | 1,234 | 100% |  |  |" in lines
    assert "| 2x1 | 2 |  |  |  |  |  |  |  | not measured |" in lines
    assert lines[-1] == "- 2x1: a|b"
