"""The table of how long tests took, by folder."""

from __future__ import annotations

import pytest

from tests.suites import counts, run_suite
from tests.times import Took, by_folder, folder_of, main, table

REPORT = """<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="tests.jobs.rank.test_x" name="test_a" time="1.5"/>
<testcase classname="tests.jobs.test_y.TestIt" name="test_b[x.y]" time="0.5"/>
<testcase classname="tests.integration.azureml.test_v1" name="test_c" time="{seconds}"/>
<testcase classname="tests.test_busy" name="test_d" time="0.0"/>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("tests/jobs/rank/test_x.py", "jobs"),
        ("tests/integration/azureml/test_v1.py", "integration/azureml"),
        ("tests/integration/test_import.py", "integration"),
        ("tests/test_busy.py", "."),
    ],
)
def test_a_file_counts_in_its_folder_and_integration_is_divided(file, folder):
    assert folder_of(file) == folder


def test_reports_are_summed_up_by_folder_the_slowest_first(tmp_path, capsys):
    after, before = tmp_path / "after.xml", tmp_path / "before.xml"
    after.write_text(REPORT.format(seconds=6.0))
    before.write_text(REPORT.format(seconds=20.0))
    assert main([str(after)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| folder | tests | seconds | share |",
        "| --- | ---: | ---: | ---: |",
        "| integration/azureml | 1 | 6 | 75% |",
        "| jobs | 2 | 2 | 25% |",
        "| . | 1 | 0 | 0% |",
        "| all | 4 | 8 | 100% |",
    ]
    assert main([str(after), str(before)]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| integration/azureml | 1 | 1 | 20 | 6 |",
        "| jobs | 2 | 2 | 2 | 2 |",
        "| . | 1 | 1 | 0 | 0 |",
        "| all | 4 | 4 | 22 | 8 |",
    ]
    assert main([]) == 2


def test_a_folder_that_is_gone_is_told_and_nothing_is_divided_by_nothing():
    was = by_folder([("tests/old/test_x.py", Took(num_tests=2, seconds=4.0))])
    assert table({}, was)[2:] == ["| old | 2 | 0 | 4 | 0 |", "| all | 2 | 0 | 4 | 0 |"]
    assert table({})[2:] == ["| all | 0 | 0 | 0% |"]


CONFTEST = """
pytest_plugins = ["tests.judges", "tests.times"]

def pytest_configure():
    import tests.times
    tests.times.MANY = 3
"""


def test_a_run_of_many_tests_ends_with_the_table(tmp_path):
    files = {
        "conftest.py": CONFTEST,
        "inner/test_it.py": "def test_a(): pass\ndef test_b(): pass\n",
    }
    few = run_suite(tmp_path / "few", files, environ={})
    assert (counts(few), "seconds by folder" in few.stdout) == ("2 passed", False)
    files["test_other.py"] = "def test_c(): pass\n"
    many = run_suite(tmp_path / "many", files, environ={})
    rows = [line for line in many.stdout.splitlines() if line.startswith("| ")]
    counted = {row.split("|")[1].strip(): row.split("|")[2].strip() for row in rows[2:]}
    assert counted == {"inner": "2", ".": "1", "all": "3"}
