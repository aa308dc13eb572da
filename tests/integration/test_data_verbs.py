"""The verbs of `launch data` beside push and pull, and odd names, against a real Azurite."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from jobs.blobs.store import open_data_store
from tests import seeds
from tests.busy import wait_until
from tests.fakes.launched_store import Store
from tests.folders import make_folder, read_folder
from tests.odd_names import FINE

pytestmark = pytest.mark.usefixtures("own_cache")


def test_every_odd_name_that_is_taken_comes_back_equal(store: Store, tmp_path):
    contents: dict[str, bytes] = {}
    for path in FINE:
        try:
            make_folder(tmp_path / "from", {path: path.encode()})
        except OSError:  # a file and a folder of one name
            continue
        contents[path] = path.encode()
    pushed = store.json("data", "push", str(tmp_path / "from"), "odd")
    assert pushed["files_sent"] == len(contents)
    again = store.json("data", "push", str(tmp_path / "from"), "odd", "--dry-run")
    assert (again["already"], again["version"]) == (True, 1)
    store.json("data", "pull", "odd", "--to", str(tmp_path / "to"))
    assert read_folder(tmp_path / "to") == contents


def test_a_version_from_its_push_to_its_end(store: Store, tmp_path):
    folder = make_folder(tmp_path / "from", {"a": b"one", "sub/b": b"", "large": bytes(20_000_001)})
    assert store.json("data", "push", str(folder), "life", "--dry-run")["files_sent"] == 3
    first = store.json("data", "push", str(folder), "life", "--limit-rate", "100M")
    (folder / "a").write_bytes(b"two")
    second = store.json("data", "push", str(folder), "life")
    assert [each["version"] for each in (first, second)] == [1, 2]
    shown = store.json("data", "show", "life@1")
    assert shown["url"].endswith(f"/data/life/{first['digest']}/")
    parted = store.json("data", "diff", "life@1", "life@2")
    assert [change["path"] for change in parted["changes"]] == ["a"]

    target = make_folder(tmp_path / "to", {"old/x": b""})
    pulled = store.json("data", "pull", "life@1", "--to", str(target), "--delete", "--yes")
    assert (pulled["files_deleted"], pulled["files_received"]) == (1, 3)
    assert read_folder(target) == {**read_folder(folder), "a": b"one"}

    assert store.launch("data", "rm", "life@1", "--yes").returncode == 0
    gone = store.launch("data", "pull", "life@1", "--to", str(tmp_path / "no"))
    assert (gone.returncode, "was removed on" in gone.stderr) == (102, True)
    left = {blob.name for blob in open_data_store(store.environment).list("life/")}
    assert left == {f"life/{second['digest']}/{path}" for path in ("a", "sub/b", "large")}
    (folder / "a").write_bytes(b"one")
    assert store.json("data", "push", str(folder), "life")["version"] == 3


def test_data_that_lies_there_is_registered_and_a_change_of_it_noticed(store: Store, tmp_path):
    folder = make_folder(tmp_path / "from", {"a b/ü": b"one", "c": b"three"})
    there = store.json("data", "push", str(folder), "lies")
    data = open_data_store(store.environment)
    for name, content in read_folder(folder).items():
        assert data.create(f"raw/x/{name}", content)
    registered = store.json("data", "register", "photos", "raw/x")
    assert (registered["digest"], registered["prefix"]) == (there["digest"], "raw/x/")
    store.json("data", "pull", "photos", "--to", str(tmp_path / "to"))
    assert read_folder(tmp_path / "to") == read_folder(folder)
    data.delete(["raw/x/c"])
    assert data.create("raw/x/c", b"THREE")
    refused = store.launch("data", "pull", "photos", "--to", str(tmp_path / "other"))
    assert refused.returncode == 1
    assert "`" in refused.stderr.splitlines()[-3]
    assert "c" not in read_folder(tmp_path / "other")


def test_a_killed_push_leaves_no_version_and_typed_again_ends(store: Store, tmp_path):
    contents = {f"{number:03}": seeds.content(50_000) for number in range(200)}
    folder = make_folder(tmp_path / "from", contents)
    words = ["data", "push", str(folder), "killed", "--env", str(store.env_file)]
    push = subprocess.Popen(
        [sys.executable, "-m", "jobs.cli", *words, "--limit-rate", "2M"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    data = open_data_store(store.environment)
    wait_until(lambda: any(True for _ in data.list("killed/")), 120)
    push.send_signal(signal.SIGKILL)
    push.wait()
    assert store.launch("data", "ls", "killed").returncode == 102
    there = sum(1 for _ in data.list("killed/"))
    again = store.json("data", "push", str(folder), "killed")
    assert (again["version"], again["files_sent"]) == (1, 200 - there)
    store.json("data", "pull", "killed", "--to", str(tmp_path / "to"))
    assert read_folder(tmp_path / "to") == contents
