"""What a run gets as its inputs: whole datasets, or a folder through which one is streamed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import DatasetVersion, InputMode, InputSpec, JobSpec, Limits
from jobs.datasets.datasets import Datasets
from jobs.datasets.packed import require_packed
from jobs.engines.local import inputs
from jobs.engines.local.inputs import give_inputs
from jobs.engines.local.launchers import gang_request
from jobs.rank.world import RankJob, map_world, rank_environment, stream_file
from jobs.runs import supervision
from jobs.runs.signatures import (
    forget_signatures,
    forget_signatures_of_the_dead,
    signature_file,
    write_signature,
)
from tests.fakes.blob_store import MemoryStore
from tests.fakes.gangs import make_cluster, make_environment, make_spec
from tests.fakes.packed_dataset import write_packed
from tests.folders import make_folder, read_folder
from trainer.data.pictures.splits import open_pictures
from trainer.data.shards.index import read_index
from trainer.data.streaming.source import StreamSource, read_source


class Giving:
    """A store in memory, and runs that get inputs from it."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.workspace = folder / "workspace"
        self.environment = make_environment(self.workspace)

    def push(self, folder: Path, name: str = "set") -> DatasetVersion:
        return Datasets(self.store).push(folder, name).dataset.pinned()

    def spec(self, dataset: DatasetVersion, mode: InputMode, **env: str) -> JobSpec:
        given = {"data": InputSpec(dataset=dataset, mode=mode)}
        return make_spec(["true"], inputs=given, env=env)

    def give(self, run: str, dataset: DatasetVersion, mode: InputMode, **env: str) -> Path:
        run_dir = self.workspace / "runs" / run
        run_dir.mkdir(parents=True)
        given = give_inputs(self.spec(dataset, mode, **env), self.environment, run_dir)
        assert list(given) == ["data"]
        return Path(given["data"])

    def sas(self, run: str) -> Path:
        return signature_file(self.workspace / "runs" / run, "data")

    def source(self, run: str) -> StreamSource:
        return read_source(Path(stream_file(str(self.workspace / "runs" / run), "data")))


@pytest.fixture
def giving(tmp_path, monkeypatch) -> Giving:
    made = Giving(tmp_path)
    monkeypatch.setattr("jobs.engines.local.inputs.open_data_store", lambda _: made.store)
    monkeypatch.setattr("jobs.datasets.packed.open_data_store", lambda _: made.store)
    monkeypatch.setattr("jobs.datasets.datasets.open_data_store", lambda _, **__: made.store)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


@pytest.fixture
def packed(tmp_path) -> Path:
    write_packed(tmp_path / "packed", samples_each=3, largest=5000)
    make_folder(tmp_path / "packed", {"README": b"pictures", "val/more.json": b"{}"})
    return tmp_path / "packed"


def modes_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", ["mount", "download"])
def test_a_mounted_and_a_downloaded_input_are_one_read_only_folder(giving, tmp_path, mode):
    dataset = giving.push(make_folder(tmp_path / "from", {"a": b"1", "b/c": b"2"}))
    folder = giving.give("r1", dataset, mode)
    assert folder == giving.workspace / "inputs" / dataset.digest
    assert read_folder(folder) == {"a": b"1", "b/c": b"2"}
    assert modes_of(folder / "b" / "c") == 0o444
    num_received = len(giving.store.received)
    assert giving.give("r2", dataset, mode) == folder
    assert len(giving.store.received) == num_received


