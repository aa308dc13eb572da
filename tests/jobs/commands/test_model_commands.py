"""What `launch model` prints, keeps and refuses; the stores are in memory."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from jobs.commands.completers import model_versions
from jobs.datasets import models
from jobs.engines.local.engine import LocalEngine
from tests.fakes.blob_store import MemoryStore
from tests.fakes.gangs import make_environment
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("own_cache")

DATASET = {"name": "digits", "version": 3, "digest": "ab" * 32, "files": 2, "bytes": 10}


@pytest.fixture
def stores(launching, monkeypatch) -> dict[str, MemoryStore]:
    other = make_environment(launching.folder / "test-workspace")
    other = msgspec.structs.replace(other, stack="test")
    (launching.folder / "test.json").write_bytes(msgspec.json.encode(other))
    made = {"local": MemoryStore(), "test": MemoryStore()}
    monkeypatch.setattr(models, "open_data_store", lambda each: made[each.stack])
    monkeypatch.setattr("jobs.blobs.store.peek_data_store", lambda each: made[each.stack])
    monkeypatch.setattr("tests.fakes.launching.FakeEngine.fetch", LocalEngine.fetch)
    monkeypatch.chdir(launching.folder)
    return made


def run(launching, ends_as: str = "completed", **files: bytes) -> str:
    """Type a run with an output `model`, as if its ranks had written these files."""
    (launching.folder / "train.py").write_text("print(1)\n")
    text = f"name: net\nimage: python\nscript: train.py\noutputs: {{model: {{}}, notes: {{}}}}\nenv: {{ENDS_AS: {ends_as}}}\n"
    typed = launching.type("run", launching.write_job(text), "-y", "--no-fetch")
    run_id = typed.out.splitlines()[0]
    run_dir = launching.workspace / "runs" / run_id
    path = run_dir / "run.json"
    record = json.loads(path.read_text())
    record["plan"]["spec"]["inputs"] = {"train": {"dataset": DATASET, "mode": "download"}}
    record["git"] = {"commit": "c" * 40, "dirty_diff": "+1"}
    path.write_text(json.dumps(record))
    (run_dir / "summary.json").write_text('{"test_accuracy": 0.9, "test_loss": 0.5}')
    (run_dir / "code").mkdir(exist_ok=True)
    (run_dir / "code" / "train.py").write_text("print(1)\n")
    make_folder(run_dir / "outputs" / "model", files)
    return run_id


def test_a_model_is_registered_with_its_lineage(launching, stores):
    run_id = run(launching, weights=b"w1")
    typed = launching.type("model", "register", run_id)
    assert (typed.code, typed.out) == (0, "net@1\n")
    assert typed.err.endswith(f"net@1 is registered: 1 file, 2 B, of {run_id}\n")
    code = hashlib.sha256(b"print(1)\n").hexdigest()
    shown = launching.type("model", "show", "net", "--json").json()
    assert shown["lineage"] == {
        "run": run_id,
        "stack": launching.environment.stack,
        "job": "net",
        "output": "model",
        "inputs": {"train": {"dataset": "digits", "version": 3, "digest": "ab" * 32}},
        "code_digest": hashlib.sha256(f"{code} train.py\n".encode()).hexdigest(),
        "commit": "c" * 40,
        "is_changed": True,
        "image": "python",
        "image_digest": "sha256:1",
        "figures": {"test accuracy": 0.9, "test loss": 0.5},
    }
    row = launching.type("model", "ls").out.splitlines()[1].split()
    assert (row[:2], row[-4:]) == (["net", "1"], [run_id, "test", "accuracy", "0.9"])
    text = launching.type("model", "show", "net@1").out
    assert f"input train    digits@3, digest {'ab' * 32}" in text
    assert f"commit         {'c' * 40}, with changes" in text


@pytest.mark.parametrize("label", ["bell\a", "long" * 200, "lines\nof"])
def test_a_figure_whose_name_no_record_may_hold_is_left_out(launching, stores, label):
    run_id = run(launching, weights=b"w1")
    summary = {f"test_{label}": 1.0, "test_accuracy": 0.9}
    (launching.workspace / "runs" / run_id / "summary.json").write_text(json.dumps(summary))
    typed = launching.type("model", "register", run_id)
    assert (typed.code, typed.out) == (0, "net@1\n")
    shown = launching.type("model", "show", "net", "--json")
    assert shown.json()["lineage"]["figures"] == {"test accuracy": 0.9}


def test_a_record_that_nobody_could_read_is_not_written(launching, stores, monkeypatch):
    run_id = run(launching, weights=b"w1")
    monkeypatch.setattr("jobs.launching.lineage.fits", lambda _: True)
    summary = {"test_bell\a": 1.0}
    (launching.workspace / "runs" / run_id / "summary.json").write_text(json.dumps(summary))
    typed = launching.type("model", "register", run_id)
    assert typed.code == 1
    blob = "_models/_datasets/net/1.json"
    assert f"error: `{blob}` would be invalid, and was not written: " in typed.err
    assert blob not in stores["local"].blobs
    assert launching.type("model", "ls").err == "no model yet\n\nhint: launch model register RUN\n"


def test_a_damaged_record_is_named_by_its_place_in_the_container(launching, stores):
    launching.type("model", "register", run(launching, weights=b"w1"))
    stores["local"].blobs["_models/_datasets/net/1.json"] = b"{"
    typed = launching.type("model", "ls")
    assert "`_models/_datasets/net/1.json` cannot be read: " in typed.err


def test_a_damaged_record_is_in_the_way_of_no_other_version_and_of_no_other_model(
    launching, stores
):
    for weights in (b"w1", b"w2"):
        launching.type("model", "register", run(launching, weights=weights))
    stores["local"].blobs["_models/_datasets/net/1.json"] = b"{"
    assert launching.type("model", "show", "net@2").code == 0
    # It may be the newest.
    assert "net/1.json` cannot be read: " in launching.type("model", "show", "net").err
    typed = launching.type("model", "show", "nets")
    assert (typed.code, typed.err) == (
        102,
        "error: no model `nets` in the store\n\nhint: there is net@2\n",
    )


def test_equal_content_is_one_version_and_other_content_another(launching, stores):
    first = run(launching, weights=b"w1")
    assert launching.type("model", "register", first).out == "net@1\n"
    again = launching.type("model", "register", run(launching, weights=b"w1"))
    assert (again.out, again.err) == (
        "net@1\n",
        f"net@1 is registered already: 1 file, 2 B, of {first}\n",
    )
    assert launching.type("model", "register", run(launching, weights=b"w2")).out == "net@2\n"
    assert launching.type("model", "register", "last", "--name", "best").out == "best@1\n"
    assert [each["version"] for each in launching.type("model", "ls", "net", "--json").json()] == [
        2,
        1,
    ]
    # The data verbs see no model, so that nothing takes one for a dataset nobody uses.
    names = [name for name in stores["local"].blobs if not name.startswith("_models/")]
    assert names == []


def test_a_model_stays_when_its_run_is_gone(launching, stores):
    run_id = run(launching, weights=b"w1", **{"sub/b": b"w2"})
    launching.type("model", "register", run_id)
    for path in sorted((launching.workspace / "runs" / run_id).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    typed = launching.type("model", "fetch", "net", "--into", "here")
    assert (typed.code, typed.out) == (0, "here\n")
    assert read_folder(Path("here/files")) == {"weights": b"w1", "sub/b": b"w2"}
    record = json.loads(Path("here/model.json").read_text())
    assert record["lineage"]["run"] == run_id
    digests = {each["path"]: each["sha256"] for each in record["listed"]}
    assert digests == {
        "weights": hashlib.sha256(b"w1").hexdigest(),
        "sub/b": hashlib.sha256(b"w2").hexdigest(),
    }


def test_a_copy_on_another_stack_keeps_the_lineage(launching, stores):
    run_id = run(launching, weights=b"w1")
    launching.type("model", "register", run_id)
    typed = launching.type("model", "copy", "net", "--to", "test.json")
    assert (typed.code, typed.out) == (0, "net@1\n")
    shown = launching.type_bare("model", "show", "net", "--env", "test.json", "--json").json()
    assert shown["lineage"]["run"] == run_id
    assert (shown["copied_from"]["stack"], shown["copied_from"]["version"]) == ("local", 1)
    blob = next(name for name in stores["test"].blobs if name.endswith("/weights"))
    stores["test"].blobs[blob] = b"W1"
    refused = launching.type_bare("model", "fetch", "net", "--env", "test.json")
    assert refused.code == 1
    assert "with another content" in refused.err
    assert not Path("net-1/model.json").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["register", "last", "--output", "weights"], 102, "has no output `weights`"),
        (["register", "last", "--output", "notes"], 102, "wrote no file to its output `notes`"),
        (["register", "last", "--name", "a b"], 2, "`a b` is not the name of a model"),
        (["register", "nothing"], 102, "there is no run `nothing`"),
        (["show", "other"], 102, "no model `other` in the store"),
        (["fetch", "net@7"], 102, "no model `net@7` in the store"),
        (["ls", "other"], 102, "no model `other` in the store"),
    ],
)
def test_an_error_names_what_there_is(launching, stores, words, code, message):
    run(launching, weights=b"w1")
    assert launching.type("model", "register", "last").code == 0
    typed = launching.type("model", *words)
    assert (typed.code, typed.out) == (code, "")
    assert message in typed.err
    assert "hint: " in typed.err


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_run_that_did_not_complete_is_refused(launching, stores, state):
    run_id = run(launching, state, weights=b"w1")
    typed = launching.type("model", "register", run_id)
    assert typed.code == 3
    assert f"{run_id} is {state}; only a completed run's model is registered" in typed.err
    assert stores["local"].blobs == {}


def test_a_store_without_models_says_how_one_is_made(launching, stores):
    typed = launching.type("model", "ls")
    assert (typed.out, typed.err) == ("", "no model yet\n\nhint: launch model register RUN\n")


def test_models_are_offered_at_tab(launching, stores):
    run_id = run(launching, weights=b"w1")
    launching.type("model", "register", run_id)

    context = SimpleNamespace(params={"env": launching.env_file, "stack": "local"})
    assert model_versions(context, "n") == [("net", "version 1"), ("net@1", f"of {run_id}")]
