"""Versions copied between stores: whole, once, after a kill, refused where bytes were changed."""

from __future__ import annotations

import hashlib
import os

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.datasets import copy as copying
from jobs.datasets.datasets import Datasets
from jobs.datasets.making import Reports
from jobs.datasets.scan_cache import cache_folder, copy_lock, drop, old_files
from jobs.host.private import locked
from jobs.host.progress import Transfer
from tests.fakes.blob_store import MemoryStore
from tests.fakes.gangs import make_environment
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("own_cache")

CONTENT = {"a": b"one", "b": bytes(9 << 20), "sub/c": b"", "sub/d": b"four"}
NUM_BYTES = (9 << 20) + 7


@pytest.fixture
def source(tmp_path) -> MemoryStore:
    made = MemoryStore()
    Datasets(made).push(make_folder(tmp_path / "old", {"x": b"x"}), "d")
    Datasets(made).push(make_folder(tmp_path / "new", CONTENT), "d")
    return made


@pytest.fixture
def target() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def environment(tmp_path):
    return make_environment(tmp_path)


def copy(source, target, environment, reports=None, **how):
    theirs = Datasets(source)
    given = reports or Reports()
    return Datasets(target).copy_from(theirs, theirs.resolve("d"), environment, given, **how)


def check(target, tmp_path, ref: str) -> None:
    datasets = Datasets(target)
    datasets.pull(datasets.resolve(ref).pinned(), tmp_path / "to")
    assert read_folder(tmp_path / "to") == CONTENT


def test_a_copy_has_the_targets_number_and_says_where_it_came_from(
    source, target, environment, tmp_path
):
    reading: list[Transfer] = []
    sending: list[Transfer] = []
    reports = Reports(reading=reading.append, sending=sending.append)
    copied = copy(source, target, environment, reports)
    assert (copied.dataset.ref, copied.already) == ("d@1", False)
    assert (copied.files_sent, copied.bytes_sent, copied.files_copied) == (4, NUM_BYTES, 0)
    theirs = Datasets(source).resolve("d@2")
    assert copied.dataset.digest == theirs.digest
    record = msgspec.json.decode(target.blobs["_datasets/d/1.json"])
    storage = environment.storage.blob_endpoint.rstrip("/")
    assert record["copied_from"] == {"stack": "local", "store": storage, "version": 2}
    assert (reading[-1].is_over, sending[-1].is_over) == (True, True)
    check(target, tmp_path, "d@1")


def test_content_that_is_there_is_not_sent_again(source, target, environment, tmp_path):
    pushed = Datasets(target).push(make_folder(tmp_path / "mine", CONTENT), "d").dataset
    target.sent.clear()
    copied = copy(source, target, environment)
    assert (copied.dataset, copied.already, target.sent) == (pushed, True, [])


def test_files_of_the_targets_newest_version_are_copied_inside_it(
    source, target, environment, tmp_path
):
    Datasets(target).push(make_folder(tmp_path / "mine", {**CONTENT, "a": b"ONE"}), "d")
    copied = copy(source, target, environment)
    assert (copied.dataset.ref, copied.files_sent, copied.files_copied) == ("d@2", 1, 3)
    check(target, tmp_path, "d@2")


def test_a_dry_copy_counts_and_writes_nothing(source, target, environment):
    dry = copy(source, target, environment, is_dry=True)
    assert (dry.dataset.ref, dry.files_sent, dry.bytes_sent) == ("d@1", 4, NUM_BYTES)
    assert target.blobs == {}


