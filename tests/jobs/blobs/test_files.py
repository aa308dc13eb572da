"""Files sent and received over real HTTP: whole, resumed after a kill, damaged, changed, refused."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.blobs.concurrency import NUM_REQUESTS
from jobs.blobs.files import BLOCK_BYTES, Incoming, Outgoing
from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from tests import seeds
from tests.busy import HANG_S, wait_until
from tests.fakes.http_blobs import HttpBlobs
from tests.fakes.scripted_server import CLOSE, Asked, answer
from tests.fakes.transfers import (
    LARGE,
    TWO_BLOCKS,
    Moved,
    contents_of_all_sizes,
    incoming,
    outgoing,
    store_of,
)
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("quick", "leaves_nothing_open")
REPO = Path(__file__).parents[3]


def check_there_and_back(blobs: HttpBlobs, tmp_path: Path) -> None:
    contents = contents_of_all_sizes()
    source, target = make_folder(tmp_path / "from", contents), tmp_path / "to"
    total = sum(map(len, contents.values()))
    store, moved = store_of(blobs.url), Moved()
    store.send((outgoing(source / name, f"set/{name}") for name in contents), moved)
    assert blobs.blobs == {f"set/{name}": content for name, content in contents.items()}
    assert (moved.files, moved.bytes) == (len(contents), total)

    moved = Moved()
    files = [incoming(each, target / name, f"set/{name}") for name, each in contents.items()]
    store.receive(files, moved)
    assert read_folder(target) == contents
    assert (moved.files, moved.bytes) == (len(contents), total)
    assert {path.stat().st_mode & 0o777 for path in target.rglob("*") if path.is_file()} == {0o444}


def test_files_of_all_sizes_go_and_come_back(blobs, tmp_path):
    check_there_and_back(blobs, tmp_path)
    assert blobs.asked == {
        # Those over 1 MiB go in blocks, which need not be in memory whole.
        "PUT blob": 2,
        "GET blocklist": 3,
        "PUT block": 6,
        "PUT blocklist": 3,
        # An empty one has no range: it is asked for again, whole.
        "GET blob": 4 + 5,
    }


def test_a_store_in_trouble_gets_it_all_in_the_end(blobs, tmp_path):
    """Every third request fails, in one of six ways."""
    ways = [answer(500), answer(503, Retry_After="0"), answer(429), CLOSE, b"HTTP/1.1 2" + CLOSE]
    count = 0

    def trouble(_kind: str, _asked: Asked) -> bytes | None:
        nonlocal count
        count += 1
        return ways[count % len(ways)] if count % 3 == 0 else None

    blobs.hook = trouble
    check_there_and_back(blobs, tmp_path)


def test_files_are_taken_as_connections_come_free(blobs, tmp_path):
    source = make_folder(tmp_path / "from", {f"{number:03}": b"x" for number in range(300)})
    taken = 0
    most = 0
    done = Moved()

    def files() -> Iterable[Outgoing]:
        nonlocal taken, most
        for path in sorted(source.iterdir()):
            taken += 1
            most = max(most, taken - len(blobs.blobs))
            yield outgoing(path, path.name)

    store_of(blobs.url).send(files(), done)
    assert (len(blobs.blobs), done.files) == (300, 300)
    assert most <= NUM_REQUESTS * 2 + 20


def test_bandwidth_is_kept(blobs, tmp_path):
    source = make_folder(tmp_path / "from", {str(number): bytes(50_000) for number in range(8)})
    files = [outgoing(path, path.name) for path in source.iterdir()]
    store = store_of(blobs.url)
    began = time.monotonic()
    store.send(files, Moved(), max_bytes_per_s=1_000_000)
    # The last piece goes when its turn has come, not after it.
    assert time.monotonic() - began > 0.3
    began = time.monotonic()
    targets = [incoming(bytes(50_000), tmp_path / "to" / file.name, file.name) for file in files]
    store.receive(targets, Moved(), max_bytes_per_s=1_000_000)
    assert time.monotonic() - began > 0.3
    assert read_folder(tmp_path / "to") == read_folder(source)


# --- Kills ----------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from tests.fakes.transfers import incoming, outgoing, store_of
way, url, source, target = sys.argv[1:]
if way == "send":
    store_of(url).send([outgoing(Path(source), "large")], lambda *_: None)
else:
    file = incoming(Path(source).read_bytes(), Path(target), "large")
    store_of(url).receive([file], lambda *_: None)
"""


