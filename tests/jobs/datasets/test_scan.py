"""Scans: what did not change is not read again, and nothing that did is taken for known."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.contracts.errors import LaunchError
from jobs.datasets import scan as dataset_scan
from jobs.datasets import scan_cache as scan_state
from jobs.datasets.scan import digest_blocks, scan, scan_these
from jobs.datasets.scan_cache import ScanState, cache_folder, lock_work, state_file, sweep
from jobs.datasets.walk import walk
from tests.busy import HANG_S
from tests.folders import make_folder

pytestmark = pytest.mark.usefixtures("own_cache")

OLD_S = 10


@pytest.fixture
def folder(tmp_path) -> Path:
    return make_folder(tmp_path / "folder", {"a": b"one", "sub/b": b"", "sub/c": b"three"})


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """The files that are read, while time has gone on since they were written."""
    read, found, now = dataset_scan._read, [], time.time_ns

    def note(root, each, stop, **options):
        found.append(each.path)
        return read(root, each, stop, **options)

    monkeypatch.setattr(dataset_scan, "_read", note)
    monkeypatch.setattr(time, "time_ns", lambda: now() + OLD_S * 10**9)
    return found


def digests(folder: Path) -> dict[str, tuple[str, str]]:
    with ScanState.of(folder) as state:
        return {each.path: (each.sha256.hex(), each.md5.hex()) for each in scan(folder, state)}


def expected(contents: dict[str, bytes]) -> dict[str, tuple[str, str]]:
    return {
        path: (hashlib.sha256(content).hexdigest(), hashlib.md5(content).hexdigest())
        for path, content in contents.items()
    }


class TestKnown:
    def test_an_unchanged_file_is_read_once(self, folder, reads):
        first = digests(folder)
        assert first == expected({"a": b"one", "sub/b": b"", "sub/c": b"three"})
        assert reads == ["a", "sub/b", "sub/c"]
        assert digests(folder) == first
        assert len(reads) == 3

    @pytest.mark.parametrize(
        "change",
        [
            lambda path: path.write_bytes(b"two"),
            lambda path: path.write_bytes(b"longer"),
            lambda path: (path.unlink(), path.write_bytes(b"two")),
            lambda path: path.chmod(0o600),
            lambda path: (path.rename(path.with_name("x")), path.write_bytes(b"new")),
        ],
        ids=["content", "length", "replaced", "mode", "renamed"],
    )
    def test_a_changed_file_is_read_again(self, folder, reads, change):
        digests(folder)
        reads.clear()
        change(folder / "a")
        content = (folder / "a").read_bytes()
        assert digests(folder)["a"] == expected({"a": content})["a"]
        assert "a" in reads
        assert "sub/c" not in reads

    def test_a_change_that_keeps_length_and_mtime_is_noticed(self, folder, reads):
        digests(folder)
        status = (folder / "a").stat()
        (folder / "a").write_bytes(b"two")
        os.utime(folder / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
        assert digests(folder)["a"] == expected({"a": b"two"})["a"]

    def test_a_file_that_was_young_when_it_was_read_is_read_again(self, folder, monkeypatch):
        reads = []
        read = dataset_scan._read
        monkeypatch.setattr(
            dataset_scan, "_read", lambda *a, **k: reads.append(a[1].path) or read(*a, **k)
        )
        now = time.time_ns
        digests(folder)
        digests(folder)
        assert len(reads) == 6  # within 2 s of its writing nobody knows
        monkeypatch.setattr(time, "time_ns", lambda: now() + OLD_S * 10**9)
        digests(folder)
        assert len(reads) == 9
        digests(folder)
        assert len(reads) == 9

    def test_files_that_went_are_forgotten_and_new_ones_found(self, folder, reads):
        digests(folder)
        (folder / "sub" / "b").unlink()
        make_folder(folder, {"0": b"first", "sub/b2": b"", "z": b"last"})
        reads.clear()
        assert list(digests(folder)) == ["0", "a", "sub/b2", "sub/c", "z"]
        assert reads == ["0", "sub/b2", "z"]
        rows = sqlite3.connect(state_file(folder)).execute("SELECT path FROM files").fetchall()
        assert [path for (path,) in rows] == ["0", "a", "sub/b2", "sub/c", "z"]

    def test_without_md5_for_a_pull_is_not_enough_for_a_push(self, folder, reads):
        with ScanState.of(folder) as state:
            found = list(scan_these(folder, walk(folder), state))
        assert [each.sha256.hex() for each in found] == [
            pair[0] for pair in digests(folder).values()
        ]
        assert all(each.md5 == b"" for each in found)
        assert len(reads) == 6
        with ScanState.of(folder) as state:
            assert len(list(scan_these(folder, walk(folder), state))) == 3
        assert len(reads) == 6


class TestState:
    def test_one_that_is_damaged_is_begun_anew(self, folder, reads):
        digests(folder)
        for damage in (b"", b"nonsense" * 1000, state_file(folder).read_bytes()[:5000]):
            state_file(folder).write_bytes(damage)
            assert list(digests(folder)) == ["a", "sub/b", "sub/c"]
            count = len(reads)
            digests(folder)
            assert len(reads) == count

    def test_one_that_is_damaged_inside_is_begun_anew_too(self, tmp_path, reads):
        contents = {f"{number:04}": str(number).encode() for number in range(2500)}
        folder = make_folder(tmp_path / "many", contents)
        digests(folder)
        with state_file(folder).open("r+b") as file:
            file.seek(8192)
            file.write(b"\xff" * 200_000)
        for _ in range(3):
            reads.clear()
            assert digests(folder) == expected(contents)
        assert reads == []

    def test_one_that_cannot_be_kept_costs_only_reading(self, folder, monkeypatch, tmp_path):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        assert list(digests(folder)) == ["a", "sub/b", "sub/c"]

    def test_one_of_a_newer_layout_is_begun_anew(self, folder, reads):
        digests(folder)
        with sqlite3.connect(state_file(folder)) as database:
            database.execute("PRAGMA user_version = 99")
        assert list(digests(folder)) == ["a", "sub/b", "sub/c"]
        assert len(reads) == 6

    def test_many_scans_at_once_agree(self, tmp_path):
        contents = {f"{number:04}": str(number).encode() for number in range(1500)}
        folder = make_folder(tmp_path / "many", contents)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: digests(folder), range(4)))
        assert all(each == expected(contents) for each in found)

    def test_a_killed_scan_keeps_what_it_read(self, tmp_path, reads):
        folder = make_folder(tmp_path / "many", {f"{n:04}": b"" for n in range(3000)})
        state = ScanState.of(folder)
        for number, _ in enumerate(scan(folder, state)):
            if number == 2700:
                break
        del state  # no `with`: as a kill leaves it
        reads.clear()
        assert len(digests(folder)) == 3000
        assert len(reads) <= 1000

    def test_what_killed_commands_left_is_swept_when_it_is_old(self, folder):
        digests(folder)
        cache = cache_folder()
        past = time.time() - 100 * 86400
        for name in ("work-left", "work-bare", "work-new", "work-used"):
            (cache / name).mkdir()
        for name in ("work-left", "work-new"):
            lock_work(cache / name).close()
        (cache / "old.sqlite").write_text("")
        with lock_work(cache / "work-used"):
            for name in ("work-left", "work-bare", "work-used", "old.sqlite"):
                os.utime(cache / name, (past, past))
            sweep()
        assert {path.name for path in cache.iterdir()} == {
            "work-new",
            "work-used",
            state_file(folder).name,
        }

    def test_it_lies_where_the_cache_is_asked_for(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert state_file(Path("x")).parent == tmp_path / "trainyard" / "scans"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        assert cache_folder() == Path.home() / ".cache" / "trainyard" / "scans"


def test_ctrl_c_does_not_wait_for_the_end_of_a_large_file(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "folder", {"a": b"1", "endless": b"2"})
    read, begun = os.read, threading.Event()

    def endless(descriptor: int, size: int) -> bytes:
        chunk = read(descriptor, size)
        if chunk == b"2":
            begun.set()
            os.lseek(descriptor, 0, os.SEEK_SET)
        return chunk

    monkeypatch.setattr(dataset_scan, "_CHUNK_FILES", 1)
    monkeypatch.setattr(os, "read", endless)
    with ScanState.of(folder) as state:
        files = scan(folder, state)
        assert next(files).path == "a"
        assert begun.wait(HANG_S)
        files.close()  # as an exception on its way does


def test_a_file_that_changes_while_it_is_read_is_named(folder, monkeypatch):
    read = os.read

    def write_then_read(descriptor: int, size: int) -> bytes:
        chunk = read(descriptor, size)
        if chunk == b"three":
            (folder / "sub" / "c").write_bytes(b"THREE and more")
        return chunk

    monkeypatch.setattr(os, "read", write_then_read)
    with pytest.raises(LaunchError, match=r"`.*/sub/c` changed while it was being read"):
        digests(folder)


def test_an_empty_folder_and_an_unreadable_file_are_named(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LaunchError, match="holds no file"):
        digests(tmp_path / "empty")
    folder = make_folder(tmp_path / "folder", {"secret": b"1"})
    opened = os.open

    def refuse(path, *arguments, **options):
        if str(path).endswith("/secret"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LaunchError, match=r"`.*/secret` cannot be read: Permission denied"):
        digests(folder)


def test_memory_does_not_grow_with_the_number_of_files(tmp_path, monkeypatch):
    # So that few files already fill what may be in memory.
    monkeypatch.setattr(dataset_scan, "_CHUNK_FILES", 8)
    monkeypatch.setattr(scan_state, "_PAGE", 100)
    monkeypatch.setattr(scan_state, "_COMMIT_ROWS", 100)
    peaks = []
    for number in (300, 1_200):
        folder = tmp_path / str(number)
        names = {f"{at // 100:03}/{at % 100:03}": b"" for at in range(number)}
        make_folder(folder, names)
        for _ in range(2):  # read, then known
            tracemalloc.start()
            with ScanState.of(folder) as state:
                assert sum(1 for _ in scan(folder, state)) == number
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert max(peaks[2:]) <= 1.2 * max(peaks[:2]) + 20_000, peaks


class _Digest:
    """A digest that can be updated only while two others are."""

    def __init__(self, together: threading.Barrier) -> None:
        self._together = together
        self.num_updates = 0

    def update(self, _chunk: bytes) -> None:
        self.num_updates += 1
        self._together.wait(timeout=HANG_S)

    def digest(self) -> bytes:
        return b"%d" % self.num_updates


class TestLargeFiles:
    def test_three_digests_are_found_at_once_of_few_chunks(self, monkeypatch):
        together = threading.Barrier(3)
        made: list[_Digest] = []

        def begin(**_options: object) -> _Digest:
            made.append(_Digest(together))
            return made[-1]

        monkeypatch.setattr(hashlib, "sha256", begin)
        monkeypatch.setattr(hashlib, "md5", begin)
        num_ahead: list[int] = []

        def chunks():
            for number in range(100):
                yield b"chunk"
                num_ahead.append(number + 1 - min(each.num_updates for each in made))

        assert digest_blocks(chunks()) == (b"100", b"100", b"100", 500)
        # Of those that are ahead, one is being hashed, which the digests count already.
        assert max(num_ahead) <= dataset_scan._CHUNKS_AHEAD + 1
