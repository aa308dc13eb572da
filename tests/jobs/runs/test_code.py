"""The copy of the code that travels: what is ignored is not even looked at, links never trap."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import IO, Any

import pytest

from jobs.contracts.errors import LaunchError, NotFound
from jobs.rank.folder import copy_tree
from jobs.runs.code import FETCHED, Snapshot, measure, snapshot


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def copied(target: Path) -> list[str]:
    return sorted(
        each.relative_to(target).as_posix()
        for each in target.rglob("*")
        if each.is_symlink() or not each.is_dir()
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


def test_ignore_files_are_honoured_at_every_depth(source: Path, tmp_path: Path) -> None:
    write(
        source,
        {
            ".gitignore": "*.log\n/build/\ndata/*\n!data/keep.txt\n",
            ".launchignore": "notebooks/\n!important.log\n",
            "train.py": "",
            "a.log": "",
            "important.log": "",
            "build/x": "",
            "inner/build/x": "",
            "data/big": "",
            "data/keep.txt": "",
            "notebooks/n": "",
            # A byte order mark and line ends of Windows, as git reads them.
            "windows/.gitignore": "\ufeffdata/\r\n*.pem\r\n",
            "windows/data/x.bin": "",
            "windows/key.pem": "",
            "inner/.gitignore": "!b.log\nlocal\n",
            "inner/b.log": "",
            "inner/local": "",
            "local": "",
        },
    )
    snapshot(source, tmp_path / "copy")
    assert copied(tmp_path / "copy") == [
        ".gitignore",
        ".launchignore",
        "data/keep.txt",
        "important.log",
        "inner/.gitignore",
        "inner/b.log",
        "inner/build/x",
        "local",
        "train.py",
        "windows/.gitignore",
    ]


def test_ignored_folders_are_never_listed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source, {".gitignore": "ignored/\n", ".git/x": "", "a/b/c.py": "", "ignored/d/e": ""})
    listed: list[str] = []
    scandir = os.scandir

    def counting(path: str | Path) -> object:
        listed.append(Path(path).relative_to(source).as_posix())
        return scandir(path)

    monkeypatch.setattr("jobs.runs.code.os.scandir", counting)
    snapshot(source, tmp_path / "copy", exclude=(source / "workspace",))
    assert sorted(listed) == [".", "a", "a/b"]


def test_links_to_what_travels_stay_links_and_others_are_named(
    source: Path, tmp_path: Path
) -> None:
    write(
        source,
        {
            ".gitignore": "*.env\nbuild/\n",
            "a/real.py": "inside",
            "job.env": "",
            "build/x.py": "",
            "through/real.py": "",
        },
    )
    write(tmp_path / "outside", {"lib.py": "from outside", "folder/x": ""})
    inside = {
        "a/loop": "..",
        "a/alias.py": "real.py",
        "twice.py": "a/alias.py",
        "by-name.py": "../source/a/real.py",
        "absolute": str(source / "a"),
    }
    elsewhere = {
        "self": "self",
        "dangling": "nowhere",
        "lib.py": "../outside/lib.py",
        "outside": "../outside/folder",
        "ignored": "job.env",
        "ignored-folder.py": "build/x.py",
        "repository": ".git/config",
    }
    write(source, {".git/config": ""})
    for link, aim in (inside | elsewhere).items():
        (source / link).symlink_to(aim)
    made = snapshot(source, tmp_path / "copy")
    assert sorted(made.left_out) == sorted(elsewhere)
    found = {each: (tmp_path / "copy" / each).readlink().as_posix() for each in inside}
    assert found == {
        "a/loop": "..",
        "a/alias.py": "real.py",
        "twice.py": "a/real.py",
        "by-name.py": "a/real.py",
        "absolute": "a",
    }
    assert copied(tmp_path / "copy") == sorted(
        [".gitignore", "a/real.py", "through/real.py", *inside]
    )


def test_a_named_part_that_is_a_link_travels_from_inside_only(source: Path, tmp_path: Path) -> None:
    write(source, {"src/lib/a.py": "", "src/b.py": ""})
    write(tmp_path / "outside", {"a.py": ""})
    (source / "lib").symlink_to("src/lib")
    (source / "away").symlink_to(tmp_path / "outside")
    snapshot(source, tmp_path / "copy", only=("lib",))
    assert copied(tmp_path / "copy") == ["lib/a.py"]
    with pytest.raises(LaunchError, match=r"`away` in .* is a link to a place outside it"):
        snapshot(source, tmp_path / "again", only=("away",))


def test_what_would_be_copied_is_measured(source: Path, tmp_path: Path) -> None:
    write(source, {"a.py": "abc", "b/c.py": "de", "x.log": "no", ".gitignore": "*.log"})
    (source / "link").symlink_to("a.py")
    (source / "away").symlink_to("/etc/hostname")
    measured = measure(source)
    assert measured == Snapshot(num_files=4, bytes=10, left_out=("away",))
    assert snapshot(source, tmp_path / "copy") == measured


def test_holes_stay_holes_and_no_file_is_shared(source: Path, tmp_path: Path) -> None:
    with (source / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 30)
        file.write(b"middle")
        file.truncate(2 << 30)
    write(source, {"small": "text", "empty": ""})
    snapshot(source, tmp_path / "copy")
    copy_tree(str(tmp_path / "copy"), str(tmp_path / "node"))
    for folder in ("copy", "node"):
        status = (tmp_path / folder / "sparse").stat()
        assert (status.st_size, status.st_nlink) == (2 << 30, 1)
        assert status.st_blocks * 512 < 1 << 20
        with (tmp_path / folder / "sparse").open("rb") as file:
            assert file.read(6) == b"begin\0"
            file.seek((1 << 30) - 1)
            assert file.read(8) == b"\0middle\0"
        assert (tmp_path / folder / "small").read_text() == "text"
        assert (tmp_path / folder / "empty").read_text() == ""


def test_blocks_are_shared_where_the_disk_can(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source, {"a.py": "text"})

    def clone(target: int, request: int, aim: int) -> None:
        assert request == 0x40049409  # FICLONE
        os.write(target, b"shared " + os.read(aim, 100))

    monkeypatch.setattr("fcntl.ioctl", clone)
    snapshot(source, tmp_path / "copy")
    copy_tree(str(tmp_path / "copy"), str(tmp_path / "node"))
    assert (tmp_path / "copy/a.py").read_text() == "shared text"
    assert (tmp_path / "node/a.py").read_text() == "shared shared text"


def test_pipes_and_sockets_are_no_code(source: Path, tmp_path: Path) -> None:
    write(source, {"a.py": ""})
    os.mkfifo(source / "pipe")
    assert snapshot(source, tmp_path / "copy") == Snapshot(num_files=1, bytes=0, left_out=())


def test_file_that_nobody_may_read_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = write(source, {"a.py": "", "secret.key": "k"}) / "secret.key"
    opened = Path.open

    def guarded(path: Path, *arguments: Any, **options: Any) -> IO[Any]:
        if path == secret:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", guarded)
    with pytest.raises(LaunchError) as caught:
        snapshot(source, tmp_path / "copy")
    message = f"cannot read `{secret}`, which belongs to the job's code: Permission denied"
    assert (caught.value.message, caught.value.hint) == (message, "add it to .launchignore")


@pytest.mark.parametrize("folder", ["", "z/"])
@pytest.mark.parametrize("gone", ["b.tmp", "b/"])
def test_what_vanishes_while_it_is_copied_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, gone: str
) -> None:
    write(source, {f"{folder}a.py": "", f"{folder}b.tmp": "", f"{folder}b/c": ""})
    path = source / f"{folder}{gone}"

    def copy(*_: int) -> None:
        if gone == "b.tmp":
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)

    monkeypatch.setattr("jobs.runs.code.copy_content", copy)
    with pytest.raises(LaunchError) as caught:
        snapshot(source, tmp_path / "copy")
    why = "which belongs to the job's code: No such file or directory"
    hint = "try again; if it comes and goes, add it to .launchignore"
    assert (caught.value.message, caught.value.hint) == (f"cannot read `{path}`, {why}", hint)


def test_modes_times_and_empty_folders_travel(source: Path, tmp_path: Path) -> None:
    script = write(source, {"run.sh": "#!/bin/sh\n"}) / "run.sh"
    script.chmod(0o500)
    os.utime(script, ns=(10**18, 10**18 + 7))
    (source / "empty").mkdir()
    snapshot(source, tmp_path / "copy")
    status = (tmp_path / "copy/run.sh").stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o700, 10**18 + 7)
    assert (tmp_path / "copy/empty").is_dir()


def test_local_secrets_and_repositories_never_travel(source: Path, tmp_path: Path) -> None:
    write(source, {".secrets.env": "A=b", ".git/config": "", "x/__pycache__/a.pyc": "", "a.py": ""})
    snapshot(source, tmp_path / "copy")
    assert copied(tmp_path / "copy") == ["a.py"]


def test_rules_above_the_code_in_its_repository_count(source: Path, tmp_path: Path) -> None:
    write(source, {".gitignore": "secret.txt\n/job/out\n", "job/a.py": "", "job/secret.txt": ""})
    write(source, {"job/out/x": "", ".git/HEAD": ""})
    snapshot(source / "job", tmp_path / "copy")
    assert copied(tmp_path / "copy") == ["a.py"]


def test_workspace_inside_the_code_is_left_out(source: Path, tmp_path: Path) -> None:
    write(source, {"a.py": "", "workspace/runs/x": ""})
    (source / "workspace/runs/new").mkdir()
    snapshot(source, source / "workspace/runs/new/code", exclude=(source / "workspace",))
    assert copied(source / "workspace/runs/new/code") == ["a.py"]


def test_what_was_fetched_into_a_part_of_the_code_is_left_out_and_said(
    source: Path, tmp_path: Path
) -> None:
    own = {"train.py": "", "model/__init__.py": "", "model/inner/logs/a.py": ""}
    write(source, own)
    before = snapshot(source, tmp_path / "before")
    made = ("outputs/model", "logs/rank-00000.log", "metrics.jsonl", ".summary.json.1a.part")
    for folder in ("", "model/", "results/"):
        write(source, {f"{folder}{name}": "made" for name in (*made, FETCHED)})
    after = snapshot(source, tmp_path / "after")
    assert set(after.left_out) == {"outputs/", "logs/", "model/outputs/", "model/logs/", "results/"}
    assert (after.num_files, after.bytes) == (before.num_files, before.bytes)
    assert copied(tmp_path / "after") == sorted(own)
    assert not (tmp_path / "after/results").exists()


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_outputs_of_the_code_are_left_out_and_said_as_ranks_have_the_runs(
    source: Path, tmp_path: Path, kind: str
) -> None:
    own = {"train.py": "", "model/outputs/heads.py": ""}
    write(source, own)
    if kind == "folder":
        write(source, {"outputs/2026-11-27/log.txt": "x" * 1000})
    elif kind == "file":
        (source / "outputs").touch()
    else:
        (source / "outputs").symlink_to("model")
    assert snapshot(source, tmp_path / "copy") == Snapshot(
        num_files=2, bytes=0, left_out=("outputs/" if kind == "folder" else "outputs",)
    )
    assert copied(tmp_path / "copy") == sorted(own)
    copy_tree(str(tmp_path / "copy"), str(tmp_path / "node"))
    assert copied(tmp_path / "node") == sorted(own)


def test_outputs_that_an_ignore_file_names_are_not_worth_a_word(source: Path) -> None:
    write(source, {"train.py": "", "outputs/log.txt": "", ".launchignore": "/outputs/\n"})
    assert measure(source).left_out == ()


def test_only_what_is_named_travels(source: Path, tmp_path: Path) -> None:
    write(
        source, {"trainer/a.py": "", "trainer/x.log": "", "other/b.py": "", ".gitignore": "*.log"}
    )
    snapshot(source, tmp_path / "copy", only=("trainer",))
    assert copied(tmp_path / "copy") == ["trainer/a.py"]
    with pytest.raises(NotFound, match="there is no `nowhere` in"):
        snapshot(source, tmp_path / "again", only=("nowhere",))


def test_code_that_is_no_folder_is_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        snapshot(source / "nowhere", tmp_path / "copy")
    assert caught.value.message == f"`code: {source}/nowhere` is not a folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_unreadable_folder_is_named_with_the_way_out(source: Path, tmp_path: Path) -> None:
    (source / "closed").mkdir(mode=0)
    with pytest.raises(LaunchError) as caught:
        snapshot(source, tmp_path / "copy")
    assert caught.value.hint == "add it to .launchignore"