def test_a_streamed_input_is_the_dataset_without_its_shards(giving, packed, monkeypatch):
    dataset = giving.push(packed)
    folder = giving.give("r1", dataset, "stream")
    assert folder == giving.workspace / "runs" / "r1" / "inputs" / "data"
    found = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for name in ("index.json", "README", "train", "val")
        for file in ([folder / name] if (folder / name).is_file() else (folder / name).iterdir())
    }
    whole = read_folder(packed)
    assert found == {name: whole[name] for name in whole if not name.endswith(".tar")}
    assert read_index(folder) == read_index(packed)
    assert all(modes_of(folder / name) == 0o444 for name in found)
    assert not any(name.endswith(".tar") for name in giving.store.received)

    source, run_dir = giving.source("r1"), giving.workspace / "runs" / "r1"
    assert source.endpoint == f"http://127.0.0.1:1/test/data/set/{dataset.digest}"
    assert source.cache == giving.workspace / "cache"
    assert sorted(source.md5) == sorted(name for name in whole if name.endswith(".tar"))
    job = RankJob(str(run_dir), ["true"], inputs={"data": str(folder)}, streams=["data"])
    for name, value in rank_environment({}, map_world({}), job).items():
        if name.startswith("TRAINYARD_"):
            monkeypatch.setenv(name, value)
    pictures = open_pictures(folder, "train")
    assert (len(pictures.labels), list(pictures.shard_sizes)) == (6, [3, 3])


def test_a_second_run_fetches_nothing_more(giving, packed):
    dataset = giving.push(packed)
    giving.give("r1", dataset, "stream")
    num_received = len(giving.store.received)
    giving.give("r2", dataset, "stream")
    assert len(giving.store.received) == num_received


def test_the_signature_is_in_a_file_of_its_owner_s_and_nowhere_else(giving, packed):
    dataset = giving.push(packed)
    giving.give("r1", dataset, "stream")
    sas, run_dir = giving.sas("r1"), giving.workspace / "runs" / "r1"
    text = sas.read_text()
    assert text == giving.store.read_only_sas(f"set/{dataset.digest}/", inputs.LOCAL_SAS_VALID_S)
    assert (modes_of(sas), modes_of(sas.parent)) == (0o600, 0o700)
    for file in (giving.workspace).rglob("*"):
        if file.is_file() and file != sas:
            assert text.encode() not in file.read_bytes(), file
    assert giving.source("r1").key_file == sas
    forget_signatures(run_dir)
    assert not sas.exists()


def test_signatures_of_killed_runs_are_taken_away_and_no_others(giving, packed):
    dataset = giving.push(packed)
    giving.give("dead", dataset, "stream")
    giving.give("alive", dataset, "stream")
    lock = supervision.take_lock(giving.workspace / "runs" / "alive")
    forget_signatures_of_the_dead(giving.workspace)
    assert [giving.sas(run).exists() for run in ("dead", "alive")] == [False, True]
    os.close(lock)


@pytest.mark.parametrize(
    ("engine", "wall_clock_s", "valid_days"),
    [
        ("local", None, 30),
        ("local", 2.5 * 86400, 3.5),
        ("local", 60 * 86400, 61),
        ("azure", None, 7),
        ("azure", 2.5 * 86400, 3.5),
        ("azure", 60 * 86400, 7),
    ],
)
def test_a_signature_is_valid_for_as_long_as_the_run_may_take(
    giving, packed, engine, wall_clock_s, valid_days
):
    dataset = giving.push(packed)
    limits = Limits(wall_clock_s=wall_clock_s, hang_s=600.0)
    spec = replace(giving.spec(dataset, "stream"), limits=limits)
    run_dir = giving.workspace / "runs" / "r1"
    run_dir.mkdir(parents=True)
    give_inputs(spec, replace(giving.environment, engine=engine), run_dir)
    valid_s = int(valid_days * 86400)
    assert giving.sas("r1").read_text() == giving.store.read_only_sas(
        dataset.content_prefix, valid_s
    )


def test_a_dataset_that_is_not_packed_is_not_streamed(giving, tmp_path):
    dataset = giving.push(make_folder(tmp_path / "from", {"a": b"1"}))
    for refused in (
        lambda: giving.give("r1", dataset, "stream"),
        lambda: require_packed(giving.spec(dataset, "stream").inputs, giving.environment),
    ):
        with pytest.raises(LaunchError) as error:
            refused()
        assert (error.value.message, error.value.hint) == (
            "input `data`: `set@1` is not packed, so it cannot be streamed",
            "mode: download, or launch data pack DIR --to PACKED and push that",
        )
    # The other modes take it, and do not ask.
    giving.store.requests.clear()
    require_packed(giving.spec(dataset, "mount").inputs, giving.environment)
    assert giving.store.requests == []


