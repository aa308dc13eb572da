"""One bit inverted between client and store, up and down: noticed each time, and mended."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jobs.blobs.store import BLOCK_BYTES
from jobs.contracts.errors import LaunchError
from tests import seeds
from tests.campaign import campaign
from tests.fakes.flaky_proxy import Flip, Seen
from tests.faults.transfer_campaign import FlakyStore, incoming, outgoing
from tests.folders import make_folder, read_folder

SEED = 11
BATCH = 50


class FirstTime:
    """Inverts one bit of each blob's (or block's) body, the first time that it goes by."""

    def __init__(self, way: str, seed: int) -> None:
        self.flipped: list[Seen] = []
        self._way = way
        self._dice = seeds.dice(seed)
        self._met: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def __call__(self, seen: Seen) -> Flip | None:
        kinds = ("put", "block") if self._way == "up" else ("get",)
        place = seen.query.get("blockid", "")
        asked = seen.headers.get("x-ms-range", "")
        with self._lock:
            key = (seen.name, place + asked)
            if seen.kind not in kinds or key in self._met:
                return None
            self._met.add(key)
            self.flipped.append(seen)
            num_bytes = seen.body_bytes if self._way == "up" else 200
            offset = self._dice.randrange(num_bytes)
            return Flip(way="up" if self._way == "up" else "down", offset=offset)


def flip_all(store: FlakyStore, folder: Path, contents: dict[str, bytes], seed: int) -> list[str]:
    """Move files up and down, each damaged once each way; gives what went unnoticed."""
    make_folder(folder / "from", contents)
    silent: list[str] = []
    prefix = f"flips{seed}/"
    up = FirstTime("up", seed)
    store.proxy.clear(up)
    store.open().send(
        [outgoing(folder / "from" / name, prefix + name) for name in contents], lambda *_: None
    )
    silent += [f"{seen.name} up: {seen.status}" for seen in up.flipped if seen.status != 400]
    down = FirstTime("down", seed)
    store.proxy.clear(down)
    store.open().receive(
        [
            incoming(folder / "to" / name, prefix + name, content)
            for name, content in contents.items()
        ],
        lambda *_: None,
    )
    store.proxy.clear()
    if read_folder(folder / "to") != contents:
        silent.append(f"other content after {prefix}")
    counted = len(up.flipped) + len(down.flipped)
    assert counted >= 2 * len(contents), "some files met no fault"
    return silent


def run_flips(store: FlakyStore, folder: Path, num_transfers: int) -> None:
    dice = seeds.dice(SEED)
    silent: list[str] = []
    for batch in range(num_transfers // 2 // BATCH):
        contents = {
            f"{number:03}": seeds.content(dice.randrange(200, 20_000)) for number in range(BATCH)
        }
        silent += flip_all(store, folder / str(batch), contents, batch)
    survived = num_transfers - len(silent)
    campaign("transfers with an inverted bit, noticed", tried=num_transfers, survived=survived)
    assert silent == []


def test_inverted_bits_are_noticed(store: FlakyStore, tmp_path: Path) -> None:
    run_flips(store, tmp_path, 100)


def test_inverted_bits_in_blocks_are_noticed(store: FlakyStore, tmp_path: Path) -> None:
    assert flip_all(store, tmp_path, {"large": seeds.content(2 * BLOCK_BYTES + 300)}, 1000) == []


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_inverted_bits_are_noticed_long(store: FlakyStore, tmp_path: Path) -> None:
    run_flips(store, tmp_path, 1000)


def test_content_that_stays_wrong_is_refused(store: FlakyStore, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "from", {"a": b"1" * 500, "b": b"2" * 500})
    store.succeed("push", str(folder), "wrong")
    always = Flip(way="down", offset=17)
    store.proxy.clear(lambda seen: always if seen.name.endswith("/a") else None)
    done = store.launch("pull", "wrong", "--to", str(tmp_path / "to"))
    store.proxy.clear()
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert set(read_folder(tmp_path / "to")) <= {"b"}
    store.proxy.clear(lambda seen: Flip(way="up", offset=3) if seen.kind == "put" else None)
    with pytest.raises(LaunchError):
        store.open().send([outgoing(folder / "a", "never/a")], lambda *_: None)
    store.proxy.clear()
    assert list(store.open().list("never/")) == []
