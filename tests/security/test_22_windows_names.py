"""A dataset's file is on Windows the file that it is called, or it is refused.

Attacker: the author of a dataset that somebody pulls on Windows. `train:evil.exe` became another stream of
`train`, `NUL` and `aux.jpg` a device, `x ` the file `x`. Elsewhere these are names as any other, and a
version that has them is still pulled; a push says where it cannot be.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.datasets import paths as dataset_files
from jobs.datasets.datasets import Datasets
from jobs.datasets.making import Reports
from tests.fakes.blob_store import MemoryStore
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("own_cache")

NAMES = ["train:evil.exe", "NUL", "deep/aux.jpg", "trailing ", "deep /x"]


@pytest.mark.parametrize("name", NAMES)
def test_such_a_name_is_refused_on_windows_and_told_of_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    told: list[str] = []
    folder = make_folder(tmp_path / "from", {name: b"1", "zz:zz": b"2"})
    store = MemoryStore()
    pushed = Datasets(store).push(folder, "set", Reports(warn=told.append)).dataset
    # Of the first, which may be a folder.
    assert [f"`{name}".startswith(line.partition("`: ")[0]) for line in told] == [True]
    assert told[0].endswith(" as something else, so this version cannot be pulled there")
    Datasets(store).pull(pushed.pinned(), tmp_path / "to")
    assert read_folder(tmp_path / "to") == {name: b"1", "zz:zz": b"2"}
    monkeypatch.setattr(dataset_files, "IS_WINDOWS", True)
    store.blobs[f"raw/{name}"] = b"1"
    for refused in (
        lambda: Datasets(store).pull(pushed.pinned(), tmp_path / "there"),
        lambda: Datasets(store).register("other", "raw"),
        lambda: Datasets(store).push(folder, "other"),
    ):
        with pytest.raises(LaunchError, match="cannot be used in a dataset: Windows reads"):
            refused()
    assert not (tmp_path / "there").exists()
