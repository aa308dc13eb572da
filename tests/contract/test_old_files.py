"""Files that commit 49408da wrote (before jobs/ had rooms) are read as that commit read them.

`tests/golden` holds runs of the local stack and one of Azure ML (its stand-in), environments, the
blobs of a dataset and two packed ones; `typed.json` what that commit's `launch` printed of them.
Folders of the machine stand there as `/srv/...`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from jobs.cli import main
from jobs.contracts.spec import Environment, RunRecord
from jobs.datasets.datasets import Datasets
from jobs.engines import load_engine
from tests.fakes.blob_store import MemoryStore
from trainer.data.pictures.splits import open_pictures

GOLDEN = Path(__file__).parents[1] / "golden"
TYPED = json.loads((GOLDEN / "local" / "typed.json").read_text(encoding="utf-8"))
AZURE_RUN = GOLDEN / "azure" / "runs" / "20261122-201526-hglc"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The old workspace, where its environment and records say it is."""
    folder = tmp_path / "workspace"
    shutil.copytree(GOLDEN / "local", folder)
    for path in folder.rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("/srv/workspace", str(folder)), encoding="utf-8")
    return folder


@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: " ".join(typed["argv"]))
def test_verbs_print_of_old_runs_what_they_printed(typed, workspace, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    code = main([*typed["argv"], "--env", str(workspace / "environment.json")])

    assert code == typed["code"]
    printed = capsys.readouterr().out.replace(str(workspace), "/srv/workspace")
    if "--json" in typed["argv"]:
        assert _holds(json.loads(printed), json.loads(typed["out"]))
    else:
        assert printed == typed["out"]


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.rglob("run.json")), ids=lambda path: path.parent.name
)
def test_record_is_written_as_it_was_read(path):
    text = path.read_bytes()

    record = msgspec.json.decode(text, type=RunRecord)

    assert msgspec.json.format(msgspec.json.encode(record)) == text.rstrip()


@pytest.mark.parametrize("name", ["local", "azure"])
def test_environment_is_read(name):
    text = (GOLDEN / name / "environment.json").read_bytes()

    environment = msgspec.json.decode(text, type=Environment)

    written = json.loads(msgspec.json.encode(environment))
    old = json.loads(text)
    assert old
    assert _holds(written, old)


def _holds(written: object, old: object) -> bool:
    """Compare what an old file says; newer keys may stand beside it."""
    if isinstance(old, dict) and isinstance(written, dict):
        return all(key in written and _holds(written[key], old[key]) for key in old)
    if isinstance(old, list) and isinstance(written, list):
        return len(old) == len(written) and all(map(_holds, written, old))
    return written == old


def test_run_on_azure_that_is_over_is_read_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    text = (GOLDEN / "azure" / "environment.json").read_bytes()
    environment = msgspec.json.decode(text, type=Environment)
    runs = tmp_path / "trainyard" / "mlw-trainyard-dev-d28bd078" / "runs"
    shutil.copytree(AZURE_RUN, runs / AZURE_RUN.name)
    engine = load_engine(environment)

    record = engine.store.record(engine.store.handle(AZURE_RUN.name))

    assert record.plan.spec.name == "first"
    assert record.image_digest == f"sha256:{'a' * 64}"


def test_dataset_is_listed_and_pulled(tmp_path):
    store = MemoryStore()
    root = GOLDEN / "store"
    files = [path for path in root.rglob("*") if path.is_file()]
    store.blobs = {path.relative_to(root).as_posix(): path.read_bytes() for path in files}
    datasets = Datasets(store)

    versions = datasets.versions("letters")
    for version in versions:
        datasets.pull(version.pinned(), tmp_path / str(version.version))

    pulled = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8")
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert [(each.version, each.files, each.bytes) for each in versions] == [(2, 3, 10), (1, 3, 8)]
    assert pulled == {
        "1/a/one.txt": "one\n",
        "1/empty": "",
        "1/two.txt": "two\n",
        "2/a/one.txt": "one\n",
        "2/empty": "",
        "2/two.txt": "three\n",
    }


@pytest.mark.parametrize("kind", ["tar", "tfrecord"])
def test_packed_dataset_is_read(kind):
    pictures = open_pictures(GOLDEN / f"packed-{kind}", "train")

    assert pictures.classes == ("cat", "dog")
    assert list(pictures.labels) == [1, 0, 1]
    for index in range(3):
        picture = pictures.read(index)
        assert (len(picture), picture[:2], picture[-2:]) == (632, b"\xff\xd8", b"\xff\xd9")
