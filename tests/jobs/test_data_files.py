"""The local side of datasets: what they may hold, digests, and writing inside a folder only."""

from __future__ import annotations

import hashlib
import os

import pytest

from jobs.dataset_files import (
    CheckedReader,
    DatasetFile,
    check_path,
    check_space,
    digest_of,
    inside,
    scan_folder,
    write_checked,
)
from jobs.errors import EnvironmentFailure, LaunchError


def file_of(path: str, content: bytes) -> DatasetFile:
    return DatasetFile(
        path=path,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        md5=hashlib.md5(content).hexdigest(),
    )


class TestScan:
    def test_every_file_is_found_with_its_digests(self, tmp_path):
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "x").write_bytes(b"one")
        (tmp_path / "a").write_bytes(b"")
        (tmp_path / ".hidden").write_bytes(b"two")
        (tmp_path / "link").symlink_to("b/x")
        assert scan_folder(tmp_path) == [
            file_of(".hidden", b"two"),
            file_of("a", b""),
            file_of("b/x", b"one"),
            file_of("link", b"one"),
        ]

    def test_what_is_no_folder_of_files_is_refused(self, tmp_path):
        (tmp_path / "file").write_text("")
        (tmp_path / "empty").mkdir()
        with pytest.raises(LaunchError, match="does not exist"):
            scan_folder(tmp_path / "nothing")
        with pytest.raises(LaunchError, match="is a file, not a folder"):
            scan_folder(tmp_path / "file")
        with pytest.raises(LaunchError, match="holds no file"):
            scan_folder(tmp_path / "empty")

    def test_what_a_store_cannot_hold_is_refused_by_name(self, tmp_path):
        for name, make, reason in (
            ("loop", lambda path: path.symlink_to(".."), "`.*/loop` is a link to a folder"),
            ("gone", lambda path: path.symlink_to("nowhere"), "`.*/gone` is neither a file nor"),
            ("pipe", os.mkfifo, "`.*/pipe` is neither a file nor"),
            ("new\nline", lambda path: path.write_text(""), "holds a backslash or a character"),
            ("back\\slash", lambda path: path.write_text(""), "holds a backslash or a character"),
        ):
            folder = tmp_path / hashlib.md5(name.encode()).hexdigest()
            folder.mkdir()
            (folder / "good").write_text("")
            make(folder / name)
            with pytest.raises(LaunchError, match=reason):
                scan_folder(folder)

    def test_a_name_that_is_no_unicode_is_refused(self, tmp_path):
        (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"")
        with pytest.raises(LaunchError, match="a character that cannot be shown"):
            scan_folder(tmp_path)


class TestDigest:
    def test_it_is_that_of_the_sorted_lines(self):
        files = [file_of("b", b"one"), file_of("a", b"")]
        lines = "".join(
            f"{hashlib.sha256(content).hexdigest()} {len(content)} {path}\n"
            for path, content in (("a", b""), ("b", b"one"))
        )
        assert digest_of(files) == hashlib.sha256(lines.encode()).hexdigest()

    def test_names_and_contents_both_count(self):
        digests = {
            digest_of([file_of("a", b"1"), file_of("b", b"2")]),
            digest_of([file_of("a", b"2"), file_of("b", b"1")]),
            digest_of([file_of("a", b"1")]),
            digest_of([file_of("c", b"1"), file_of("b", b"2")]),
        }
        assert len(digests) == 4


class TestInside:
    @pytest.mark.parametrize(
        "path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", "a\\..\\b", "a\0b"]
    )
    def test_a_hostile_name_is_refused(self, tmp_path, path):
        with pytest.raises(LaunchError, match="cannot be used in a dataset"):
            inside(tmp_path, path)

    @pytest.mark.parametrize("path", ["a", "a/b/c", "..a/b..", "a b", "ü/日本", "-x", "a:b"])
    def test_an_odd_but_harmless_name_is_not(self, tmp_path, path):
        check_path(path)
        assert inside(tmp_path, path) == tmp_path / path

    def test_a_link_that_leads_out_is_not_followed(self, tmp_path):
        (tmp_path / "in").mkdir()
        (tmp_path / "out").mkdir()
        (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
        with pytest.raises(LaunchError, match="outside"):
            inside(tmp_path / "in", "link/x")


class TestReader:
    def test_it_gives_what_was_scanned(self, tmp_path):
        (tmp_path / "a").write_bytes(b"content")
        with CheckedReader(tmp_path / "a", file_of("a", b"content")) as reader:
            assert [reader.read(4), reader.read(4), reader.read(4)] == [b"cont", b"ent", b""]

    @pytest.mark.parametrize(
        ("now", "how"),
        [(b"CONTENT", "its content is another"), (b"con", "it became shorter")],
    )
    def test_its_last_read_fails_where_the_file_changed(self, tmp_path, now, how):
        (tmp_path / "a").write_bytes(now)
        with (
            CheckedReader(tmp_path / "a", file_of("a", b"content")) as reader,
            pytest.raises(LaunchError, match=f"changed while it was being sent: {how}"),
        ):
            list(iter(lambda: reader.read(4), b""))

    def test_what_was_added_behind_is_not_sent(self, tmp_path):
        (tmp_path / "a").write_bytes(b"content and more")
        with CheckedReader(tmp_path / "a", file_of("a", b"content")) as reader:
            assert reader.read() == b"content"

    def test_a_file_that_is_gone_is_named(self, tmp_path):
        with pytest.raises(LaunchError, match="No such file"):
            CheckedReader(tmp_path / "a", file_of("a", b"content"))


class TestWrite:
    def test_a_whole_file_gets_its_name_and_mode(self, tmp_path):
        write_checked(tmp_path / "a", [b"con", b"tent"], file_of("a", b"content"), 0o444)
        assert (tmp_path / "a").read_bytes() == b"content"
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o444

    @pytest.mark.parametrize("chunks", [[], [b"conten"], [b"c0ntent"], [b"content", b"."]])
    def test_another_content_leaves_what_was_there(self, tmp_path, chunks):
        (tmp_path / "a").write_bytes(b"before")
        with pytest.raises(EnvironmentFailure, match="`a` came from the store with another"):
            write_checked(tmp_path / "a", chunks, file_of("a", b"content"), 0o644)
        assert (tmp_path / "a").read_bytes() == b"before"
        assert [path.name for path in tmp_path.iterdir()] == ["a"]

    def test_a_link_is_replaced_not_followed(self, tmp_path):
        (tmp_path / "out").write_bytes(b"before")
        (tmp_path / "a").symlink_to("out")
        write_checked(tmp_path / "a", [b"content"], file_of("a", b"content"), 0o644)
        assert (tmp_path / "out").read_bytes() == b"before"
        assert not (tmp_path / "a").is_symlink()


def test_a_disk_without_room_is_named_before_anything_is_written(tmp_path):
    with pytest.raises(EnvironmentFailure, match=r"`d@1` needs 1000000.0 TB in .* are free"):
        check_space(tmp_path, 10**18, "`d@1`")
    check_space(tmp_path, 0, "`d@1`")
