"""Archives are unpacked once, whole, inside their folder; hostile ones not at all."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import seeds
from tests.campaign import campaign
from tests.fakes.hostile_archives import PAYLOAD, hostile_archives
from tests.folders import make_folder, read_prepared
from trainer.common.errors import TrainingError
from trainer.data.archives.file import BLOCK_BYTES, ArchiveFile, Inflated
from trainer.data.archives.tar import tar_members
from trainer.data.archives.zip import read_directory, zip_members
from trainer.data.disk.events import Events
from trainer.data.prepare.published import Checksum
from trainer.data.prepare.staging import Staging
from trainer.data.prepare.unpack import Progress, unpack

MOST_BYTES = 64 << 20


def unpack_whole(archive: Path, target: Path, published: bytes | None = None) -> None:
    """Unpack any archive under its own names; its checksum is right, or that of `published`."""
    digest = hashlib.sha256(published or archive.read_bytes()).hexdigest()
    if archive.suffix == ".zip":
        directory = read_directory(archive)

        def files(source):
            return zip_members(source, directory)
    elif archive.suffix == ".gz":

        def files(source):
            return tar_members(Inflated(source, MOST_BYTES))
    else:
        files = tar_members
    with Staging(target, "any") as staging:
        unpack(
            staging,
            archive,
            files=files,
            roots=(),
            expected=Checksum(algorithm="sha256", digest=digest),
            progress=Progress(events=Events(as_json=True), archives_bytes=0),
        )
        staging.finish(tuple(path.name for path in staging.folder.iterdir()))


def test_hostile_archives_are_refused_with_one_line_and_write_nothing_outside(tmp_path):
    tried = survived = 0
    wrong = []
    for what, content in hostile_archives().items():
        tried += 1
        here = tmp_path / str(tried)
        here.mkdir()
        archive = here / f"archive.{what.partition(' ')[0]}"
        archive.write_bytes(content)
        found = _try_to_unpack(archive, here / "deep" / "target")
        if found is None:
            survived += 1
        else:
            wrong.append(f"{what}: {found}")
    campaign("hostile archives", tried=tried, survived=survived)
    assert wrong == []
    assert tried == 113  # as docs/prepare.md says


def _try_to_unpack(archive: Path, target: Path) -> str | None:
    """Say what went wrong; None where the archive was refused as it should be."""
    try:
        unpack_whole(archive, target)
    except TrainingError as error:
        if "\n" in str(error) or archive.name not in str(error) or not error.hint:
            return f"a bad message: {error!r}"
    else:
        return "it was unpacked"
    if target.exists():
        return "the target was made"
    partial = target.with_name(f".{target.name}.partial")
    inside = list(partial.rglob("*")) if partial.exists() else []
    for path in archive.parent.rglob("*"):
        if path not in {archive, partial, target.parent, *inside}:
            return f"{path} was made"
    modes = [path.lstat().st_mode for path in inside]
    if not all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in modes):
        return "something that is neither a file nor a folder was made"
    if sum(path.lstat().st_size for path in inside if path.is_file()) > MOST_BYTES:
        return "it filled the disk"
    return None


def test_the_hostile_payloads_unpack_under_harmless_names(tmp_path):
    """So what is refused above is refused for what it does."""
    folder = make_folder(tmp_path / "in", {"train/a.jpg": PAYLOAD, "b.jpg": PAYLOAD})
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    unpack_whole(tmp_path / "a.zip", tmp_path / "out")
    assert read_prepared(tmp_path / "out") == {"train/a.jpg": PAYLOAD, "b.jpg": PAYLOAD}


@pytest.mark.parametrize("form", ["gnu", "pax", "ustar", "v7"])
def test_what_tar_itself_writes_is_unpacked(tmp_path, form):
    import subprocess

    name = "deep/" * 10 + "x" * 40 if form in {"ustar", "v7"} else "deep/" * 20 + "x" * 180
    contents = {
        name: b"long",
        "a.jpg": b"",
        "big.jpg": seeds.content(3 << 20),
        "s/c.jpg": b"c" * 512,
    }
    folder = make_folder(tmp_path / "in", contents)
    archive = tmp_path / "a.tar"
    tar = ["tar", f"--format={form}", "-C", str(folder), "-cf", str(archive), "."]
    subprocess.run(tar, check=True)
    unpack_whole(archive, tmp_path / "out")
    assert read_prepared(tmp_path / "out") == contents


def test_stored_and_deflated_members_are_unpacked_and_the_digest_is_the_files(tmp_path):
    contents = {"a.bin": seeds.content(3 << 20), "zeros": bytes(5 << 20), "empty": b""}
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number, (name, content) in enumerate(contents.items()):
            kind = zipfile.ZIP_DEFLATED if number else zipfile.ZIP_STORED
            archive.writestr(name, content, compress_type=kind)
    unpack_whole(path, tmp_path / "out")
    assert read_prepared(tmp_path / "out") == contents


def test_a_file_is_read_in_pieces_and_hashed_whole(tmp_path):
    content = seeds.content((5 << 20) + 17)
    path = tmp_path / "file"
    path.write_bytes(content)
    with ArchiveFile(path, "sha256") as source:
        head = b"".join(source.pieces(3 << 20))
        middle = b"".join(source.pieces(1000))
        assert head + middle == content[: (3 << 20) + 1000]
        assert source.position == (3 << 20) + 1000
        assert source.digest() == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("num_bytes", [BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES])
@pytest.mark.parametrize("num_streams", [1, 2])
def test_a_gzip_of_whole_blocks_has_an_end(tmp_path, num_bytes, num_streams):
    contents = [bytes(num_bytes), seeds.content(num_bytes)][:num_streams]
    whole = b"".join(gzip.compress(each) for each in contents)
    for cut, is_whole in ((len(whole), True), (len(whole) - 1, False)):
        (tmp_path / "a.gz").write_bytes(whole[:cut])
        with ArchiveFile(tmp_path / "a.gz", "sha256") as source:
            pieces = Inflated(source, 2 * num_bytes).rest()
            if is_whole:
                assert b"".join(pieces) == b"".join(contents)
                continue
            with pytest.raises(TrainingError, match=r"`a\.gz` is cut off: its gzip stream has no"):
                b"".join(pieces)


def test_a_full_disk_is_named_and_the_same_call_goes_on(tmp_path):
    from tests.limits import largest_file

    contents = {"a.jpg": b"a" * 1000, "b.jpg": b"b" * 70_000, "c.jpg": b"c" * 1000}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with largest_file(65_536):
        with pytest.raises(
            TrainingError, match=r"cannot be written: File too large \(hint: correct"
        ):
            unpack_whole(tmp_path / "a.zip", tmp_path / "out")
    unpack_whole(tmp_path / "a.zip", tmp_path / "out")
    assert read_prepared(tmp_path / "out") == contents


@pytest.mark.parametrize(
    ("suffix", "said"),
    [("tar", "is not the archive that"), ("zip", "`a.jpg` does not match its checksum")],
)
def test_no_file_of_a_damaged_archive_stays_where_it_is_got_again(tmp_path, suffix, said):
    """A download has the server's time, so that the second copy cannot be told from the first."""
    contents = {"a.jpg": b"whole" * 1000, "b.jpg": b"b" * 70}
    archive = tmp_path / f"a.{suffix}"
    if suffix == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for name, content in contents.items():
                packed.writestr(name, content)
    else:
        folder = make_folder(tmp_path / "in", contents)
        with tarfile.open(archive, "w") as packed:
            for name in contents:
                packed.add(folder / name, name)
    whole, status = archive.read_bytes(), archive.stat()
    archive.write_bytes(whole.replace(b"wholewhole", b"wholewhale"))
    os.utime(archive, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(TrainingError, match=said):
        unpack_whole(archive, tmp_path / "out", whole)
    archive.write_bytes(whole)
    os.utime(archive, ns=(status.st_atime_ns, status.st_mtime_ns))
    unpack_whole(archive, tmp_path / "out", whole)
    assert read_prepared(tmp_path / "out") == contents
