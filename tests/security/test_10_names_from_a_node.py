"""Finding 10. A node, or who may write to the container `runs`, chooses names and contents of blobs.

He could have a rank's record written outside the run's folder of whoever looks at the run: on
Windows by `..\\..\\Startup\\x.bat`, which has no `/` to be cut at.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.contracts.errors import EnvironmentFailure
from jobs.engines.azure_ml.fetch import fetch_run
from jobs.host.untrusted import is_file_name
from jobs.runs.failure import RankReport
from jobs.runs.store import RunHandle
from tests.fakes.azure_runs import RUN, MemoryRuns, details
from tests.fakes.gangs import make_spec

OUTSIDE = ["..", "."]
ON_WINDOWS = [
    "..\\..\\Startup\\x.bat",
    "C:\\x.bat",
    "C:x.bat",
    "a.txt:stream",
    "nul",
    "CON.json",
    "Aux",
    "com1.log",
    "LPT\u00b9",
    "conout$",
    "name.",
    "name ",
    "a\nb",
]
SPEC = make_spec(["python"], stack="dev")


@pytest.fixture
def runs(tmp_path: Path) -> MemoryRuns:
    return MemoryRuns(tmp_path / "state")


def failed_run(runs: MemoryRuns) -> RunHandle:
    return runs.add(SPEC, RUN, details("Failed", "exit code 1", ended=40))


def files(folder: Path) -> list[str]:
    return sorted(
        each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()
    )


def test_only_records_of_ranks_become_files(runs: MemoryRuns, tmp_path: Path) -> None:
    handle = failed_run(runs)
    record = msgspec.json.encode(RankReport(rank=0, exit_code=1, ended_s=1.0))
    odd = [
        *OUTSIDE,
        *ON_WINDOWS,
        "x.bat",
        "00000.json.bat",
        "0.json",
        "00000.json\n",
        "a/00000.json",
    ]
    odd += ["\u0660\u0660\u0660\u0660\u0660.json", "run/../../run.json"]
    for name in ["00000.json", *odd]:
        runs.memory.blobs[f"{RUN}/ranks/1/{name}"] = record
    before = files(tmp_path)
    runs.bring(handle)
    run_dir = Path(handle.run_dir).relative_to(tmp_path).as_posix()
    new = ["azure/1.json", "azure/brought", "error.json", "ranks/00000.json"]
    assert files(tmp_path) == sorted([*before, *(f"{run_dir}/{name}" for name in new)])


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_part_leads_out_anywhere(name: str) -> None:
    whole = [name, f"a/{name}", f"{name}/a", "/a", "a//b", "a/", "", "a\\b", "a\0b", "x" * 256]
    assert [is_file_name(each, is_windows=False) for each in whole] == [False] * len(whole)


@pytest.mark.parametrize("name", ON_WINDOWS)
def test_names_of_windows_devices_drives_and_streams_are_refused_there(name: str) -> None:
    assert not is_file_name(f"outputs/{name}", is_windows=True)
    assert not is_file_name(f"{name}/file", is_windows=True)


def test_plain_names_are_files_everywhere() -> None:
    names = [
        "outputs/model/weights.bin",
        ".hidden",
        "console.log",
        "auxiliary",
        "com10",
        "a b",
        "\u00e4",
    ]
    assert [is_file_name(each, is_windows=True) for each in names] == [True] * len(names)


@example("ab C")
@example("ab/.C")
@given(st.text(alphabet=st.sampled_from("./\\:ab C\0nul"), max_size=12))
def test_what_is_taken_stays_in_its_folder(name: str) -> None:
    if is_file_name(name, is_windows=True):
        path = PureWindowsPath("C:/run") / name
        assert path.is_relative_to("C:/run")
        assert ".." not in path.parts
        assert not path.is_reserved()
        assert path.parts[2:] == PurePosixPath(name).parts


def test_a_name_that_no_disk_takes_does_not_end_a_fetch(
    runs: MemoryRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = runs.add(SPEC, RUN, details("Running"))
    names = ["x" * 250, "y" * 256, "kept"]
    for name in names:
        runs.memory.blobs[f"{RUN}/outputs/{name}"] = b"content"
    runs.logs.write(RUN, f"user_logs/std_log_process_{'9' * 300}.txt", "line\n")
    fetch_run(runs, handle, tmp_path / "into")
    assert files(tmp_path / "into/outputs") == ["kept", "x" * 250]
    assert "y" * 256 in capsys.readouterr().err


def test_a_record_is_of_the_run_that_it_lies_with(runs: MemoryRuns) -> None:
    handle = runs.add(SPEC, RUN, details("Running"))
    path = Path(handle.run_dir, "run.json")
    other = path.read_bytes().replace(RUN.encode(), b"../../../other")
    path.unlink()
    runs.memory.blobs[f"{RUN}/run.json"] = other
    with pytest.raises(
        EnvironmentFailure,
        match=r"run\.json` has a format that this version does not know: it is of run",
    ):
        runs.status(handle)
