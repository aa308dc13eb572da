"""A new version of a folder: what the newest version has is copied inside the store."""

from __future__ import annotations

import pytest

from jobs.datasets.datasets import Datasets
from jobs.datasets.making import Reports
from jobs.host.progress import Transfer
from tests.fakes.blob_store import MemoryStore
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("own_cache")

OLD = {"a": b"one", "b": bytes(9 << 20), "sub/c": b"", "sub/d": b"four"}
NEW = {**OLD, "a": b"ONE", "sub/cc": b"more"}
NUM_COPIED, BYTES_COPIED = 3, (9 << 20) + 4


@pytest.fixture
def store(tmp_path) -> MemoryStore:
    made = MemoryStore()
    Datasets(made).push(make_folder(tmp_path / "old", OLD), "d")
    made.sent.clear()
    return made


@pytest.fixture
def datasets(store) -> Datasets:
    return Datasets(store)


@pytest.fixture
def new(tmp_path):
    return make_folder(tmp_path / "new", NEW)


def check(datasets: Datasets, tmp_path, ref: str) -> None:
    datasets.pull(datasets.resolve(ref).pinned(), tmp_path / "to")
    assert read_folder(tmp_path / "to") == NEW


def test_what_the_newest_version_has_is_copied_and_the_rest_sent(datasets, store, new, tmp_path):
    copying: list[Transfer] = []
    sending: list[Transfer] = []
    reports = Reports(copying=copying.append, sending=sending.append)
    pushed = datasets.push(new, "d", reports)
    assert (pushed.files_sent, pushed.bytes_sent) == (2, 7)
    assert (pushed.files_copied, pushed.bytes_copied) == (NUM_COPIED, BYTES_COPIED)
    prefix = pushed.dataset.pinned().content_prefix
    assert store.sent == [f"{prefix}a", f"{prefix}sub/cc"]
    assert store.copied == [f"{prefix}{path}" for path in ("b", "sub/c", "sub/d")]
    assert (copying[-1].is_over, sending[-1].is_over) == (True, True)
    check(datasets, tmp_path, "d@2")


def test_a_dry_run_says_what_would_be_copied(datasets, store, new):
    dry = datasets.push(new, "d", is_dry=True)
    assert (dry.files_sent, dry.files_copied, dry.bytes_copied) == (2, NUM_COPIED, BYTES_COPIED)
    assert (store.sent, store.copied) == ([], [])


def test_nothing_is_sent_of_a_folder_that_only_lost_files(datasets, store, tmp_path):
    pushed = datasets.push(make_folder(tmp_path / "less", {"a": b"one", "sub/c": b""}), "d")
    assert (pushed.dataset.ref, pushed.files_sent, pushed.files_copied) == ("d@2", 0, 2)
    assert store.sent == []


@pytest.mark.parametrize("most", [0, 1])
def test_what_the_store_refuses_to_copy_is_sent(datasets, store, new, tmp_path, most):
    store.most_copies = most
    pushed = datasets.push(new, "d")
    assert (pushed.files_sent, pushed.files_copied) == (5 - most, most)
    assert pushed.bytes_sent + pushed.bytes_copied == pushed.dataset.bytes
    check(datasets, tmp_path, "d@2")


def test_what_the_store_forgot_of_its_copies_is_sent(datasets, store, new, tmp_path):
    prefix = datasets.push(new, "d", is_dry=True).dataset.pinned().content_prefix
    store.forgets = {f"{prefix}sub/d"}
    datasets.push(new, "d")
    assert f"{prefix}sub/d" in store.sent
    check(datasets, tmp_path, "d@2")


def test_a_removal_of_the_older_version_meanwhile_loses_nothing(datasets, store, new, tmp_path):
    def remove(name: str) -> None:
        if name.endswith("/sub/c"):
            store.before_copy = lambda _: None
            datasets.remove(datasets.plan_removal("d@1"))

    store.before_copy = remove
    pushed = datasets.push(new, "d")
    assert (pushed.dataset.ref, pushed.files_copied, pushed.files_sent) == ("d@2", 1, 4)
    check(datasets, tmp_path, "d@2")


def test_killed_between_copies_the_next_push_copies_the_rest(datasets, store, new, tmp_path):
    class Killed(BaseException):
        pass

    store.kill_before_write(2, Killed)
    with pytest.raises(Killed):
        datasets.push(new, "d")
    store.kill_before_write(None, Killed)
    pushed = datasets.push(new, "d")
    assert (pushed.dataset.ref, pushed.files_copied, pushed.files_sent) == ("d@2", 1, 2)
    check(datasets, tmp_path, "d@2")


def test_an_older_version_whose_list_is_damaged_hinders_nobody(datasets, store, new, tmp_path):
    listed = next(name for name in store.blobs if name.endswith(".files.jsonl"))
    store.blobs[listed] = b"{"
    assert datasets.push(new, "d").files_sent == 5
    check(datasets, tmp_path, "d@2")


def test_files_that_were_registered_where_they_lie_are_not_copied(datasets, store, new):
    store.blobs.update({f"raw/{path}": content for path, content in NEW.items() if path != "a"})
    datasets.register("photos", "raw")
    pushed = datasets.push(new, "photos")
    assert (pushed.dataset.ref, pushed.files_sent, store.copied) == ("photos@2", 5, [])
