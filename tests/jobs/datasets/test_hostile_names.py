"""Two hundred names that mean harm or mischief: each is refused by name, or arrives equal."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import LaunchError
from jobs.contracts.spec import DatasetVersion
from jobs.datasets.datasets import Datasets
from jobs.datasets.paths import check_path
from tests.campaign import campaign
from tests.fakes.blob_store import MemoryStore
from tests.folders import read_folder
from tests.odd_names import FINE, HOSTILE

pytestmark = pytest.mark.usefixtures("own_cache")

CONTENT = b"mischief"


def test_there_are_two_hundred_of_them():
    assert len(HOSTILE + FINE) == len({*HOSTILE, *FINE}) >= 200


def store_with(path: str) -> tuple[MemoryStore, DatasetVersion]:
    """A store in which somebody wrote a version with such a name, digest and all."""
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    line = f"{sha256} {len(CONTENT)} {path}\n".encode(errors="surrogatepass")
    digest = hashlib.sha256(line).hexdigest()
    store = MemoryStore()
    fields = {"bytes": len(CONTENT), "sha256": sha256, "md5": hashlib.md5(CONTENT).hexdigest()}
    try:
        listed = msgspec.json.encode({"path": path, **fields})
    except UnicodeEncodeError:  # half a pair: as an escape, which a reader may take
        escaped = path.encode("unicode_escape").replace(b"\\x", b"\\u00")
        listed = b'{"path":"' + escaped + b'",' + msgspec.json.encode(fields)[1:]
    store.blobs[f"_datasets/d/{digest}.files.jsonl"] = listed + b"\n"
    store.blobs[f"d/{digest}/{path}"] = CONTENT
    return store, DatasetVersion(name="d", version=1, digest=digest, files=1, bytes=len(CONTENT))


def test_a_list_with_a_hostile_name_writes_nothing(tmp_path):
    target = tmp_path / "deep" / "target"
    refused: dict[str, LaunchError] = {}
    for path in HOSTILE:
        store, dataset = store_with(path)
        try:
            Datasets(store).pull(dataset, target)
        except LaunchError as error:
            refused[path] = error
    campaign("hostile names in a list of files", tried=len(HOSTILE), survived=len(refused))
    assert [path for path in HOSTILE if path not in refused] == []
    for path, error in refused.items():
        assert error.hint, path
        assert "\n" not in error.message, path
        assert error.message.isprintable(), path
    assert not (tmp_path / "deep").exists()


def test_a_folder_with_a_hostile_name_sends_nothing(tmp_path):
    made, refused = [], []
    for number, path in enumerate(HOSTILE):
        folder = tmp_path / str(number)
        (folder / "good").mkdir(parents=True)
        (folder / "good" / "x").write_bytes(CONTENT)
        if not _can_be_made(folder, path):
            continue
        made.append(path)
        store = MemoryStore()
        try:
            Datasets(store).push(folder, "d")
        except LaunchError as error:
            if "cannot be used in a dataset" in error.message and store.blobs == {}:
                refused.append(path)
    campaign("hostile names in a folder", tried=len(made), survived=len(refused))
    assert refused == made
    assert len(made) > 60


def test_a_tree_deeper_than_the_disk_can_name_is_refused(tmp_path):
    folder = here = tmp_path / "deep"
    folder.mkdir()
    start = os.open(here, os.O_RDONLY)
    opened = [start]
    for _ in range(2200):
        os.mkdir("d", dir_fd=opened[-1])
        opened.append(os.open("d", os.O_RDONLY, dir_fd=opened[-1]))
        if len(opened) > 2:
            os.close(opened.pop(0))
    for descriptor in opened:
        os.close(descriptor)
    with pytest.raises(LaunchError, match="deeper than 250 folders"):
        Datasets(MemoryStore()).push(folder, "d")
    # Python's own cleaning, and so pytest's, stops at such a depth.
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_every_other_name_arrives_equal(tmp_path):
    contents: dict[str, bytes] = {}
    folder = tmp_path / "from"
    for path in FINE:
        check_path(path)
        try:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(path.encode())
        except OSError:  # a file and a folder of one name
            continue
        contents[path] = path.encode()
    assert len(contents) >= len(FINE) - 5
    store = MemoryStore()
    dataset = Datasets(store).push(folder, "d").dataset.pinned()
    Datasets(store).pull(dataset, tmp_path / "to")
    arrived = read_folder(tmp_path / "to")
    num_equal = sum(arrived.get(path) == content for path, content in contents.items())
    campaign("odd names that arrive equal", tried=len(contents), survived=num_equal)
    assert arrived == contents


def _on_disk(path: str) -> bytes:
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        return b""


def _can_be_made(folder: Path, path: str) -> bool:
    """Make a file of that name where a disk can have one; a name that leads out is not made."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return False
    if os.fsdecode(_on_disk(path)) != path:
        return False  # the disk gives its bytes back as another, harmless name
    try:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(CONTENT)
    except (OSError, ValueError):
        return False
    return True
