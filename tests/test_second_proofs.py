"""The table of second proofs: no mark that nobody counted, and the names it takes."""

from __future__ import annotations

import pytest

from tests.second_proofs import TESTS, is_named, marks_in_source, read_table


def test_a_mark_that_sends_a_test_to_the_campaigns_is_counted_in_the_table():
    _, marks = read_table()
    assert marks_in_source() == marks, (
        "name its first proof, and count it in tests/second_proofs.toml"
    )


def test_each_row_names_files_that_are_there():
    rows, _ = read_table()
    named = {row.file for row in rows} | {row.first.partition("::")[0] for row in rows}
    assert [file for file in sorted(named) if not (TESTS / file).is_file()] == []
    assert [row.file for row in rows if not row.tests] == []


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
