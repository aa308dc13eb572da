"""The local side of datasets: which files, in which order, and none outside their folder."""

from __future__ import annotations

import hashlib
import os

import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError
from jobs.datasets import scan as dataset_scan
from jobs.datasets.paths import Inside, case_clash, check_path, check_space, folds_case
from jobs.datasets.scan import digest_blocks
from jobs.datasets.walk import Found, walk, walk_names
from tests import seeds
from tests.folders import make_folder


class TestWalk:
    def test_files_come_by_whole_path_as_a_store_lists_them(self, tmp_path):
        paths = ["a-b", "a.b", "a/b", "a/b-", "a/c/d", "a0", "ab/c", "b", "ä", "日/本", "😀", ".h"]
        make_folder(tmp_path, {path: path.encode() for path in paths})
        found = list(walk(tmp_path))
        assert [each.path for each in found] == sorted(paths)
        assert [each.path.encode() for each in found] == sorted(path.encode() for path in paths)
        status = (tmp_path / "a0").stat()
        assert next(each for each in found if each.path == "a0") == Found(
            "a0", 2, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
        )

    def test_any_tree_comes_in_order(self, tmp_path):
        draw = seeds.dice(7)
        letters = "ab-./0ü"
        for number in range(300):
            path = "".join(draw.choices(letters, k=draw.randint(1, 9)))
            parts = [f"{part.strip('.')}x" for part in path.split("/")]
            try:
                make_folder(tmp_path, {"/".join(parts): str(number).encode()})
            except (FileExistsError, IsADirectoryError, NotADirectoryError):
                continue
        found = [each.path for each in walk(tmp_path)]
        assert found == sorted(found)
        assert len(found) > 150

    def test_a_link_to_a_file_is_its_content(self, tmp_path):
        make_folder(tmp_path, {"b/x": b"one"})
        (tmp_path / "link").symlink_to("b/x")
        assert [(each.path, each.bytes) for each in walk(tmp_path)] == [("b/x", 3), ("link", 3)]

    def test_what_is_no_folder_is_refused(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(LaunchError, match="does not exist"):
            list(walk(tmp_path / "nothing"))
        with pytest.raises(LaunchError, match="is a file, not a folder"):
            list(walk(tmp_path / "file"))

    def test_what_a_store_cannot_hold_is_refused_by_name(self, tmp_path):
        for name, make, reason in (
            ("loop", lambda path: path.symlink_to(".."), "`.*/loop` is a link to a folder"),
            ("gone", lambda path: path.symlink_to("nowhere"), "`.*/gone` is neither a file nor"),
            ("pipe", os.mkfifo, "`.*/pipe` is neither a file nor"),
        ):
            folder = tmp_path / hashlib.md5(name.encode()).hexdigest()
            folder.mkdir()
            (folder / "good").write_text("")
            make(folder / name)
            with pytest.raises(LaunchError, match=reason):
                list(walk(folder))

    def test_names_that_only_case_parts_are_warned_of(self, tmp_path):
        warned: list[str] = []
        make_folder(tmp_path, {"x/A/1": b"", "x/a/2": b"", "y/B": b"", "y/c": b""})
        assert len(list(walk(tmp_path, warned.append))) == 4
        assert [text.partition(":")[0] for text in warned] == [
            "`x/A/` and `x/a/` are the same name on macOS and Windows"
        ]

    def test_names_alone_come_with_folders_and_links_are_not_followed(self, tmp_path):
        make_folder(tmp_path, {"a/b": b"", "a-": b""})
        (tmp_path / "up").symlink_to("..")
        (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"")
        assert list(walk_names(tmp_path)) == [
            ("a-", False),
            ("a", True),
            ("a/b", False),
            ("up", False),
            ("\udcff", False),
        ]


class TestInside:
    def test_a_link_that_leads_out_is_not_followed(self, tmp_path):
        (tmp_path / "in").mkdir()
        (tmp_path / "out").mkdir()
        (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
        inside = Inside(tmp_path / "in")
        assert inside.place("a/b") == tmp_path / "in" / "a" / "b"
        with pytest.raises(LaunchError, match="outside"):
            inside.place("link/x")

    @pytest.mark.parametrize("path", ["a", "a/b/c", "..a/b..x", "a b", "ü/日本", "-x", "a:b", "x."])
    def test_an_odd_but_harmless_name_is_fine(self, tmp_path, path):
        if path == "x.":
            with pytest.raises(LaunchError, match="ends with a dot"):
                check_path(path)
            return
        check_path(path)
        assert Inside(tmp_path).place(path) == tmp_path / path


class TestCase:
    @pytest.mark.parametrize(
        ("paths", "clash"),
        [
            (["a", "b/a", "b/c/a", "c/a"], None),
            (["A", "a"], ("A", "a")),
            (["A/x", "a/y"], ("A", "a/y")),
            (["d/A/x", "d/b", "d/a/y"], ("d/A", "d/a/y")),
            (["d/A", "e/a", "f/A"], None),
            (["STRASSE", "straße"], ("STRASSE", "straße")),
        ],
    )
    def test_two_names_for_one_file_are_found(self, paths, clash):
        assert case_clash(iter(paths)) == clash

    def test_this_disk_is_asked(self, tmp_path):
        (tmp_path / "a").write_text("")
        assert folds_case(tmp_path) == (tmp_path / "A").exists()
        assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("piece", [1000, 1024, 3000, 10**6])
@pytest.mark.parametrize("size", [0, 1, 1024, 2048, 5000, 15_000])
def test_digests_are_those_of_the_whole_and_of_each_block(monkeypatch, size, piece):
    monkeypatch.setattr(dataset_scan, "BLOCK_BYTES", 1024)
    whole = seeds.content(size)
    blocks = [whole[at : at + 1024] for at in range(0, size, 1024)]
    found = digest_blocks(whole[at : at + piece] for at in range(0, size, piece))
    assert found == (
        hashlib.sha256(whole).digest(),
        hashlib.md5(whole).digest(),
        b"".join(hashlib.md5(block).digest() for block in blocks),
        size,
    )


def test_a_disk_without_room_is_named_before_anything_is_written(tmp_path):
    with pytest.raises(EnvironmentFailure, match=r"`d@1` needs 1000000.0 TB in .* are free"):
        check_space(tmp_path, 10**18, "`d@1`")
    check_space(tmp_path, 0, "`d@1`")
