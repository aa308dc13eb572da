"""A folder from elsewhere carries no private file into the store.

Attacker: the author of a folder that somebody pushes (an unpacked archive, a clone). By a link out of the
folder, `readme.txt -> ~/.ssh/id_rsa`, the file's content was sent as the dataset's, without a word.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.datasets.datasets import Datasets
from tests.fakes.blob_store import MemoryStore
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_folder(tmp_path / "private", {"key": b"secret"})
    return make_folder(tmp_path / "set", {"a.txt": b"1", "deep/b.txt": b"2"})


@pytest.mark.parametrize("is_dry", [True, False])
@pytest.mark.parametrize(
    "target",
    [
        "{root}/private/key",
        "../../private/key",
        "../../set/../private/key",
        "../../set2/key",
        "/proc/self/status",
        "hop",
    ],
)
def test_a_link_that_leads_out_of_the_folder_is_refused_by_name(
    folder: Path, tmp_path: Path, target: str, is_dry: bool
) -> None:
    store = MemoryStore()
    make_folder(tmp_path / "set2", {"key": b"a name that begins as the folder's"})
    (folder / "deep" / "hop").symlink_to("../../private/key")
    (folder / "deep" / "a-link").symlink_to(target.format(root=tmp_path))
    with pytest.raises(LaunchError) as error:
        Datasets(store).push(folder, "set", is_dry=is_dry)
    assert (error.value.message, error.value.hint) == (
        f"`{folder}/deep/a-link` is a link to a place outside the pushed folder",
        "replace the link by the file if the dataset needs it",
    )
    assert store.blobs == {}


def test_links_within_the_folder_arrive_as_files(folder: Path, tmp_path: Path) -> None:
    (folder / "same.txt").symlink_to("a.txt")
    (folder / "deep" / "up.txt").symlink_to("../same.txt")
    (folder / "whole.txt").symlink_to(folder / "deep" / "b.txt")
    # Also where the folder itself is named through a link.
    (tmp_path / "link").symlink_to(folder)
    store = MemoryStore()
    dataset = Datasets(store).push(tmp_path / "link", "set").dataset.pinned()
    Datasets(store).pull(dataset, tmp_path / "to")
    assert read_folder(tmp_path / "to") == {
        "a.txt": b"1",
        "deep/b.txt": b"2",
        "same.txt": b"1",
        "deep/up.txt": b"1",
        "whole.txt": b"2",
    }