def test_an_index_that_is_none_or_names_what_is_not_there_is_refused(giving, tmp_path, packed):
    other = make_folder(tmp_path / "other", {"index.json": b'{"splits": 3}'})
    with pytest.raises(LaunchError, match=r"`index\.json` of `other@1` is not an index of shards"):
        giving.give("r1", giving.push(other, "other"), "stream")
    (packed / "train" / "train-000001.tar").unlink()
    with pytest.raises(EnvironmentFailure, match=r"`set@1` has no file `train/train-000001.tar`"):
        giving.give("r2", giving.push(packed), "stream")


def test_a_cut_off_fetch_of_the_index_begins_anew(giving, packed):
    dataset = giving.push(packed)
    blob = f"set/{dataset.digest}/train/places.bin"
    content = giving.store.blobs.pop(blob)
    with pytest.raises(EnvironmentFailure):
        giving.give("r1", dataset, "stream")
    giving.store.blobs[blob] = content
    assert read_index(giving.give("r2", dataset, "stream")) == read_index(packed)


def test_the_cache_takes_half_of_the_free_disk_or_what_the_job_says(giving, packed, monkeypatch):
    dataset = giving.push(packed)
    kept = make_folder(giving.workspace / "cache" / "set", {"block": bytes(1000)})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=9000))
    assert kept.is_dir()
    giving.give("r1", dataset, "stream")
    giving.give("r2", dataset, "stream", TRAINYARD_STREAM_CACHE_BYTES="0")
    by_itself, told = giving.source("r1"), giving.source("r2")
    assert (by_itself.cache_bytes, told.cache_bytes) == (5000, 0)


def test_a_block_that_goes_while_the_cache_is_counted_is_no_fault(giving, packed, monkeypatch):
    """Ranks of another run rename and remove blocks between the listing and the look at each."""
    dataset = giving.push(packed)
    kept = make_folder(giving.workspace / "cache" / "set", {"block": bytes(1000)})
    (kept / "block.1-1.new").symlink_to("gone")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=9000))
    giving.give("r1", dataset, "stream")
    assert giving.source("r1").cache_bytes == 5000


@pytest.mark.parametrize("text", ["", "20g", "-1", "1e9", "²", "9" * 5000])
def test_a_cache_that_is_no_number_of_bytes_is_refused_by_the_plan(text):
    spec = make_spec(["true"], env={"TRAINYARD_STREAM_CACHE_BYTES": text})
    with pytest.raises(LaunchError) as error:
        gang_request(spec, make_cluster())
    assert error.value.message == (
        f"`env: TRAINYARD_STREAM_CACHE_BYTES`: `{text}` is not a number of bytes"
    )
    assert error.value.hint == "TRAINYARD_STREAM_CACHE_BYTES: '20000000000' for 20 GB"


def test_a_registered_dataset_is_streamed_from_where_it_lies(giving, packed):
    pushed = giving.push(packed)
    moved = {
        name.replace(f"set/{pushed.digest}/", "raw/my set/", 1): content
        for name, content in giving.store.blobs.items()
        if name.startswith("set/")
    }
    giving.store.blobs.update(moved)
    for name in [name for name in giving.store.blobs if name.startswith("set/")]:
        del giving.store.blobs[name]
    dataset = DatasetVersion(
        name="set",
        version=1,
        digest=pushed.digest,
        files=pushed.files,
        bytes=pushed.bytes,
        prefix="raw/my set/",
    )
    giving.give("r1", dataset, "stream")
    source = giving.source("r1")
    assert source.endpoint == "http://127.0.0.1:1/test/data/raw/my%20set"


def test_what_was_written_for_its_owner_stays_so_when_it_is_written_again(tmp_path):
    write_signature(tmp_path / "a.sas", "sig=1")
    write_signature(tmp_path / "a.sas", "sig=2")
    assert ((tmp_path / "a.sas").read_text(), modes_of(tmp_path / "a.sas")) == ("sig=2", 0o600)
