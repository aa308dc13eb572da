"""Functions of `trainyard` against `launch --json`, of verbs that need a store: a real Azurite."""

from __future__ import annotations

import pytest

import trainyard
from tests.fakes.launched_store import Store
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("own_cache")


def test_datasets_by_functions_are_those_of_the_verbs(store: Store, tmp_path):
    env = store.env_file
    folder = make_folder(tmp_path / "from", {"a": b"one", "sub/b": b"two"})
    first = trainyard.data.push(folder, "values", env=env)
    assert (first["name"], first["version"], first["files_sent"]) == ("values", 1, 2)
    (folder / "a").write_bytes(b"three")
    second = store.json("data", "push", str(folder), "values")
    assert second.keys() == first.keys()
    told = [
        (["data", "ls"], trainyard.data.ls(env=env)),
        (["data", "show", "values@1"], trainyard.data.show("values@1", env=env)),
        (
            ["data", "diff", "values@1", "values@2"],
            trainyard.data.diff("values@1", "values@2", env=env),
        ),
        (
            ["data", "push", str(folder), "values", "--dry-run"],
            trainyard.data.push(folder, "values", dry_run=True, env=env),
        ),
        (["model", "ls"], trainyard.model.ls(env=env)),
    ]
    for words, value in told:
        assert value == store.json(*words), words
        assert value or words == ["model", "ls"]
    by_verb, by_function = tmp_path / "verb", tmp_path / "function"
    pulled = store.json("data", "pull", "values@1", "--to", str(by_verb))
    value = trainyard.data.pull("values@1", to=by_function, env=env)
    assert value.keys() == pulled.keys()
    assert value["files_received"] == pulled["files_received"] == 2
    assert read_folder(by_function) == read_folder(by_verb)
    removed = trainyard.data.rm("values@1", yes=True, env=env)
    again = store.json("data", "rm", "values@2", "--yes")
    assert removed.keys() == again.keys()
