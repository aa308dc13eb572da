"""Which files travel, why, and under which name."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from jobs.blobs.files import BLOCK_BYTES
from jobs.contracts.errors import NotFound
from jobs.engines.azure_ml.code_listing import CodeFile, read_code
from jobs.engines.azure_ml.node_job import SNAPSHOT_FILE, snapshot_file
from jobs.rank.code import LIST_FILE, SHAPE_FILE
from tests.fakes.gangs import make_spec

STARTER = CodeFile(name=SNAPSHOT_FILE, bytes=len(snapshot_file()), reason="starts each rank")


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def listed(code):
    size = len(code.made[LIST_FILE])
    return CodeFile(name=LIST_FILE, bytes=size, reason="what nodes check the code by")


def code_of(folder, command=("python", "train.py"), **changes):
    return read_code(make_spec(list(command), code=str(folder), **changes))


def test_each_file_is_listed_with_its_size_and_reason(tmp_path):
    write(
        tmp_path, {"train.py": "x", "lib/a.py": "yy", "data/big.bin": "zzz", ".gitignore": "data"}
    )
    code = code_of(tmp_path)
    assert code.listing.files == (
        CodeFile(name=".gitignore", bytes=4, reason="in `code`"),
        CodeFile(name="lib/a.py", bytes=2, reason="in `code`"),
        CodeFile(name="train.py", bytes=1, reason="the script"),
        STARTER,
        listed(code),
    )
    assert code.listing.bytes == 7 + STARTER.bytes + len(code.made[LIST_FILE])
    assert list(code.made) == [SNAPSHOT_FILE, LIST_FILE]
    contents = {".gitignore": b"data", "lib/a.py": b"yy", "train.py": b"x"}
    assert json.loads(code.made[LIST_FILE]) == {
        name: hashlib.sha256(content).hexdigest()
        for name, content in {**contents, SNAPSHOT_FILE: snapshot_file()}.items()
    }
    digest = hashlib.sha256(code.made[LIST_FILE]).hexdigest()
    assert code.listing.name == f"trainyard-{digest[:40]}"


def test_of_a_module_only_its_package_travels(tmp_path):
    write(tmp_path, {"trainer/__init__.py": "", "trainer/a/b.py": "x", "infra/x.py": "no"})
    code = code_of(tmp_path, ("python", "-m", "trainer.a.b"), code_only=("trainer",))
    assert [(each.name, each.reason) for each in code.listing.files] == [
        ("trainer/__init__.py", "in `trainer`, which the module is of"),
        ("trainer/a/b.py", "the module"),
        (SNAPSHOT_FILE, "starts each rank"),
        (LIST_FILE, "what nodes check the code by"),
    ]


def test_a_job_without_code_sends_what_starts_its_ranks():
    code = read_code(make_spec(["python", "-c", "1"], code=None))
    assert code.listing.files == (STARTER, listed(code))
    assert code.files == ()


@pytest.mark.skipif(os.name != "posix", reason="modes and links are of POSIX")
def test_what_a_blob_cannot_say_is_written_down(tmp_path):
    folder, outside = tmp_path / "code", tmp_path / "outside.txt"
    outside.write_text("lent")
    write(folder, {"train.py": "x", "run.sh": "y"})
    (folder / "run.sh").chmod(0o755)
    (folder / "empty" / "inner").mkdir(parents=True)
    (folder / "same.py").symlink_to("train.py")
    (folder / "lent.txt").symlink_to(outside)
    (folder / "gone.txt").symlink_to(tmp_path / "nowhere")
    code = code_of(folder)
    assert json.loads(code.made[SHAPE_FILE]) == {
        "links": {"same.py": "train.py"},
        "executable": ["run.sh"],
        "folders": ["empty", "empty/inner"],
    }
    assert [(each.name, each.reason) for each in code.listing.files][:2] == [
        ("run.sh", "in `code`"),
        ("train.py", "the script"),
    ]
    assert code.listing.left_out == ("gone.txt", "lent.txt")


def test_the_name_is_of_the_content_alone(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, {"train.py": "x", "a/b.py": "y"})
    first, second = (code_of(tmp_path / name).listing.name for name in ("one", "two"))
    assert first == second
    os.utime(tmp_path / "two" / "train.py", (1, 1))
    assert code_of(tmp_path / "two").listing.name == first
    write(tmp_path / "two", {"train.py": "z"})
    changed = code_of(tmp_path / "two").listing.name
    (tmp_path / "one" / "a" / "b.py").rename(tmp_path / "one" / "a" / "c.py")
    assert len({first, changed, code_of(tmp_path / "one").listing.name}) == 3


def test_a_large_file_is_known_by_its_blocks(tmp_path):
    content = b"a" * BLOCK_BYTES + b"b"
    (tmp_path / "large.bin").write_bytes(content)
    (file,) = code_of(tmp_path).files
    assert file.bytes == BLOCK_BYTES + 1
    assert file.md5 == hashlib.md5(content).digest()
    assert file.block_md5s == tuple(
        hashlib.md5(part).digest() for part in (content[:BLOCK_BYTES], b"b")
    )


def test_what_an_earlier_upload_left_in_the_code_does_not_travel(tmp_path):
    write(tmp_path, {"train.py": "x", ".trainyard/rank.pyz": "old", ".trainyard/cache/x": "y"})
    names = [each.name for each in code_of(tmp_path).listing.files]
    assert names == ["train.py", SNAPSHOT_FILE, LIST_FILE]


def test_code_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NotFound) as caught:
        code_of(tmp_path / "nowhere")
    assert caught.value.message == f"`code: {tmp_path / 'nowhere'}` is not a folder"
