"""A small file of a dataset costs one message within a second and 200 MB, not a traceback or the machine.

Attacker: the author of a dataset, or who may write to the store. JSON that is 200,000 deep ended in a
traceback, a MATLAB file of 208 bytes in a MemoryError after 1.5 GB. Each program here runs as a process of
its own, which may have that much memory beside what importing takes.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.busy import how_busy
from tests.folders import make_folder
from trainer.common.errors import TrainingError
from trainer.data.pictures.coco import read_split

ROOT = Path(__file__).parents[2]
DEEP = b"[" * 200_000
# A depth that the parser bears and whoever shows the value may not.
SHOWN = b"[" * 900 + b"]" * 900
MOST_BYTES = 200 << 20
SECOND_S = 1.0
# SciPy's import and reading; the process that reads is ended after 5 s of it.
MATLAB_SECONDS = 6.0
# Says the message, and how long that took; the limit is set when all is imported.
PROGRAM = """
import json, resource, sys, time
from pathlib import Path
from trainer.common.errors import TrainingError
from trainer.data.prepare import imagenet
from trainer.data.pack import sources
from trainer.data.pictures import coco
from trainer.data.shards import index
folder = Path(sys.argv[1])
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[3]),) * 2)
begun_s = time.process_time()
try:
    {call}
    said = "nothing"
except TrainingError as error:
    said = str(error)
print(json.dumps([said, time.process_time() - begun_s]))
"""
CALLS = {
    "index": "index.read_index(folder)",
    "coco": "coco.read_split(folder, 'train2017')",
    "pack": "sources.open_source(folder)",
}


def said_of(folder: Path, call: str) -> str:
    """What a program says that reads this, within its bounds."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=CALLS[call]), str(folder), "", str(MOST_BYTES)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    said, took_s = json.loads(done.stdout)
    assert took_s < SECOND_S * how_busy()
    return said


@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        b'{"schema": 1, "kind": ' + DEEP,
        b'{"schema": ' + SHOWN + b"}",
        b'{"schema": 1, "kind": "coco", "format": "tar", "splits": {}, "classes": ['
        + SHOWN
        + b"]}",
        b'{"a": ' * 200_000,
        b'{"schema": ' + b"9" * 5000 + b"}",
        b'{"schema": 1, "classes": [' + b"[]," * 5_000_000 + b"[]]}",
    ],
    ids=["lists", "inside", "schema", "classes", "objects", "digits", "wide"],
)
def test_an_index_that_is_a_bomb_is_one_message(tmp_path: Path, content: bytes) -> None:
    make_folder(tmp_path, {"index.json": content})
    said = said_of(tmp_path, "index")
    assert said.startswith(f"`{tmp_path}/index.json` ")
    assert len(said) < 1000


@pytest.mark.parametrize("content", [DEEP, b'{"images": ' + DEEP], ids=["lists", "inside"])
@pytest.mark.parametrize("call", ["coco", "pack"])
def test_annotations_that_are_a_bomb_are_one_message(
    tmp_path: Path, call: str, content: bytes
) -> None:
    make_folder(tmp_path, {"annotations/instances_train2017.json": content})
    said = said_of(tmp_path, call)
    assert said.startswith(f"`{tmp_path}/annotations/instances_train2017.json` cannot be ")


SQUARE = [2, 2, 12, 2, 12, 12, 2, 12]


@pytest.mark.parametrize(
    "outline",
    [
        {"size": [1_000_000, 1_000_000], "counts": "0P1"},
        {"size": [20, 10], "counts": "0P1"},
        {"size": [-10, -20], "counts": "0P1"},
        {"size": [10, 20], "counts": [0, 1 << 40]},
        {"size": [10, 20], "counts": [-1, 201]},
        [SQUARE, [2, 2, 2_000_000_000, 2, 12, 12]],
        [[2, 2, -1e300, 2, 12, 12]],
        [[2, 2, float("nan"), 2, 12, 12]],
        [[2, 2, float("inf"), 2, 12, float("-inf")]],
    ],
)
def test_an_outline_that_asks_for_another_picture_is_one_message(
    tmp_path: Path, outline: object
) -> None:
    """What draws it, in C, asks for as much memory as it says, or ends the process."""
    entry = {"id": 7, "image_id": 1, "category_id": 1, "bbox": [2, 2, 10, 8]}
    annotations = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 20, "height": 10}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{**entry, "segmentation": outline}],
    }
    content = json.dumps(annotations).encode()
    make_folder(tmp_path, {"annotations/instances_train2017.json": content, "train2017/a.jpg": b""})
    with pytest.raises(TrainingError) as error:
        read_split(tmp_path, "train2017")
    assert str(error.value) == (
        f"`{tmp_path}/annotations/instances_train2017.json` cannot be used: "
        "the outline of annotation 7 is not of its image's size"
    )


