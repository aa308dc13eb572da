"""Settings are typed and absolute, and every wrong key is named in one message."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
import yaml

from infra.local.settings import (
    ClusterSettings,
    LocalSettings,
    StorageSettings,
    Tools,
    WorkspaceSettings,
)
from infra.models import SettingsError
from infra.settings import find_project_root, parse_settings

CONFIG = {
    "engine": "local",
    "storage": {"port": 10100, "folder": "data/storage"},
    "workspace": {"folder": "data/workspace"},
    "clusters": {"cpu": {"nodes": 2, "processes_per_node": 3}},
}


@pytest.fixture
def root(tmp_path):
    tools = tmp_path / ".trainyard" / "tools.json"
    tools.parent.mkdir()
    for name in ("node", "main.js"):
        (tmp_path / name).touch()
    tools.write_text(
        json.dumps({"node": str(tmp_path / "node"), "azurite": str(tmp_path / "main.js")})
    )
    return tmp_path


def encode(config):
    """As Pulumi hands it over: texts as they are, all else as JSON."""
    return {
        f"trainyard:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in config.items()
    }


def parse(config, root):
    return parse_settings(config, stack="local", root=root, today=datetime.date(2026, 11, 21))


def problems_of(config, root):
    with pytest.raises(SettingsError) as caught:
        parse(encode(config), root)
    return caught.value.problems


def test_good_settings_become_types_with_absolute_folders(root):
    images = {"pytorch": "registry/pytorch@sha256:0"}
    settings = parse(encode(CONFIG | {"images": images}), root)
    assert settings == LocalSettings(
        storage=StorageSettings(port=10100, folder=root / "data/storage"),
        workspace=WorkspaceSettings(folder=root / "data/workspace"),
        clusters={"cpu": ClusterSettings(nodes=2, processes_per_node=3)},
        images=images,
        tools=Tools(node=str(root / "node"), azurite=str(root / "main.js")),
    )


def test_the_committed_settings_are_good(root):
    repo = Path(__file__).parents[2]
    config = yaml.safe_load((repo / "Pulumi.local.yaml").read_text())["config"]
    ours = {key.removeprefix("trainyard:"): value for key, value in config.items()}
    settings = parse(encode(ours), root)
    assert settings.storage.folder == root / ".trainyard/local/storage"
    assert settings.clusters


def test_an_absolute_folder_and_one_of_the_home_are_taken_as_they_are(root, monkeypatch):
    monkeypatch.setenv("HOME", str(root / "home"))
    config = CONFIG | {
        "storage": {"port": 10100, "folder": str(root / "x" / ".." / "abs")},
        "workspace": {"folder": "~/runs"},
    }
    settings = parse(encode(config), root)
    assert settings.storage.folder == root / "abs"
    assert settings.workspace.folder == root / "home" / "runs"


def test_keys_of_other_namespaces_are_not_judged(root):
    config = encode(CONFIG) | {"pulumi:disable-default-providers": "[]", "azure-native:x": "y"}
    assert parse(config, root).storage.port == 10100


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"engine": "azure"}, 'trainyard:engine: "azure" is not one of: azureml, local'),
        ({"storage": "x"}, 'trainyard:storage: "x" is not a mapping'),
        ({"storage": [1]}, "trainyard:storage: [1] is not a mapping"),
        (
            {"storage": {"port": 80, "folder": "a"}},
            "trainyard:storage.port: 80 is not between 1024 and 65535",
        ),
        (
            {"storage": {"port": "10100", "folder": "a"}},
            'trainyard:storage.port: "10100" is not a whole number',
        ),
        (
            {"storage": {"port": True, "folder": "a"}},
            "trainyard:storage.port: true is not a whole number",
        ),
        ({"storage": {"port": 10100}}, "trainyard:storage.folder: is missing"),
        (
            {"storage": {"port": 10100, "folder": ""}},
            "trainyard:storage.folder: is empty",
        ),
        (
            {"workspace": {"folder": "data/storage/runs"}},
            "trainyard:workspace.folder: shares a folder with trainyard:storage.folder",
        ),
        (
            {"workspace": {"folder": "w", "size": 1}},
            "trainyard:workspace.size: unknown key, known: folder",
        ),
        ({"clusters": {}}, "trainyard:clusters: is empty"),
        ({"clusters": {"cpu": 2}}, "trainyard:clusters.cpu: 2 is not a mapping"),
        (
            {"clusters": {"CPU!": {"nodes": 1, "processes_per_node": 1}}},
            "trainyard:clusters.CPU!: is not a valid name (small letters, digits, dashes; 32 at most)",
        ),
        (
            {"clusters": {"cpu": {"nodes": 0, "processes_per_node": 1}}},
            "trainyard:clusters.cpu.nodes: 0 is not between 1 and 64",
        ),
        ({"images": {"pytorch": 3}}, "trainyard:images.pytorch: 3 is not text"),
        ({"images": "x"}, 'trainyard:images: "x" is not a mapping'),
        ({"storge": {}}, "trainyard:storge: unknown key, did you mean `storage`?"),
    ],
)
def test_one_wrong_setting_is_one_problem(root, change, problem):
    assert problems_of(CONFIG | change, root) == [problem]


def test_all_that_is_wrong_is_said_at_once(root):
    (root / ".trainyard" / "tools.json").unlink()
    assert problems_of({"clusters": {"a": {"nodes": 1}}, "color": "red"}, root) == [
        "trainyard:engine: is missing",
        "trainyard:storage: is missing",
        "trainyard:workspace: is missing",
        "trainyard:clusters.a.processes_per_node: is missing",
        "trainyard:color: unknown key, known: clusters, engine, images, storage, workspace",
        f"{root}/.trainyard/tools.json is missing; `make setup` writes it",
    ]


def test_tools_that_are_gone_or_damaged_are_named(root):
    (root / "node").unlink()
    assert problems_of(CONFIG, root) == [
        f"{root}/.trainyard/tools.json: {root}/node is not there; `make setup` installs it"
    ]
    (root / ".trainyard" / "tools.json").write_text('{"node": "x"}')
    assert problems_of(CONFIG, root) == [
        f"{root}/.trainyard/tools.json is damaged (KeyError('azurite')); "
        "`make setup` writes it anew"
    ]


def test_a_file_in_the_way_of_a_folder_is_named(root):
    (root / "data").write_text("")
    assert problems_of(CONFIG, root) == [
        f"trainyard:storage.folder: {root}/data is in the way, it is not a folder",
        f"trainyard:workspace.folder: {root}/data is in the way, it is not a folder",
    ]


def test_the_project_is_found_from_mains_folder(tmp_path, monkeypatch):
    (tmp_path / "Pulumi.yaml").touch()
    (tmp_path / "infra").mkdir()
    monkeypatch.chdir(tmp_path / "infra")
    assert find_project_root() == tmp_path
