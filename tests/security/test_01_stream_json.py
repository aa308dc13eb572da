"""Whoever packs a dataset cannot tell the trainers where to send a file or which folder to empty.

Attacker: the author of a dataset that somebody pulls, mounts or downloads. With a `stream.json` at
its top he had any one-word file of the reader's sent to a host of his, and files of the reader's
deleted as blocks of a cache. The store's writer may also name a host of his for a run's signature.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.datasets.datasets import Datasets, materialise
from tests.fakes.blob_store import MemoryStore
from tests.fakes.gangs import make_environment
from tests.fakes.packed_dataset import stream_variables, write_packed, write_stream_input
from tests.fakes.scripted_server import answer, scripted_server
from tests.folders import make_folder, read_folder
from trainer.common.errors import TrainingError
from trainer.data.pictures.splits import open_pictures
from trainer.data.streaming.cache import BlockCache
from trainer.data.streaming.store import RangeStore, RemoteFile

pytestmark = pytest.mark.usefixtures("own_cache")

SET = f"{'a' * 32}-1048576"
THEIRS = {"thesis1.doc": b"1" * 4000, "work/thesis2.doc": b"2" * 4000, ".ssh/id_rsa": b"3" * 4000}


def stream_file(folder: Path, endpoint: str) -> Path:
    """What the attacker puts into his dataset."""
    (folder / "SECRET.key").write_text("c2VjcmV0")
    source = {
        "schema": 1,
        "endpoint": endpoint,
        "token_file": str(folder / "SECRET.key"),
        "cache": str(folder / "home"),
        "cache_bytes": 5 << 20,
        "md5": {},
    }
    dataset = folder / "dataset"
    (dataset / "stream.json").write_text(json.dumps(source))
    return dataset


def test_a_stream_file_inside_a_dataset_is_not_believed(tmp_path: Path) -> None:
    samples = write_packed(tmp_path / "dataset")
    home = make_folder(tmp_path / "home", THEIRS)
    with scripted_server(lambda _: answer(403)) as server:
        dataset = stream_file(tmp_path, f"http://127.0.0.1:{server.port}/train")
        pictures = open_pictures(dataset, "train")
        assert [pictures.read(index) for index in range(len(samples))] == samples
        assert server.asked == []
    assert read_folder(home) == THEIRS


def test_what_a_run_was_handed_over_is_believed_for_its_own_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_packed(tmp_path / "dataset")
    streamed = write_stream_input(
        tmp_path / "run" / "inputs" / "data",
        tmp_path / "dataset",
        endpoint="http://127.0.0.1:1/data",
        cache=tmp_path / "cache",
        cache_bytes=1 << 20,
        sas="sig=a",
    )
    for name, value in stream_variables(streamed).items():
        monkeypatch.setenv(name, value)
    kinds = [
        type(open_pictures(each, "train")).__name__ for each in (streamed, tmp_path / "dataset")
    ]
    assert kinds == ["StreamedPictures", "PackedPictures"]


@pytest.mark.parametrize("name", ["stream.json", "Stream.JSON"])
def test_the_name_is_refused_in_push_pull_register_and_for_a_run_s_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = make_folder(tmp_path / "from", {"deeper/stream.json": b"{}", "a": b"1"})
    store = MemoryStore()
    monkeypatch.setattr("jobs.datasets.datasets.open_data_store", lambda _, **__: store)
    fine = Datasets(store).push(folder, "set").dataset.pinned()
    make_folder(folder, {name: b"{}"})
    store.blobs[f"raw/{name}"] = b"{}"
    # As an older version, or somebody else, may have pushed it.
    with monkeypatch.context() as patch:
        patch.setattr("jobs.datasets.walk.check_path", lambda _: None)
        hostile = Datasets(store).push(folder, "hostile").dataset.pinned()
    for refused in (
        lambda: Datasets(store).push(folder, "set"),
        lambda: Datasets(store).pull(hostile, tmp_path / "to"),
        lambda: Datasets(store).register("other", "raw"),
        lambda: materialise(hostile, make_environment(tmp_path / "w"), tmp_path / "w"),
    ):
        with pytest.raises(LaunchError, match=f"the file name '{name}' cannot be used"):
            refused()
    assert not (tmp_path / "to").exists()
    Datasets(store).pull(fine, tmp_path / "fine")
    assert read_folder(tmp_path / "fine") == {"deeper/stream.json": b"{}", "a": b"1"}


@pytest.mark.parametrize("kind", ["token", "signature"])
@pytest.mark.parametrize(
    "endpoint",
    [
        "http://attacker.example/train",
        "https://attacker.example/train",
        "http://store.blob.core.windows.net/data",
        "https://store.blob.core.windows.net.attacker.example/data",
        "https://store.blob.core.windows.net@attacker.example/data",
        "https://store.blob.core.windows.net:8443/data",
        "https://attacker.example/.blob.core.windows.net/",
        "https://attacker.example?.blob.core.windows.net",
        "https://attacker.example#.blob.core.windows.net",
        "https://attacker.example\\.blob.core.windows.net/",
        "https://blob.core.windows.net/data",
        "http://127.0.0.1@attacker.example/data",
        "http://127.0.0.1.attacker.example/data",
        "http://10.0.0.1/data",
        "ftp://127.0.0.1/data",
    ],
)
def test_neither_key_is_shown_to_another_host_or_without_tls(
    tmp_path: Path, kind, endpoint: str
) -> None:
    key = tmp_path / "key"
    key.write_text("sig=a")
    with pytest.raises(TrainingError, match=f"the {kind} of this run is not sent to"):
        RangeStore(endpoint, key, kind=kind)


def test_a_token_is_not_shown_on_loopback_and_a_signature_is(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sig=a")
    with scripted_server(lambda _: answer(404)) as server:
        endpoint = f"http://127.0.0.1:{server.port}/account/data"
        with pytest.raises(TrainingError, match="the token of this run is not sent to"):
            RangeStore(endpoint, key, kind="token")
        assert server.num_connections == 0
        with pytest.raises(TrainingError, match="404"):
            RangeStore(endpoint, key).read(RemoteFile(path="x", bytes=1), 0, 1)
        assert [each.target for each in server.asked] == ["/account/data/x?sig=a"]


def test_a_cache_in_somebody_s_folder_touches_nothing_there(tmp_path: Path) -> None:
    home = make_folder(tmp_path / "home", THEIRS)
    cache = BlockCache(home, SET, 5000)
    for number in range(5):
        cache.write(f"train-000000-{number:06}", b"x" * 900)
        with cache.claim(f"train-000000-{number:06}"):
            pass
    assert read_folder(home) == THEIRS


def test_a_cache_deletes_what_it_wrote_and_nothing_else(tmp_path: Path) -> None:
    """Also where somebody keeps files of his in a folder that it marked before."""
    folder = tmp_path / "cache"
    cache = BlockCache(folder, SET, 5000)
    cache.write("train-000000-000000", b"x" * 900)
    theirs = {**THEIRS, f"{SET}/notes.txt": b"n" * 4000, f"{SET}/train-1.txt": b"t" * 4000}
    make_folder(folder, theirs)
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    for number in range(1, 9):
        cache.write(f"train-000000-{number:06}", b"x" * 900)
    left = read_folder(folder)
    assert {name: left.get(name) for name in theirs} == theirs
    blocks = [name for name in left if name.startswith(f"{SET}/train-000")]
    assert f"{SET}/train-000000-000000" not in blocks
    assert 0 < len(blocks) < 6


@pytest.mark.parametrize("old", [{}, {"lock": b"", "used": b"", "claims": b""}])
def test_an_older_version_s_cache_goes_on(tmp_path: Path, old: dict[str, bytes]) -> None:
    folder = make_folder(tmp_path / "cache", {**old, f"{SET}/train-000000-000007": b"old"})
    cache = BlockCache(folder, SET, 5000)
    cache.write("train-000000-000000", b"new")
    assert cache.read("train-000000-000000", 0, 3, block_bytes=3) == b"new"
