"""An input named `keras` becomes a home for Keras, one of each rank."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.rank.keras_home import lay_keras_home
from jobs.rank.world import World
from tests.busy import HANG_S

WORLD = World(3, 4, 1, 2, 1, "127.0.0.1", "1")


def names(home: Path) -> dict[str, str]:
    return {
        path.relative_to(home).as_posix(): path.read_text()
        for path in sorted(home.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("datasets/mnist.npz", "datasets/cifar-10-batches-py.tar.gz", "models/notes"):
        path = tmp_path / "input" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "input" / "prepared.json").write_text("{}")
    return tmp_path / "input"


def test_each_file_is_there_under_its_name_and_with_the_ranks_number(
    tmp_path: Path, source: Path
) -> None:
    home = tmp_path / "home"
    for _ in range(2):  # a second attempt finds what the first left
        assert lay_keras_home(str(source), str(home), WORLD)
        assert names(home) == {
            "datasets/cifar-10-batches-py-1.tar.gz": "datasets/cifar-10-batches-py.tar.gz",
            "datasets/cifar-10-batches-py-3.tar.gz": "datasets/cifar-10-batches-py.tar.gz",
            "datasets/cifar-10-batches-py.tar.gz": "datasets/cifar-10-batches-py.tar.gz",
            "datasets/mnist-1.npz": "datasets/mnist.npz",
            "datasets/mnist-3.npz": "datasets/mnist.npz",
            "datasets/mnist.npz": "datasets/mnist.npz",
            "models/notes": "models/notes",
        }
        (home / "keras.json").write_text("{}")
        (home / "datasets" / "unpacked").mkdir()
    assert sorted(path.name for path in source.iterdir()) == ["datasets", "models", "prepared.json"]


def test_a_file_of_the_input_comes_before_a_made_up_name(tmp_path: Path, source: Path) -> None:
    (source / "datasets" / "mnist-1.npz").write_text("its own")
    lay_keras_home(str(source), str(tmp_path / "home"), WORLD)
    assert names(tmp_path / "home")["datasets/mnist-1.npz"] == "its own"


def test_an_input_that_is_one_file_makes_no_home(tmp_path: Path, source: Path) -> None:
    home = tmp_path / "home"
    assert not lay_keras_home(str(source / "prepared.json"), str(home), WORLD)
    assert not home.exists()


@pytest.mark.parametrize(
    ("inputs", "given", "home"),
    [
        ({"keras": "{source}"}, {}, "{folder}/nodes/0.keras/0"),
        ({"keras": "{source}"}, {"KERAS_HOME": "/mine"}, "/mine"),
        ({"keras": "{source}/datasets"}, {}, None),
        ({"other": "{source}"}, {}, None),
    ],
)
def test_ranks_find_it_unless_the_job_says_otherwise(
    tmp_path: Path, source: Path, inputs: dict[str, str], given: dict[str, str], home: str | None
) -> None:
    for name in ("code", "logs", "nodes", "outputs", "ranks"):
        (tmp_path / name).mkdir()
    job = tmp_path / "rank.json"
    say = "import json, os; json.dump(os.environ.get('KERAS_HOME'), open('outputs/home', 'w'))"
    description = {
        "run_dir": str(tmp_path),
        "command": [sys.executable, "-c", say],
        "inputs": {name: path.format(source=source) for name, path in inputs.items()},
    }
    job.write_text(json.dumps(description))
    start = "import sys; from jobs.rank.main import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", start, str(job)], env=given, timeout=HANG_S, check=True)
    found = json.loads((tmp_path / "outputs" / "home").read_text())
    assert found == (home and home.format(folder=tmp_path))
