"""F7: of a checkpoint that was changed on the disk nothing is loaded, and an older one is taken."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import seeds
from tests.campaign import campaign
from tests.folders import read_folder
from trainer.common.checkpoint import CheckpointFolder

PAGE = 4096


def content(step: int) -> dict[str, bytes]:
    """Files of the same sizes at every step, so that only the digests tell them apart."""
    made = seeds.dice(step)
    return {
        "model.safetensors": made.randbytes(5 * PAGE + 17),
        "optimizer.safetensors": made.randbytes(5 * PAGE + 17),
        "ranks.safetensors": made.randbytes(700),
        "state.json": b'{"groups": []}',
    }


def pick(folder: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(folder.iterdir()))


def pick_data(folder: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(path for path in folder.iterdir() if path.suffix == ".safetensors"))


def flip_bit(folder: Path, rng: random.Random) -> str:
    path = pick(folder, rng)
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return path.name


def truncate(folder: Path, rng: random.Random) -> str:
    path = pick(folder, rng)
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(1, len(data) - 1)])
    return path.name


def cut_the_end(folder: Path, rng: random.Random) -> str:
    path = pick(folder, rng)
    data = path.read_bytes()
    # Without its last newline a manifest says the same.
    path.write_bytes(data[: -rng.randrange(1, 3) - (path.name == "manifest.json")])
    return path.name


def zero_page(folder: Path, rng: random.Random) -> str:
    path = pick(folder, rng)
    data = bytearray(path.read_bytes())
    start = rng.randrange(0, len(data), PAGE)
    end = min(start + PAGE, len(data))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return path.name


def empty(folder: Path, rng: random.Random) -> str:
    path = pick_data(folder, rng)
    path.write_bytes(b"")
    return path.name


def append(folder: Path, rng: random.Random) -> str:
    path = pick(folder, rng)
    path.write_bytes(path.read_bytes() + bytes(rng.choices(b"\0x1}", k=rng.randrange(1, 9))))
    return path.name


def lose(folder: Path, rng: random.Random) -> str:
    path = pick_data(folder, rng)
    path.unlink()
    return path.name


def swap(folder: Path, rng: random.Random) -> str:
    first, second = folder / "model.safetensors", folder / "optimizer.safetensors"
    data = first.read_bytes(), second.read_bytes()
    first.write_bytes(data[1])
    second.write_bytes(data[0])
    return "model.safetensors"


def take_file_of_the_older(folder: Path, rng: random.Random) -> str:
    older = min(folder.parent.iterdir())
    name = pick_data(folder, rng).name
    shutil.copyfile(older / name, folder / name)
    return name


def take_manifest_of_the_older(folder: Path, rng: random.Random) -> str:
    older = min(folder.parent.iterdir())
    shutil.copyfile(older / "manifest.json", folder / "manifest.json")
    return "model.safetensors"


def put_a_folder_there(folder: Path, rng: random.Random) -> str:
    path = pick_data(folder, rng)
    path.unlink()
    path.mkdir()
    return path.name


def change_a_digit_of_the_manifest(folder: Path, rng: random.Random) -> str:
    path = folder / "manifest.json"
    data = bytearray(path.read_bytes())
    places = [at for at, byte in enumerate(data) if chr(byte).isdigit()]
    at = rng.choice(places)
    data[at] = rng.choice([each for each in b"0123456789" if each != data[at]])
    path.write_bytes(data)
    return "manifest.json"


def change_a_letter_of_the_manifest(folder: Path, rng: random.Random) -> str:
    path = folder / "manifest.json"
    data = bytearray(path.read_bytes())
    at = rng.choice([at for at, byte in enumerate(data) if chr(byte).isalpha()])
    data[at] = rng.choice([each for each in b"abcdefz" if each != data[at]])
    path.write_bytes(data)
    return "manifest.json"


def cut_lines_of_the_manifest(folder: Path, rng: random.Random) -> str:
    path = folder / "manifest.json"
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    path.write_bytes(b"".join(lines))
    return "manifest.json"


MUTATIONS: list[Callable[[Path, random.Random], str]] = [
    flip_bit,
    flip_bit,
    truncate,
    cut_the_end,
    zero_page,
    empty,
    append,
    lose,
    swap,
    take_file_of_the_older,
    take_manifest_of_the_older,
    put_a_folder_there,
    change_a_digit_of_the_manifest,
    change_a_letter_of_the_manifest,
    cut_lines_of_the_manifest,
]


@pytest.mark.parametrize(
    "num_mutations", [150, pytest.param(1000, marks=pytest.mark.faults)], ids=["150", "1000"]
)
def test_nothing_is_loaded_of_a_changed_checkpoint(tmp_path: Path, num_mutations: int) -> None:
    made = CheckpointFolder(tmp_path / "made")
    for step in (1, 2):
        made.write(step, content(step), {"step": step})
    before = read_folder(made.root)
    rng = seeds.dice(7)
    wrong: list[str] = []
    for number in range(num_mutations):
        mutate = MUTATIONS[number % len(MUTATIONS)]
        root = tmp_path / "changed"
        shutil.copytree(made.root, root)
        broken = max(root.iterdir())
        file = mutate(broken, rng)
        assert read_folder(root) != before, mutate
        said: list[str] = []
        found = CheckpointFolder(root).newest(said.append)
        is_older = found is not None and (found.step, found.files) == (1, content(1))
        if not (is_older and len(said) == 1 and said[0].startswith(f"checkpoint {broken.name} ")):
            wrong.append(f"mutation {number}, {mutate.__name__} of {file}: {said}")
        elif f"({file}: " not in said[0]:
            wrong.append(f"mutation {number}, {mutate.__name__}: not {file} is named: {said[0]}")
        shutil.rmtree(root)
    campaign("F7 changed checkpoints", tried=num_mutations, survived=num_mutations - len(wrong))
    assert wrong == []
