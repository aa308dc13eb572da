"""Full disks, signatures that expire and files that change during a transfer."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas

from jobs.blobs.store import BLOCK_BYTES
from tests import seeds
from tests.campaign import campaign
from tests.fakes.flaky_proxy import Refuse, Seen
from tests.faults.transfer_campaign import FlakyStore
from tests.folders import make_folder, read_folder
from tests.mounts import fill

# What a pull wants to be left free, and room for what is pulled.
DISK_BYTES = 80 << 20


# --- Full disks -----------------------------------------------------------------------------


def pull_while_the_disk_fills(store: FlakyStore, target: Path, when: int) -> str:
    """Fill the disk at the `when`th content request of a pull; gives what was said."""
    requests = itertools.count()

    def plan(seen: Seen) -> None:
        if seen.kind == "get" and not seen.name.startswith("_") and next(requests) == when:
            fill(target.parent, leave=0)

    store.proxy.clear(plan)
    done = store.launch("pull", "disk", "--to", str(target))
    store.proxy.clear()
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert "hint: " in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "moments", [(20,), pytest.param((0, 70), marks=pytest.mark.faults)], ids=["within", "at ends"]
)
def test_a_disk_that_fills_is_a_clear_error_and_the_rest_comes_when_there_is_room(
    store: FlakyStore, small_disk: Path, tmp_path: Path, moments: tuple[int, ...]
) -> None:
    contents = {f"{number:02}": seeds.content(50_000) for number in range(80)}
    store.succeed("push", str(make_folder(tmp_path / "from", contents)), "disk")
    num_whole = 0
    for when in moments:
        target = small_disk / str(when)
        said = pull_while_the_disk_fills(store, target, when)
        assert "No space left on device" in said
        there = read_folder(target)
        whole = {name: content for name, content in there.items() if name in contents}
        assert whole == {name: contents[name] for name in whole}
        (small_disk / "ballast").unlink()
        store.succeed("pull", "disk", "--to", str(target))
        num_whole += read_folder(target) == contents
        shutil.rmtree(target)
    campaign("pulls onto a disk that filled", tried=len(moments), survived=num_whole)
    assert num_whole == len(moments)


def test_a_disk_that_is_too_small_is_said_before_anything_is_received(
    store: FlakyStore, small_disk: Path, tmp_path: Path
) -> None:
    ballast = fill(small_disk, leave=10 << 20)
    store.succeed("push", str(make_folder(tmp_path / "from", {"large": b"1" * (11 << 20)})), "big")
    store.proxy.clear()
    done = store.launch("pull", "big", "--to", str(small_disk / "to"))
    assert done.returncode == 1
    assert "hint: " in done.stderr
    assert [seen.name for seen in store.proxy.clear() if seen.name.endswith("/large")] == []
    ballast.unlink()


# --- Signatures that expire -----------------------------------------------------------------


def write_sas(store: FlakyStore, path: Path, *, valid_s: float) -> None:
    """Write a signature as somebody would get it."""
    now = datetime.now(UTC)
    token = generate_container_sas(
        store.environment.storage.account,
        store.environment.storage.containers.data,
        account_key=(store.storage / "account.key").read_text().strip(),
        permission=ContainerSasPermissions(
            read=True, add=True, create=True, write=True, delete=True, list=True
        ),
        start=now - timedelta(minutes=5),
        expiry=now + timedelta(seconds=valid_s),
    )
    partial = path.with_suffix(".partial")
    partial.touch(mode=0o600)
    partial.write_text(token)
    partial.rename(path)


def expiring_push(store: FlakyStore, folder: Path, name: str, *, renew: bool):
    """Let the signature expire for good after the tenth file; somebody may renew it then."""
    sas = folder / "sas"
    make_folder(folder / "from", {f"{number:03}": seeds.content(2000) for number in range(60)})
    write_sas(store, sas, valid_s=600)
    puts = itertools.count()
    lock = threading.Lock()
    expired: set[str] = set()

    def plan(seen: Seen) -> Refuse | None:
        with lock:
            if seen.kind == "put" and next(puts) == 10:
                expired.add(seen.query["sig"])
                if renew:
                    time.sleep(1)  # the file's times differ, and so does the signature
                    write_sas(store, sas, valid_s=900)
            if seen.query.get("sig") in expired:
                return Refuse(status=403, code="AuthenticationFailed")
        return None

    store.proxy.clear(plan)
    done = store.launch("push", str(folder / "from"), name, "--sas", str(sas))
    signatures = {seen.query["sig"] for seen in store.proxy.clear()}
    return done, signatures


def test_a_signature_that_expires_is_read_anew_from_its_file(
    store: FlakyStore, tmp_path: Path
) -> None:
    done, signatures = expiring_push(store, tmp_path, "renewed", renew=True)
    assert done.returncode == 0, done.stderr
    assert len(signatures) == 2
    store.succeed("pull", "renewed", "--to", str(tmp_path / "to"))
    assert read_folder(tmp_path / "to") == read_folder(tmp_path / "from")


def test_a_signature_that_expired_for_good_is_named(store: FlakyStore, tmp_path: Path) -> None:
    done, signatures = expiring_push(store, tmp_path, "expired", renew=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert str(tmp_path / "sas") in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not any(signature in done.stderr for signature in signatures)


def test_a_signature_that_was_expired_from_the_start_is_named(
    store: FlakyStore, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path / "from", {"a": b"1"})
    write_sas(store, tmp_path / "sas", valid_s=-60)
    done = store.launch("push", str(folder), "late", "--sas", str(tmp_path / "sas"))
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert str(tmp_path / "sas") in done.stderr
    assert "hint: " in done.stderr


# --- Files that change ----------------------------------------------------------------------


def overwrite(path: Path) -> None:
    """Another first byte, the same size."""
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace(path: Path) -> None:
    other = path.with_name(".other")
    other.write_bytes(seeds.content(path.stat().st_size))
    other.rename(path)


@pytest.mark.parametrize("change", [overwrite, append, shorten, replace, Path.unlink])
def test_a_file_that_changes_while_it_is_sent_is_refused(
    store: FlakyStore, tmp_path: Path, change
) -> None:
    contents = {"a": b"1" * 5000, "b": b"2" * 5000, "large": seeds.content(2 * BLOCK_BYTES + 1)}
    folder = make_folder(tmp_path / "from", contents)
    name = f"changing-{change.__name__}"
    met: list[Seen] = []
    lock = threading.Lock()

    def plan(seen: Seen) -> None:
        # At the listing before the first file goes: all of it has been scanned by then.
        with lock:
            if seen.kind == "list" and seen.query.get("prefix", "").startswith(f"{name}/"):
                if not met:
                    change(folder / "b")
                    change(folder / "large")
                met.append(seen)

    store.proxy.clear(plan)
    done = store.launch("push", str(folder), name)
    store.proxy.clear()
    assert met
    records = list(store.open().list(f"_datasets/{name}/"))
    is_refused = done.returncode not in (0, 101) and not records
    campaign(f"files changed while they are sent: {change.__name__}", tried=1, survived=is_refused)
    assert is_refused, done.stderr
    assert done.stdout == ""
    assert "changed while it was being sent" in done.stderr
    assert "Traceback" not in done.stderr