@pytest.mark.parametrize("number", range(6))
def test_a_killed_copy_lists_nothing_and_goes_on(
    source, target, environment, tmp_path, monkeypatch, number
):
    """Four files, the list and the record are written, in this order."""
    monkeypatch.setattr(copying, "BATCH_FILES", 1)
    target.kill_before_write(number, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        copy(source, target, environment)
    target.kill_before_write(None, KeyboardInterrupt)
    assert Datasets(target).versions() == []
    arrived = set(target.sent)
    assert len(arrived) == min(number, 4)
    target.sent.clear()
    source.received.clear()
    copied = copy(source, target, environment)
    assert (copied.dataset.ref, len(target.sent)) == ("d@1", 4 - len(arrived))
    # The file that was to be sent when the copy was killed had arrived here.
    assert len(source.received) == max(0, len(target.sent) - 1)
    assert arrived.isdisjoint(target.sent)
    check(target, tmp_path, "d@1")


@pytest.mark.parametrize("is_on_azure", [False, True])
def test_bytes_that_were_changed_are_refused(source, target, environment, is_on_azure):
    if is_on_azure:
        offer(source, target)
    prefix = Datasets(source).resolve("d@2").pinned().content_prefix
    source.blobs[f"{prefix}sub/d"] = b"FOUR"
    with pytest.raises(EnvironmentFailure, match="with another content"):
        copy(source, target, environment)
    assert Datasets(target).versions() == []


def test_a_list_that_was_changed_is_refused(source, target, environment):
    digest = Datasets(source).resolve("d@2").digest
    name = f"_datasets/d/{digest}.files.jsonl"
    source.blobs[name] = source.blobs[name].replace(b'"sub/d"', b'"sub/e"')
    with pytest.raises(EnvironmentFailure, match="does not have the digest of `d@2`"):
        copy(source, target, environment)
    assert target.blobs == {}


def test_an_md5_that_was_changed_is_refused(source, target, environment):
    record = Datasets(source).resolve("d@2")
    name = f"_datasets/d/{record.digest}.files.jsonl"
    lines = source.blobs[name].splitlines()
    first = msgspec.json.decode(lines[0])
    lines[0] = msgspec.json.encode({**first, "md5": "0" * 32})
    source.blobs[name] = b"\n".join(lines) + b"\n"
    with pytest.raises(EnvironmentFailure, match="names another MD5 for `a`"):
        copy(source, target, environment)
    assert Datasets(target).versions() == []


def offer(source: MemoryStore, target: MemoryStore) -> None:
    """Let the service copy from one to the other."""
    source.url = "https://theirs.blob.core.windows.net/data"
    target.origins[source.url] = source


def test_the_service_copies_where_both_are_on_azure(source, target, environment, tmp_path):
    offer(source, target)
    copying_seen: list[Transfer] = []
    copied = copy(source, target, environment, Reports(copying=copying_seen.append))
    assert (copied.files_sent, copied.files_copied, copied.bytes_copied) == (0, 4, NUM_BYTES)
    assert (target.sent, source.received, copying_seen[-1].is_over) == ([], [], True)
    check(target, tmp_path, "d@1")


def test_files_that_the_service_refuses_pass_through_here(source, target, environment, tmp_path):
    offer(source, target)
    target.most_copies = 3
    copied = copy(source, target, environment)
    assert (copied.files_sent, copied.files_copied) == (1, 3)
    assert len(source.received) == len(target.sent) == 1
    check(target, tmp_path, "d@1")


def test_what_a_killed_copy_left_here_is_checked(source, target, environment, tmp_path):
    target.kill_before_write(0, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        copy(source, target, environment)
    target.kill_before_write(None, KeyboardInterrupt)
    (left,) = cache_folder().glob("copy-*/" + hashlib.sha256(b"four").hexdigest())
    left.write_bytes(b"FOUR")
    with pytest.raises(EnvironmentFailure, match="`sub/d` changed on this machine's disk"):
        copy(source, target, environment)
    assert copy(source, target, environment).dataset.ref == "d@1"
    assert list(cache_folder().glob("copy-*/*")) == []
    check(target, tmp_path, "d@1")


def test_what_a_killed_copy_received_is_swept_when_it_is_old_and_nobody_holds_it():
    left, held, bare, new = (cache_folder() / f"copy-{each * 64}" for each in "abcd")
    for folder in (left, held, bare, new):
        make_folder(folder, {"x": b"x"})
        copy_lock(folder).touch()
        if folder is not new:
            os.utime(folder, (0, 0))
    copy_lock(bare).unlink()
    with locked(copy_lock(held)):
        assert sorted(old_files(3600.0)) == [left, bare]
        for folder in (left, bare, held):  # held: since it was listed
            drop(folder)
    assert sorted(each for each in cache_folder().glob("copy-*") if each.is_dir()) == [held, new]
