"""Pictures come alike from class folders and from shards, and what is wrong is said by name."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path

import pytest

from trainer.common.errors import TrainingError
from trainer.data.pictures.splits import Repeated, open_pictures, open_splits

# The bytes are opaque here.
FILES = {
    "train/ants/b.JPEG": b"ant b",
    "train/ants/a.jpg": b"ant a",
    "train/bees/c.png": b"bee c",
    "val/ants/d.jpeg": b"ant d",
    "val/bees/e.JPG": b"bee e",
}


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def write_shard(path: Path, members: dict[str, bytes], **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as shard:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))


def samples(pictures) -> list[tuple[str, bytes]]:
    """Class name and content of every picture."""
    return [
        (pictures.classes[label], pictures.read(index))
        for index, label in enumerate(pictures.labels)
    ]


class TestFolders:
    def test_a_class_is_a_folder_and_pictures_come_in_the_order_of_names(self, tmp_path):
        train, val = open_splits(write_files(tmp_path, FILES))
        assert train.classes == val.classes == ("ants", "bees")
        assert samples(train) == [("ants", b"ant a"), ("ants", b"ant b"), ("bees", b"bee c")]
        assert samples(val) == [("ants", b"ant d"), ("bees", b"bee e")]
        assert train.name(1) == str(tmp_path / "train/ants/b.JPEG")

    def test_what_is_hidden_or_no_picture_is_left_out(self, tmp_path):
        odd = {"train/ants/._a.jpg": b"", "train/ants/list.txt": b"", "train/.cache/x.jpg": b""}
        write_files(tmp_path, {**FILES, **odd, "train/README.jpg": b""})
        assert len(open_pictures(tmp_path, "train").labels) == 3

    def test_what_is_left_out_of_class_folders_is_told_once(self, tmp_path, capsys):
        kinds = ["webp"] * 9 + ["TIF", "tif", "bmp", "gif", "heic", "avif"]
        more = {f"train/ants/{n}.{kind}": b"" for n, kind in enumerate(kinds)}
        more |= {
            "train/bees/far/x.jpg": b"",
            "train/ants/far/x.jpg": b"",
        }
        write_files(tmp_path, {**FILES, **more, "val/bees/x.webp": b""})
        open_splits(tmp_path)
        assert capsys.readouterr().err.splitlines() == [
            f"warning: `{tmp_path}/train`: 15 files that are neither .jpeg, .jpg nor .png "
            "(.webp 9, .tif 2, .avif 1, .bmp 1, .gif 1, others 1) and 2 folders in class folders are left out",
            f"warning: `{tmp_path}/val`: 1 file that is neither .jpeg, .jpg nor .png (.webp 1) is left out",
        ]

    def test_of_a_rank_that_does_not_print_nothing_is_told(self, tmp_path, capsys):
        write_files(tmp_path, {**FILES, "train/ants/x.webp": b""})
        open_splits(tmp_path, is_main=False)
        assert capsys.readouterr().err == ""

    def test_of_files_without_a_suffix_that_is_told(self, tmp_path):
        odd = [
            "train/ants/LICENSE",
            "train/bees/x.",
            "train/bees/x.\n",
            "train/bees/at 12.5 o'clock",
        ]
        write_files(tmp_path, {**FILES, **dict.fromkeys(odd, b"")})
        assert open_pictures(tmp_path, "train").left_out == (
            f"`{tmp_path}/train`: 4 files that are neither .jpeg, .jpg nor .png (without suffix 4) "
            "are left out"
        )

    def test_hidden_files_and_folders_are_left_out_untold(self, tmp_path, capsys):
        hidden = {"train/ants/._a.webp": b"", "train/ants/.cache/x.jpg": b""}
        open_splits(write_files(tmp_path, {**FILES, **hidden}))
        assert capsys.readouterr().err == ""

    def test_links_are_what_they_lead_to_and_one_to_itself_is_a_file(self, tmp_path):
        write_files(tmp_path, {**FILES, "far/wasps/f.jpg": b"wasp f", "far/list.txt": b""})
        links = {"train/wasps": "../far/wasps", "train/loop": "loop", "train/lost": "lo"}
        links |= {"train/ants/far": "../../far", "train/ants/loop": "loop", "train/ants/lost": "no"}
        for name, target in links.items():
            (tmp_path / name).symlink_to(target)
        pictures = open_pictures(tmp_path, "train")
        assert pictures.classes == ("ants", "bees", "wasps")
        assert ("wasps", b"wasp f") in samples(pictures)
        assert pictures.left_out == (
            f"`{tmp_path}/train`: 2 files that are neither .jpeg, .jpg nor .png (without suffix 2) "
            "and 1 folder in class folders are left out"
        )

    def test_a_name_that_is_no_utf8_is_read(self, tmp_path):
        write_files(tmp_path, FILES)
        name = os.fsdecode(b"caf\xe9.jpg")
        (tmp_path / "train" / "ants" / name).write_bytes(b"ant c")
        assert ("ants", b"ant c") in samples(open_pictures(tmp_path, "train"))

    def test_pictures_go_to_another_process_in_few_bytes(self, tmp_path):
        write_files(tmp_path, {f"train/ants/{number:05}.jpg": b"x" for number in range(2000)})
        pictures = open_pictures(tmp_path, "train")
        packed = pickle.dumps(pictures)
        assert len(packed) < 2000 * 25
        assert samples(pickle.loads(packed)) == samples(pictures)


class TestShards:
    def make(self, folder: Path, **options) -> Path:
        write_shard(
            folder / "train" / "000.tar",
            {"x/a.jpg": b"ant a", "x/a.cls": b"0\n", "b.cls": b"0", "b.JPEG": b"ant b"},
            **options,
        )
        write_shard(folder / "train" / "001.tar", {"c.png": b"bee c", "c.cls": b"1"}, **options)
        write_shard(
            folder / "val" / "000.tar",
            {"d.jpg": b"ant d", "d.cls": b"0", "e.jpg": b"bee e", "e.cls": b"1", "e.json": b"{}"},
            **options,
        )
        (folder / "classes.txt").write_text("ants\nbees\n")
        return folder

    @pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    def test_shards_give_what_folders_give(self, tmp_path, kind):
        folders = open_splits(write_files(tmp_path / "folders", FILES))
        shards = open_splits(self.make(tmp_path / "shards", format=kind))
        for one, other in zip(folders, shards, strict=True):
            assert one.classes == other.classes
            assert samples(one) == samples(other)
            assert list(one.labels) == list(other.labels)

    def test_a_member_of_a_long_name_is_found(self, tmp_path):
        name = "/".join(["n02105505 komondor"] * 12)
        write_shard(tmp_path / "train" / "0.tar", {f"{name}.jpg": b"dog", f"{name}.cls": b"0"})
        pictures = open_pictures(tmp_path, "train")
        assert samples(pictures) == [("0", b"dog")]
        assert pictures.name(0) == f"{tmp_path}/train/0.tar:{name}.jpg"

    def test_without_names_classes_are_numbers_and_a_split_may_lack_the_last(self, tmp_path):
        write_shard(tmp_path / "train" / "0.tar", {"a.jpg": b"a", "a.cls": b"2"})
        write_shard(tmp_path / "val" / "0.tar", {"a.jpg": b"a", "a.cls": b"0"})
        train, val = open_splits(tmp_path)
        assert train.classes == val.classes == ("0", "1", "2")

    @pytest.mark.parametrize(
        "names", [b"\xef\xbb\xbfants\r\nbees\r\n", b"ants\nbees\n\n \n", b"ants\nbees"]
    )
    def test_names_of_classes_have_neither_a_mark_before_nor_blank_lines_behind(
        self, tmp_path, names
    ):
        (self.make(tmp_path) / "classes.txt").write_bytes(names)
        assert open_pictures(tmp_path, "train").classes == ("ants", "bees")

    @pytest.mark.parametrize("label", [b"2", b"2\n", b" 002\r\n"])
    def test_a_label_may_have_blanks_and_zeros_around_it(self, tmp_path, label):
        write_shard(tmp_path / "train" / "0.tar", {"a.jpg": b"a", "a.cls": label})
        assert list(open_pictures(tmp_path, "train").labels) == [2]

    @pytest.mark.parametrize("num_zeros", [512, 1024, 512 + 20, 1 << 20])
    def test_a_tar_ends_with_any_number_of_zeros(self, tmp_path, num_zeros):
        path = self.make(tmp_path) / "train" / "000.tar"
        whole = path.read_bytes().rstrip(b"\0")
        path.write_bytes(whole + bytes(-len(whole) % 512 + num_zeros))
        assert len(open_pictures(tmp_path, "train").labels) == 3

    def test_hidden_members_and_folders_are_no_pictures(self, tmp_path):
        hidden = {"._a.jpg": b"", "d/._a.x.jpg": b"", "d/.cls": b"0", ".jpg": b""}
        write_shard(tmp_path / "train" / "0.tar", {"d/a.jpg": b"a", "d/a.cls": b"0", **hidden})
        with tarfile.open(tmp_path / "train" / "0.tar", "a") as shard:
            folder = tarfile.TarInfo("d.jpg")
            folder.type = tarfile.DIRTYPE
            shard.addfile(folder)
        assert samples(open_pictures(tmp_path, "train")) == [("0", b"a")]

    def test_open_files_stay_behind_when_pictures_go_to_another_process(self, tmp_path):
        pictures = open_pictures(self.make(tmp_path), "train")
        assert samples(pickle.loads(pickle.dumps(pictures))) == samples(pictures)
        assert samples(pickle.loads(pickle.dumps(pictures))) == samples(pictures)


class TestMistakes:
    def check(self, folder: Path, message: str) -> None:
        with pytest.raises(TrainingError) as error:
            open_splits(folder)
        text = str(error.value)
        assert message.replace("DIR", str(folder)) in text
        assert "hint: " in text
        assert "\n" not in text

    def test_a_folder_that_is_not_there(self, tmp_path):
        self.check(tmp_path / "none", "no folder `DIR/train`")

    def test_a_split_that_is_not_there(self, tmp_path):
        self.check(write_files(tmp_path, {"train/ants/a.jpg": b""}), "no folder `DIR/val`")

    def test_a_split_without_classes(self, tmp_path):
        write_files(tmp_path, {"train/a.jpg": b""})
        self.check(tmp_path, "`DIR/train` holds neither class folders nor tar shards")

    def test_a_class_without_pictures(self, tmp_path):
        write_files(tmp_path, {**FILES, "train/wasps/list.txt": b""})
        self.check(tmp_path, "class folder `DIR/train/wasps` holds no picture")

    def test_classes_that_differ_between_the_splits(self, tmp_path):
        write_files(tmp_path, {**FILES, "val/wasps/a.jpg": b""})
        self.check(tmp_path, "`DIR` has other classes in train than in val: wasps in one of them")

    def test_many_classes_that_differ_are_not_all_named(self, tmp_path):
        write_files(tmp_path, {**FILES, **{f"val/x{number}/a.jpg": b"" for number in range(9)}})
        self.check(tmp_path, "x0, x1, x2, x3, x4 and 4 more in one of them only")

    def test_a_picture_without_a_label(self, tmp_path):
        write_shard(tmp_path / "train" / "0.tar", {"a.jpg": b""})
        self.check(tmp_path, "`DIR/train/0.tar` has no label `a.cls` for `a.jpg`")

    def test_a_label_without_a_picture(self, tmp_path):
        members = {"a.jpg": b"", "a.cls": b"0", "d/b.webp": b"", "d/b.cls": b"0"}
        write_shard(tmp_path / "train" / "0.tar", members)
        self.check(tmp_path, "`DIR/train/0.tar` has no picture for its label `d/b.cls` (hint: ")

    @pytest.mark.parametrize("second", ["d/a.png", "./d/a.jpg"])
    def test_two_pictures_of_one_key(self, tmp_path, second):
        write_shard(tmp_path / "train" / "0.tar", {"d/a.jpg": b"", second: b"", "d/a.cls": b"0"})
        self.check(
            tmp_path, f"`DIR/train/0.tar` has two pictures of one key: `d/a.jpg`, `{second}`"
        )

    def test_a_picture_with_a_dot_in_its_key(self, tmp_path):
        members = {"a.jpg": b"", "a.cls": b"0", "scan_2021.05.JPG": b"", "scan_2021.05.cls": b"0"}
        write_shard(tmp_path / "train" / "0.tar", members)
        message = (
            "`DIR/train/0.tar:scan_2021.05.JPG` cannot be used: its suffix, `.05.JPG`, begins at"
        )
        self.check(tmp_path, message)

    @pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
    def test_a_picture_that_is_a_link(self, tmp_path, kind):
        write_shard(tmp_path / "train" / "0.tar", {"a.jpg": b"", "a.cls": b"0", "b.cls": b"0"})
        with tarfile.open(tmp_path / "train" / "0.tar", "a") as shard:
            link = tarfile.TarInfo("b.jpg")
            link.type, link.linkname = kind, "a.jpg"
            shard.addfile(link)
        self.check(tmp_path, "`DIR/train/0.tar:b.jpg` cannot be used: it is a link (hint: ")

    @pytest.mark.parametrize(
        ("label", "shown"),
        [
            (b"n01440764\n", "'n01440764'"),
            (b" ", "''"),
            (b"-1", "'-1'"),
            (b"3.0", "'3.0'"),
            (b"\xff\xfe3\0", r"'\\xff\\xfe3\x00'"),
            (b"%d" % 2**24, "'16777216'"),
            (b"%d" % 2**32, "'4294967296'"),
            (b"1" * 5000, f"'{'1' * 40}'"),
        ],
    )
    def test_a_label_that_is_no_number_of_a_class(self, tmp_path, label, shown):
        write_shard(tmp_path / "train" / "0.tar", {"a.jpg": b"", "a.cls": label})
        self.check(
            tmp_path,
            f"`DIR/train/0.tar:a.cls` holds {shown}, which is no label (hint: a number from 0 to 16,777,215)",
        )

    @pytest.mark.parametrize(
        "names", ["chien\nch\xe2t\n".encode("latin-1"), "a\n".encode("utf-16")]
    )
    def test_names_of_classes_that_are_no_utf8(self, tmp_path, names):
        write_shard(tmp_path / "train" / "0.tar", {"a.jpg": b"", "a.cls": b"0"})
        write_files(tmp_path, {"classes.txt": names})
        self.check(
            tmp_path, "`DIR/classes.txt` cannot be read: it is not UTF-8 text (hint: save it"
        )

    def test_names_of_classes_that_are_no_file(self, tmp_path):
        write_shard(tmp_path / "train" / "0.tar", {"a.jpg": b"", "a.cls": b"0"})
        (tmp_path / "classes.txt").symlink_to("classes.txt")
        self.check(tmp_path, "`DIR/classes.txt` cannot be read: Too many levels of symbolic links")

    def test_a_shard_that_is_no_tar(self, tmp_path):
        write_files(tmp_path, {"train/0.tar": b"no tar at all" * 100})
        self.check(tmp_path, "`DIR/train/0.tar` cannot be read: ")

    def test_a_member_of_a_size_below_0(self, tmp_path):
        """Python's tarfile goes back by it, and read the same members for ever."""
        path = tmp_path / "train" / "0.tar"
        write_shard(path, {"a.jpg": b"", "a.cls": b"0"})
        member = tarfile.TarInfo("b.jpg")
        member.size = -tarfile.BLOCKSIZE
        header = member.tobuf(tarfile.GNU_FORMAT)
        path.write_bytes(path.read_bytes()[: 3 * tarfile.BLOCKSIZE] + header + bytes(1024))
        self.check(tmp_path, "`DIR/train/0.tar` cannot be read: ")

    def test_a_shard_without_pictures(self, tmp_path):
        write_shard(tmp_path / "train" / "0.tar", {"a.txt": b""})
        self.check(tmp_path, "the tar shards in `DIR/train` hold no picture")

    def test_fewer_names_than_labels(self, tmp_path):
        write_shard(tmp_path / "train" / "0.tar", {"a.jpg": b"", "a.cls": b"3"})
        write_files(tmp_path, {"classes.txt": b"ants\nbees\n"})
        self.check(tmp_path, "`DIR/classes.txt` names 2 classes, but there is a label 3")

    def test_a_shard_cut_short(self, tmp_path):
        path = tmp_path / "train" / "0.tar"
        write_shard(path, {"a.cls": b"0", "a.jpg": bytes(100_000)})
        pictures = open_pictures(tmp_path, "train")
        os.truncate(path, 50_000)
        with pytest.raises(TrainingError, match="the shard ends before it") as error:
            pictures.read(0)
        assert f"{path}:a.jpg" in str(error.value)
        self.check(tmp_path, "`DIR/train/0.tar` cannot be read: unexpected end of data")

    def damaged(self, folder: Path, change) -> int:
        """A shard of ten pictures of which a part is changed; gives where the eighth's header is."""
        path = folder / "train" / "0.tar"
        members = {f"{n}.{suffix}": b"0" for n in range(10) for suffix in ("jpg", "cls")}
        write_shard(path, members)
        with tarfile.open(path) as shard:
            at = shard.getmember("7.jpg").offset
        data = bytearray(path.read_bytes())
        path.write_bytes(change(data, at))
        return at

    def test_a_shard_with_a_damaged_header_of_a_member(self, tmp_path):
        def change(data, at):
            data[at + 5] ^= 1
            return data

        at = self.damaged(tmp_path, change)
        message = f"`DIR/train/0.tar` cannot be read: it is damaged or cut off at byte {at:,}"
        self.check(tmp_path, f"{message} (hint: get the file again)")

    @pytest.mark.parametrize("more", [1, 100, 511])
    def test_a_shard_that_ends_in_a_header(self, tmp_path, more):
        at = self.damaged(tmp_path, lambda data, at: data[: at + more])
        self.check(tmp_path, f"it is damaged or cut off at byte {at:,} (hint: get the file again)")

    def test_a_shard_that_ends_between_two_members(self, tmp_path):
        at = self.damaged(tmp_path, lambda data, at: data[:at])
        message = f"`DIR/train/0.tar` cannot be read: it ends at byte {at:,} without a tar's end"
        self.check(tmp_path, f"{message} (hint: get the file again; ")
        # As the hint says for one that is known to be whole.
        path = tmp_path / "train" / "0.tar"
        os.truncate(path, path.stat().st_size + 1024)
        assert len(open_pictures(tmp_path, "train").labels) == 7

    def test_a_shard_with_zeros_in_place_of_members(self, tmp_path):
        at = self.damaged(tmp_path, lambda data, at: data[:at] + bytes(1024) + data[at + 1024 :])
        self.check(tmp_path, f"more follows after its end at byte {at:,} (hint: one tar archive")

    def test_a_shard_with_another_one_behind_it(self, tmp_path):
        self.damaged(tmp_path, lambda data, at: data + data)
        self.check(tmp_path, "`DIR/train/0.tar` cannot be read: more follows after its end at byte")

    def test_a_picture_that_went_away_is_named(self, tmp_path):
        pictures = open_pictures(write_files(tmp_path, FILES), "train")
        gone = tmp_path / "train/ants/a.jpg"
        gone.unlink()
        with pytest.raises(TrainingError, match="cannot be read: No such file") as error:
            pictures.read(0)
        assert str(gone) in str(error.value)


def test_copies_of_pictures_are_read_and_announced_as_the_pictures(tmp_path):
    pictures = open_pictures(write_files(tmp_path, FILES), "train")
    announced: list[int] = []
    copies = Repeated(pictures, 2)
    pictures.announce = announced.extend
    copies.announce([4, 1, 3, 0])
    assert announced == [1, 0]
    assert copies.labels == [*pictures.labels] * 2
    assert [copies.read(each) for each in range(6)] == [
        pictures.read(each % 3) for each in range(6)
    ]
    assert copies.name(5) == pictures.name(2)
