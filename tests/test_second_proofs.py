"""The table of second proofs: no mark that nobody counted, and the names it takes."""

from __future__ import annotations

import pytest

from tests.second_proofs import (
    TESTS,
    Proofs,
    Test,
    is_named,
    marks_in_source,
    read_table,
    wrong_rows,
)

ROW = Proofs(
    file="a.py",
    first=["a.py::TestIt::test_x[1]", "b.py::test_y"],
    tests=["test_x[2]"],
    marked=["test_z"],
)
KEPT = (("a.py", "test_x[1]"), ("b.py", "test_y"))
LEFT = (("a.py", "test_x[2]"), ("a.py", "test_z"))


def test_a_mark_that_sends_a_test_to_the_campaigns_is_counted_in_the_table():
    _, marks = read_table()
    assert marks_in_source() == marks, (
        "name its first proof, and count it in tests/second_proofs.toml"
    )


def test_each_row_names_files_that_are_there():
    rows, _ = read_table()
    firsts = {each.partition("::")[0] for row in rows for each in row.first}
    named = {row.file for row in rows} | firsts
    assert [file for file in sorted(named) if not (TESTS / file).is_file()] == []
    assert [row.file for row in rows if not (row.tests or row.marked) or not row.first] == []


@pytest.mark.parametrize(
    ("name", "wanted", "is_so"),
    [
        ("test_a", "test_a", True),
        ("test_a[1]", "test_a", True),
        ("test_ab", "test_a", False),
        ("test_a[x-1]", "test_a[x", True),
        ("test_a[1]", "test_a[", True),
        ("test_a", "test_a[", False),
    ],
)
def test_a_name_stands_for_its_parameters(name, wanted, is_so):
    assert is_named(name, wanted) == is_so


@pytest.mark.parametrize(
    ("kept", "left", "wrong"),
    [
        (KEPT, LEFT, []),
        # Files that were not collected are not judged.
        (KEPT[1:], (), []),
        ((), (), []),
        (KEPT, LEFT[1:], ["no test a.py::test_x[2] that `make test` leaves out"]),
        ((*KEPT, LEFT[1]), LEFT[:1], ["no test a.py::test_z that `make test` leaves out"]),
        (
            KEPT[:1],
            (*LEFT, KEPT[1]),
            [
                "b.py::test_y is no test that `make test` runs",
                "no row names the first proof of b.py::test_y",
            ],
        ),
        ((*KEPT[1:], ("a.py", "test_x[12]")), LEFT, ["a.py::TestIt::test_x[1] is no test that `make test` runs"]),
        (KEPT, (*LEFT, ("a.py", "test_x[3]")), ["no row names the first proof of a.py::test_x[3]"]),
    ],
)  # fmt: skip
def test_a_row_is_wrong_where_its_tests_or_first_proofs_are_not_there_and_a_test_without_one(
    kept, left, wrong
):
    tests = [Test(file=file, name=name, is_left_out=False) for file, name in kept]
    tests += [Test(file=file, name=name, is_left_out=True) for file, name in left]
    assert list(wrong_rows([ROW], tests)) == wrong