def kill_at(blobs: HttpBlobs, kind: str, num_answered: int, arguments: list[str]) -> None:
    """Run a transfer in a process; kill -9 it when so many answers of a kind were given."""
    reached, over = threading.Event(), threading.Event()
    count = 0
    lock = threading.Lock()

    def num_staged() -> int:
        return len(blobs.blocks.get("large", {}))

    def num_noted() -> int:
        journals = Path(arguments[3]).parent.glob("*.ranges")
        return sum(path.read_bytes().count(b"\n") for path in journals)

    def stop_there(asked_kind: str, _asked: Asked) -> bytes | None:
        nonlocal count
        with lock:
            count += asked_kind == kind
            is_late = count > num_answered
        if is_late:
            reached.set()
            over.wait(HANG_S)
            return CLOSE
        return None

    blobs.hook = stop_there
    process = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], cwd=REPO)
    try:
        assert reached.wait(HANG_S)
        # What was answered must have been kept: by the store, or by the client.
        kept = num_staged if arguments[0] == "send" else num_noted
        wait_until(lambda: kept() == num_answered, what=kept)
    finally:
        process.kill()
        assert process.wait() == -signal.SIGKILL
        over.set()
    # What the process had sent before its end is refused, too.
    blobs.server.wait_until_hung_up()
    blobs.hook = lambda _kind, _asked: None
    blobs.asked.clear()


def cut_off(blobs: HttpBlobs, file: Incoming, num_answered: int) -> None:
    """Leave of a download what was answered before the store refused the rest."""
    left = num_answered
    lock = threading.Lock()

    def num_noted() -> int:
        journals = file.path.parent.glob("*.ranges")
        return sum(path.read_bytes().count(b"\n") for path in journals)

    def refuse(_kind: str, _asked: Asked) -> bytes | None:
        nonlocal left
        with lock:
            left -= 1
            is_late = left < 0
        if is_late:
            wait_until(lambda: num_noted() == num_answered, what=num_noted)
            return answer(403, x_ms_error_code="AuthorizationFailure")
        return None

    blobs.hook = refuse
    with pytest.raises(EnvironmentFailure, match="AuthorizationFailure"):
        store_of(blobs.url).receive([file], Moved())
    assert num_noted() == num_answered
    blobs.hook = lambda _kind, _asked: None
    blobs.asked.clear()


@pytest.mark.parametrize("num_answered", [0, 2])
def test_a_killed_upload_sends_only_the_blocks_that_are_missing(blobs, tmp_path, num_answered):
    content = seeds.content(LARGE)
    source = make_folder(tmp_path, {"large": content}) / "large"
    kill_at(blobs, "PUT block", num_answered, ["send", blobs.url, str(source), ""])
    assert blobs.blobs == {}
    moved = Moved()
    store_of(blobs.url).send([outgoing(source, "large")], moved)
    assert blobs.blobs == {"large": content}
    assert (moved.files, moved.bytes) == (1, LARGE)
    # The last block is short, and may be one of those.
    assert (num_answered - 1) * BLOCK_BYTES < moved.found <= num_answered * BLOCK_BYTES
    assert blobs.asked == {
        "GET blocklist": 1, "PUT block": 3 - num_answered, "PUT blocklist": 1
    }  # fmt: skip


@pytest.mark.parametrize("num_answered", [0, 2])
def test_a_killed_download_asks_only_for_the_blocks_that_are_missing(blobs, tmp_path, num_answered):
    content = seeds.content(LARGE)
    blobs.blobs["large"] = content
    source = make_folder(tmp_path, {"large": content}) / "large"
    target = tmp_path / "to" / "large"
    kill_at(blobs, "GET blob", num_answered, ["receive", blobs.url, str(source), str(target)])
    assert not target.exists()
    moved = Moved()
    store_of(blobs.url).receive([incoming(content, target, "large")], moved)
    assert read_folder(target.parent) == {"large": content}
    assert (moved.files, moved.bytes) == (1, LARGE)
    # The last block is short, and may be one of those.
    assert (num_answered - 1) * BLOCK_BYTES < moved.found <= num_answered * BLOCK_BYTES
    assert blobs.asked["GET blob"] == 3 - num_answered


def test_what_another_content_left_is_not_taken(blobs, tmp_path):
    old, new = seeds.content(LARGE), seeds.content(LARGE)
    blobs.blobs["large"] = old
    target = tmp_path / "to" / "large"
    cut_off(blobs, incoming(old, target, "large"), 2)
    blobs.blobs["large"] = new
    store_of(blobs.url).receive([incoming(new, target, "large")], Moved())
    assert target.read_bytes() == new
    assert blobs.asked["GET blob"] == 3


def test_a_journal_that_promises_too_much_is_found_out(blobs, tmp_path):
    """After a loss of power it may have outlived the bytes that it speaks of."""
    content = seeds.content(LARGE)
    blobs.blobs["large"] = content
    target = tmp_path / "to" / "large"
    cut_off(blobs, incoming(content, target, "large"), 2)
    (part,) = target.parent.glob(".trainyard-*.part")
    part.write_bytes(bytes(LARGE))
    (journal,) = target.parent.glob(".trainyard-*.ranges")
    journal.write_bytes(journal.read_bytes() + b"7000\n-1\nx\n\n1")
    store_of(blobs.url).receive([incoming(content, target, "large")], Moved())
    assert read_folder(target.parent) == {"large": content}