# --- MATLAB --------------------------------------------------------------------------------------


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def array(kind: int, dimensions: bytes, *content: bytes, name: bytes = b"synsets") -> bytes:
    flags = element(6, struct.pack("<II", kind, 0))
    return element(14, flags + element(5, dimensions) + element(1, name) + b"".join(content))


def matrix(kind: int, numbers: int, size: int, *, name: bytes = b"synsets") -> bytes:
    return array(kind, struct.pack("<ii", 1, 1), element(numbers, bytes(size)), name=name)


def structs(count: int, *, width: int = 32, names: bytes = b"", values: bytes = b"") -> bytes:
    dimensions = struct.pack("<ii", count, 1)
    return array(2, dimensions, element(5, struct.pack("<i", width)), element(1, names), values)


def compressed(data: bytes) -> bytes:
    packed = zlib.compress(data, 1)
    return struct.pack("<II", 15, len(packed)) + packed


def nested(depth: int) -> bytes:
    """A struct in a struct in a struct ..."""
    head = element(6, struct.pack("<II", 2, 0)) + element(5, struct.pack("<ii", 1, 1))
    head += (
        element(1, b"synsets") + element(5, struct.pack("<i", 8)) + element(1, b"a\0\0\0\0\0\0\0")
    )
    sizes = [0]
    for _ in range(depth):
        sizes.append(len(head) + 8 + sizes[-1])
    return b"".join(struct.pack("<II", 14, size) + head for size in reversed(sizes[1:]))


BOMBS = {
    "count": lambda: structs(1 << 28),
    "count of fields": lambda: structs((1 << 31) - 1, names=b"a".ljust(32, b"\0")),
    "dimensions": lambda: array(2, b"\xff\xff\xff\x7f" * (1 << 19)),
    "names": lambda: compressed(structs(1, width=1, names=b"a" * (60 << 20))),
    "numbers": lambda: compressed(matrix(6, 2, 60 << 20)),
    "characters": lambda: compressed(matrix(4, 4, 60 << 20)),
    "deep": lambda: nested(20_000),
    "many": lambda: compressed(matrix(6, 2, 3 << 20, name=b"x")) * 200,
    "inflated": lambda: compressed(bytes(MOST_BYTES + (60 << 20))),
    "large": lambda: matrix(6, 2, 60 << 20),
}


# Nothing is limited here: the process that is started for each file bounds itself. The most memory is
# that of all, so that each is held by it.
MATLAB_PROGRAM = """
import json, resource, sys
from pathlib import Path
from trainer.common.errors import TrainingError
from trainer.data.prepare.imagenet import read_synsets
found, before_s = {}, 0.0
for name in sys.argv[1:]:
    try:
        said = str(read_synsets(Path(name).read_bytes()))
    except TrainingError as error:
        said = str(error)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found[Path(name).name] = said, used.ru_utime + used.ru_stime - before_s, used.ru_maxrss * 1024
    before_s = used.ru_utime + used.ru_stime
print(json.dumps(found))
"""


def test_a_matlab_file_that_is_a_bomb_is_one_message(tmp_path: Path) -> None:
    for name, make in BOMBS.items():
        content = b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM" + make()
        (tmp_path / name).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", MATLAB_PROGRAM, *(str(tmp_path / name) for name in BOMBS)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found.keys() == BOMBS.keys()
    most_s = MATLAB_SECONDS * how_busy()
    for name, (said, took_s, most_bytes) in found.items():
        assert said.startswith("it is a damaged MATLAB file: "), name
        assert len(said.splitlines()) == 1, name
        assert took_s < most_s, name
        assert most_bytes < MOST_BYTES, name
