"""What a dataset's record says of itself is held to the blob it lies in, and never names a path.

Attacker: whoever may write to the store's container, a practitioner or a store that is not ours. By a
record whose `name` led up the tree he had `launch data pull` write bytes of his to ANY/PATH@N.files.jsonl
on the laptop of whoever pulled, before any digest was looked at.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.contracts.spec import DatasetVersion, InputSpec
from jobs.datasets.datasets import Datasets, materialise
from jobs.datasets.records import Records
from jobs.engines.local.inputs import give_inputs
from tests.fakes.blob_store import MemoryStore
from tests.fakes.gangs import make_environment, make_spec
from tests.folders import make_folder, read_folder

DIGEST = "d" * 64


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "launch-cache"))


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    made = MemoryStore()
    Datasets(made).push(make_folder(tmp_path / "from", {"a": b"1"}), "good")
    return made


@pytest.mark.parametrize("kind", ["", ".removed"])
@pytest.mark.parametrize(
    "lie",
    [
        {"name": "../../../../victim/x"},
        {"name": "other"},
        {"version": 2},
        {"digest": "../../victim"},
        {"digest": DIGEST.upper()},
        {"digest": f"{DIGEST}\n"},
        {"prefix": "../runs/"},
        {"prefix": "raw/../../runs/"},
        {"prefix": "/raw/"},
        {"prefix": "raw"},
        {"prefix": "raw\\..\\"},
        {"prefix": ""},
        {"bytes": -1},
        {"files": -1},
    ],
)
def test_a_record_that_lies_of_what_it_is_is_refused_by_name(
    store: MemoryStore, lie: dict[str, object], kind: str
) -> None:
    blob = f"_datasets/good/1{kind}.json"
    said = json.loads(store.blobs["_datasets/good/1.json"]) | lie
    if kind:
        said = {"schema": 1, "removed": "2026-01-01T00:00:00Z", "record": said}
    store.blobs[blob] = json.dumps(said).encode()
    records = Records(store)
    read = records.removed if kind else records.record
    with pytest.raises(EnvironmentFailure, match=f"`{blob}` (cannot be read|is invalid)"):
        read("good", 1)


def test_a_registered_version_s_prefix_is_believed(store: MemoryStore) -> None:
    store.blobs["raw/my set/x"] = b"1"
    made = Datasets(store).register("raw", "raw/my set").dataset
    assert Datasets(store).resolve("raw@1") == made


def test_names_that_no_dataset_may_have_are_not_listed(store: MemoryStore) -> None:
    record = store.blobs["_datasets/good/1.json"]
    for name in ("..", ".hidden", "a b", "x" * 64):
        store.blobs[f"_datasets/{name}/1.json"] = record.replace(
            b'"good"', json.dumps(name).encode()
        )
    assert [each.ref for each in Datasets(store).versions()] == ["good@1"]


def test_a_list_of_files_is_written_to_a_name_of_ours(store: MemoryStore, tmp_path: Path) -> None:
    """Also where what names the version came from elsewhere, as a run's record that was passed on."""
    name = "../../../own"
    hostile = DatasetVersion(name=name, version=1, digest=DIGEST, files=1, bytes=1)
    store.blobs[f"_datasets/{name}/{DIGEST}.files.jsonl"] = b"attacker's bytes"
    before = read_folder(tmp_path)
    with pytest.raises(EnvironmentFailure, match="cannot be read"):
        Datasets(store).pull(hostile, tmp_path / "to")
    assert read_folder(tmp_path) == before


@pytest.mark.parametrize("mode", ["download", "stream"])
def test_a_digest_that_is_none_names_no_folder(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode
) -> None:
    monkeypatch.setattr("jobs.engines.local.inputs.open_data_store", lambda _: store)
    hostile = DatasetVersion(name="good", version=1, digest="../../victim", files=1, bytes=1)
    (tmp_path / "w" / "runs" / "r").mkdir(parents=True)
    environment = make_environment(tmp_path / "w")
    before = read_folder(tmp_path)
    spec = make_spec(["true"], inputs={"d": InputSpec(dataset=hostile, mode=mode)})
    with pytest.raises(LaunchError, match="invalid digest"):
        give_inputs(spec, environment, tmp_path / "w" / "runs" / "r")
    with pytest.raises(LaunchError, match="invalid digest"):
        materialise(hostile, environment, tmp_path / "w")
    assert read_folder(tmp_path) == before