def test_an_interrupt_ends_it_at_once_and_names_nothing(blobs, tmp_path):
    source = make_folder(tmp_path / "from", {str(number): bytes(10) for number in range(500)})
    blobs.blobs.update({path.name: bytes(10) for path in source.iterdir()})

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    files = [incoming(bytes(10), tmp_path / "to" / name, name) for name in list(blobs.blobs)]
    with pytest.raises(KeyboardInterrupt):
        store_of(blobs.url).receive(files, interrupt)
    with pytest.raises(KeyboardInterrupt):
        store_of(blobs.url).send(
            [outgoing(path, path.name) for path in source.iterdir()], interrupt
        )
    assert set(read_folder(tmp_path / "to").values()) <= {bytes(10)}
    assert not list((tmp_path / "to").glob(".trainyard-*"))


# --- Damage ---------------------------------------------------------------------------------


def flipped(said: bytes) -> bytes:
    return said[:-1] + bytes([said[-1] ^ 1])


@pytest.mark.parametrize("size", [1000, TWO_BLOCKS])
def test_a_byte_that_changes_on_the_way_down_is_noticed_and_asked_for_again(blobs, tmp_path, size):
    content = seeds.content(size)
    blobs.blobs["x"] = content
    left = 1

    def damage(kind: str, asked: Asked) -> bytes | None:
        nonlocal left
        if kind != "GET blob" or not left:
            return None
        left -= 1
        return flipped(blobs._get("x", {}, asked))

    blobs.hook = damage
    store_of(blobs.url).receive([incoming(content, tmp_path / "x", "x")], Moved())
    assert read_folder(tmp_path) == {"x": content}


@pytest.mark.parametrize("size", [1000, TWO_BLOCKS])
def test_a_content_that_is_another_never_gets_the_name(blobs, tmp_path, size):
    content = seeds.content(size)
    blobs.blobs["x"] = flipped(content)
    (tmp_path / "x").write_bytes(b"of before")
    with pytest.raises(
        EnvironmentFailure, match="`x` came from the store with another content"
    ) as caught:
        store_of(blobs.url).receive([incoming(content, tmp_path / "x", "x")], Moved())
    # A push alone would say that the content is there already.
    assert caught.value.hint == (
        "pull again; where that fails, too: of a dataset, `launch data rm NAME@N`, then push it again"
    )
    assert (tmp_path / "x").read_bytes() == b"of before"


# (A large one that became longer is received as far as it was pushed, and so is right.)
@pytest.mark.parametrize(("size", "more"), [(1000, -1), (1000, 1), (TWO_BLOCKS, -1)])
def test_a_content_of_another_size_never_gets_the_name(blobs, tmp_path, size, more):
    content = seeds.content(size)
    blobs.blobs["x"] = content + b"x" if more > 0 else content[:-1]
    with pytest.raises(EnvironmentFailure, match="`x` came from the store with another content"):
        store_of(blobs.url).receive([incoming(content, tmp_path / "x", "x")], Moved())
    assert not (tmp_path / "x").exists()


def test_a_missing_blob_is_named(blobs, tmp_path):
    with pytest.raises(EnvironmentFailure, match="the store has no `set/x`") as caught:
        store_of(blobs.url).receive([incoming(b"x", tmp_path / "x", "set/x")], Moved())
    assert caught.value.hint == "of a dataset, `launch data rm NAME@N`, then push it again"
    with pytest.raises(NotFound, match="the store has no `set/x`"):
        list(store_of(blobs.url).content("set/x"))
    assert read_folder(tmp_path) == {}


def change(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {"longer": content + b"x", "shorter": content[:-1]}.get(how, flipped(content))
        )


@pytest.mark.parametrize("size", [1000, TWO_BLOCKS])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("gone", "it was deleted"),
        ("longer", "its size changed"),
        ("shorter", "its size changed"),
        ("another", "its content changed"),
    ],
)
def test_a_file_that_changed_is_named_and_never_there(blobs, tmp_path, size, how, said):
    path = make_folder(tmp_path, {"x": seeds.content(size)}) / "x"
    file = outgoing(path, "x")
    change(path, how)
    with pytest.raises(LaunchError, match=f"x` changed while it was being sent: {said}$") as error:
        store_of(blobs.url).send([file], Moved())
    assert type(error.value) is LaunchError
    assert blobs.blobs == {}


def test_a_file_that_shrinks_while_it_is_sent_is_named(blobs, tmp_path):
    path = make_folder(tmp_path, {"x": seeds.content(LARGE)}) / "x"

    def shrink(kind: str, _asked: Asked) -> bytes | None:
        if kind == "GET blocklist":
            os.truncate(path, BLOCK_BYTES + 1)
        return None

    blobs.hook = shrink
    with pytest.raises(LaunchError, match="changed while it was being sent: it became shorter"):
        store_of(blobs.url).send([outgoing(path, "x")], Moved())
    assert blobs.blobs == {}


def test_a_line_that_damages_is_not_blamed_on_the_file(blobs, tmp_path):
    path = make_folder(tmp_path, {"x": b"content"}) / "x"
    blobs.hook = lambda _kind, _asked: answer(400, x_ms_error_code="Md5Mismatch")
    with pytest.raises(EnvironmentFailure, match="x` arrives damaged at the store"):
        store_of(blobs.url).send([outgoing(path, "x")], Moved())


def test_blocks_that_the_store_forgot_are_sent_again(blobs, tmp_path):
    content = seeds.content(LARGE)
    path = make_folder(tmp_path, {"x": content}) / "x"
    forgot = False

    def forget(kind: str, _asked: Asked) -> bytes | None:
        nonlocal forgot
        if kind == "PUT blocklist" and not forgot:
            forgot = True
            blobs.blocks["x"].popitem()
        return None

    blobs.hook = forget
    moved = Moved()
    store_of(blobs.url).send([outgoing(path, "x")], moved)
    assert blobs.blobs == {"x": content}
    assert (blobs.asked["PUT block"], moved.files, moved.bytes) == (4, 1, LARGE)


# --- Disks ----------------------------------------------------------------------------------


def test_a_link_in_the_way_is_not_followed(blobs, tmp_path):
    content = b"content"
    blobs.blobs["x"] = content
    (tmp_path / "outside").write_bytes(b"of others")
    target = tmp_path / "to" / "x"
    target.parent.mkdir()
    key = hashlib.sha256(f"{hashlib.sha256(content).hexdigest()} x".encode()).hexdigest()[:20]
    (target.parent / f".trainyard-{key}.part").symlink_to(tmp_path / "outside")
    with pytest.raises(EnvironmentFailure, match="x` cannot be written: Too many levels"):
        store_of(blobs.url).receive([incoming(content, target, "x")], Moved())
    # A link at the name itself is replaced, not written through.
    (target.parent / f".trainyard-{key}.part").unlink()
    target.symlink_to(tmp_path / "outside")
    store_of(blobs.url).receive([incoming(content, target, "x")], Moved())
    assert (target.is_symlink(), target.read_bytes()) == (False, content)
    assert (tmp_path / "outside").read_bytes() == b"of others"


def test_a_folder_in_the_way_is_one_message(blobs, tmp_path):
    blobs.blobs["x"] = b"content"
    (tmp_path / "x").mkdir()
    with pytest.raises(EnvironmentFailure, match="x` cannot be written: Is a directory"):
        store_of(blobs.url).receive([incoming(b"content", tmp_path / "x", "x")], Moved())
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_two_may_receive_the_same_at_once(blobs, tmp_path):
    content = seeds.content(TWO_BLOCKS)
    blobs.blobs["x"] = content
    target = tmp_path / "x"
    other = store_of(blobs.url)
    is_first = True

    def both(*_: int) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            file = incoming(content, target, "x")
            with ThreadPoolExecutor() as pool:
                pool.submit(other.receive, [file], lambda *_: None).result()

    store_of(blobs.url).receive([incoming(content, target, "x")], both)
    assert target.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


# --- Small requests -------------------------------------------------------------------------


def test_a_write_whose_answer_was_lost_is_known_as_ours(blobs):
    def lose(kind: str, asked: Asked) -> bytes | None:
        if kind != "PUT blob":
            return None
        assert asked.headers["if-none-match"] == "*"
        if "record" in blobs.blobs:
            return answer(409, x_ms_error_code="BlobAlreadyExists")
        blobs.blobs["record"] = asked.body
        return CLOSE

    blobs.hook = lose
    store = store_of(blobs.url)
    assert store.create("record", b"ours")
    assert not store.create("record", b"ours")


def test_content_comes_in_blocks_of_one_version(blobs):
    contents = contents_of_all_sizes()
    blobs.blobs.update(contents)
    store = store_of(blobs.url)
    for name, content in contents.items():
        blocks = list(store.content(name))
        assert b"".join(blocks) == content
        assert max(map(len, blocks), default=0) <= BLOCK_BYTES


def test_many_are_deleted_and_those_gone_already_do_not_matter(blobs):
    blobs.blobs.update({str(number): b"x" for number in range(200)})
    store_of(blobs.url).delete(str(number) for number in range(-10, 190))
    assert sorted(map(int, blobs.blobs)) == list(range(190, 200))
