"""Datasets: versions that never change, pushes that meet, pulls that are checked."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.contracts.spec import DatasetVersion
from jobs.datasets import datasets as data
from jobs.datasets.datasets import Datasets, materialise, resolve_dataset
from jobs.datasets.making import Reports
from jobs.datasets.pull import Pulled
from jobs.datasets.records import parse_ref
from jobs.datasets.scan_cache import ScanState
from jobs.host.progress import Transfer
from tests.fakes.blob_store import MemoryStore
from tests.fakes.gangs import make_environment
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def digest_of(contents: dict[str, bytes]) -> str:
    """The digest of docs/data.md, by its words."""
    lines = "".join(
        f"{hashlib.sha256(content).hexdigest()} {len(content)} {path}\n"
        for path, content in sorted(contents.items())
    )
    return hashlib.sha256(lines.encode()).hexdigest()


@pytest.fixture
def datasets(store) -> Datasets:
    return Datasets(store)


@pytest.fixture
def folder(tmp_path) -> Path:
    return make_folder(tmp_path / "folder", {"a": b"one", "sub/b": b"", "sub/c": b"three"})


class TestPush:
    def test_the_first_push_makes_version_1_and_lays_it_out_as_documented(
        self, datasets, store, folder
    ):
        pushed = datasets.push(folder, "digits")
        digest = digest_of(read_folder(folder))
        record = pushed.dataset
        assert (pushed.already, pushed.files_sent, pushed.bytes_sent) == (False, 3, 8)
        assert record.pinned() == DatasetVersion(
            name="digits", version=1, digest=digest, files=3, bytes=8
        )
        assert set(store.blobs) == {
            "_datasets/digits/1.json",
            f"_datasets/digits/{digest}.files.jsonl",
            f"digits/{digest}/a",
            f"digits/{digest}/sub/b",
            f"digits/{digest}/sub/c",
        }
        fields = msgspec.json.decode(store.blobs["_datasets/digits/1.json"])
        assert datetime.fromisoformat(fields.pop("created")).tzinfo is not None
        assert fields == {
            "schema": 1,
            "name": "digits",
            "version": 1,
            "digest": digest,
            "files": 3,
            "bytes": 8,
        }

    def test_one_file_of_a_folder_goes_alone_and_forgets_nothing_of_the_others(
        self, datasets, store, folder
    ):
        datasets.push(folder, "digits")
        store.sent.clear()
        pushed = datasets.push(folder, "one", only="a")
        digest = digest_of({"a": b"one"})
        assert pushed.dataset.pinned() == DatasetVersion(
            name="one", version=1, digest=digest, files=1, bytes=3
        )
        assert store.sent == [f"one/{digest}/a"]
        with ScanState.of(folder) as state:
            known = state.known(forget_others=False)
            assert [known.take(name) is None for name in ("a", "sub/b", "sub/c")] == [False] * 3

    def test_one_file_that_is_a_link_out_of_its_folder_is_refused(self, datasets, store, folder):
        (folder / "out").symlink_to("/etc/hostname")
        with pytest.raises(LaunchError, match="is a link to a place outside the pushed folder"):
            datasets.push(folder, "one", only="out")
        assert store.blobs == {}

    def test_equal_content_gives_the_same_version_and_sends_nothing(self, datasets, store, folder):
        first = datasets.push(folder, "digits")
        store.sent.clear()
        before = dict(store.blobs)
        second = datasets.push(folder, "digits")
        assert (second.already, second.files_sent, second.bytes_sent) == (True, 0, 0)
        assert second.dataset == first.dataset
        assert (store.sent, store.blobs) == ([], before)

    def test_other_content_gives_the_next_version_and_old_content_its_old_one(
        self, datasets, folder
    ):
        datasets.push(folder, "digits")
        (folder / "a").write_bytes(b"two")
        assert datasets.push(folder, "digits").dataset.version == 2
        (folder / "a").write_bytes(b"one")
        again = datasets.push(folder, "digits")
        assert (again.dataset.version, again.already) == (1, True)

    def test_a_killed_push_leaves_no_version_and_the_next_sends_the_rest(
        self, datasets, store, folder
    ):
        class Killed(BaseException):
            pass

        def die(name: str) -> None:
            raise Killed

        store.before_create = die
        with pytest.raises(Killed):
            datasets.push(folder, "digits")
        assert datasets.versions() == []
        store.before_create = lambda _: None
        lost = next(name for name in store.blobs if name.endswith("/sub/c"))
        del store.blobs[lost]
        store.sent.clear()
        pushed = datasets.push(folder, "digits")
        assert (pushed.already, pushed.files_sent, pushed.bytes_sent) == (False, 1, 5)
        assert store.sent == [lost]

    def test_killed_before_any_write_the_next_push_ends_it(self, store, tmp_path):
        contents = {"a": b"1", "b/c": b"22", "b/d": b"", "e": bytes(9 << 20)}
        folder = make_folder(tmp_path / "f", contents)

        class Killed(BaseException):
            pass

        num_writes = 0
        while True:
            store.blobs.clear()
            store.kill_before_write(num_writes, Killed)
            try:
                Datasets(store).push(folder, "digits")
                break
            except Killed:
                num_writes += 1
            assert Datasets(store).versions() == []
            before = len([name for name in store.blobs if name.startswith("digits/")])
            store.kill_before_write(None, Killed)
            pushed = Datasets(store).push(folder, "digits")
            assert (pushed.dataset.ref, pushed.files_sent) == ("digits@1", 4 - before)
            target = tmp_path / f"to-{num_writes}"
            Datasets(store).pull(pushed.dataset.pinned(), target)
            assert read_folder(target) == contents
        assert num_writes == 6  # four files, their list, and the record

    def test_pushes_at_once_of_different_contents_get_different_versions(self, tmp_path, store):
        folders = [
            make_folder(tmp_path / str(number), {"a": str(number).encode()}) for number in range(16)
        ]
        with ThreadPoolExecutor(16) as pool:
            pushed = list(pool.map(lambda folder: Datasets(store).push(folder, "digits"), folders))
        assert sorted(each.dataset.version for each in pushed) == list(range(1, 17))
        assert not any(each.already for each in pushed)

    def test_pushes_at_once_of_equal_content_meet_in_one_version(self, store, folder):
        with ThreadPoolExecutor(8) as pool:
            pushed = list(pool.map(lambda _: Datasets(store).push(folder, "digits"), range(8)))
        assert {each.dataset.version for each in pushed} == {1}
        assert [each.already for each in pushed].count(False) == 1
        assert [record.version for record in Datasets(store).versions()] == [1]

    def test_a_loser_of_the_race_takes_the_next_number(self, datasets, store, folder, tmp_path):
        other = make_folder(tmp_path / "other", {"z": b"other"})

        def race(name: str) -> None:
            if name.endswith("/1.json"):
                store.before_create = lambda _: None
                assert Datasets(store).push(other, "digits").dataset.version == 1

        store.before_create = race
        pushed = datasets.push(folder, "digits")
        assert (pushed.dataset.version, pushed.already) == (2, False)

    def test_a_file_that_changes_between_scan_and_sending_makes_no_version(
        self, datasets, store, folder
    ):
        def change(name: str) -> None:
            (folder / "sub" / "c").write_bytes(b"THREE")

        store.before_send = change
        with pytest.raises(LaunchError, match=r"`.*/c` changed while it was being sent"):
            datasets.push(folder, "digits")
        assert not any(name.endswith(("/c", ".json", ".jsonl")) for name in store.blobs)

    def test_what_the_store_forgot_is_sent_again_before_there_is_a_version(
        self, datasets, store, folder
    ):
        prefix = f"digits/{digest_of(read_folder(folder))}/"
        store.forgets = {f"{prefix}a", f"{prefix}sub/c"}
        pushed = datasets.push(folder, "digits")
        assert (pushed.files_sent, pushed.bytes_sent) == (3, 8)
        assert {name for name in store.blobs if name.startswith(prefix)} == {
            f"{prefix}a",
            f"{prefix}sub/b",
            f"{prefix}sub/c",
        }
        assert store.sent.count(f"{prefix}a") == store.sent.count(f"{prefix}sub/c") == 2

    def test_a_store_that_forgets_for_ever_gets_no_version(self, datasets, store, folder):
        name = f"digits/{digest_of(read_folder(folder))}/a"
        store.before_send = lambda sent: store.forgets.add(name)
        with pytest.raises(EnvironmentFailure, match="lost 1 files that it had accepted"):
            datasets.push(folder, "digits")
        assert datasets.versions() == []

    def test_the_order_of_the_listing_does_not_matter(self, datasets, store, tmp_path):
        contents = {"\uff41": b"1", "\U0001f600": b"2", "a-b": b"3", "a/b": b"4", "a.b": b"5"}
        folder = make_folder(tmp_path / "odd", contents)
        # By UTF-16 as JavaScript sorts, and folder by folder as a store with folders does.
        for order in (lambda n: n.encode("utf-16-be"), lambda n: n.split("/"), hash):
            store.order = order
            store.blobs.clear()
            store.sent.clear()
            pushed = datasets.push(folder, "odd")
            assert (pushed.dataset.digest, pushed.files_sent) == (digest_of(contents), 5)
            assert len(store.sent) == 5

    def test_a_dry_run_says_what_would_be_sent_and_sends_nothing(self, datasets, store, folder):
        prefix = f"digits/{digest_of(read_folder(folder))}/"
        store.forgets = {f"{prefix}sub/c"}
        for _ in range(2):
            dry = datasets.push(folder, "digits", is_dry=True)
            assert (dry.dataset.ref, dry.already) == ("digits@1", False)
            assert (dry.files_sent, dry.bytes_sent) == (3, 8)
        assert (store.blobs, store.sent) == ({}, [])
        datasets.push(folder, "digits")
        assert datasets.push(folder, "digits", is_dry=True).already
        (folder / "a").write_bytes(b"two")
        assert datasets.push(folder, "digits", is_dry=True).dataset.ref == "digits@2"

    def test_an_unchanged_folder_costs_one_request(self, datasets, store, folder):
        datasets.push(folder, "digits")
        store.requests.clear()
        assert datasets.push(folder, "digits").already
        assert store.requests == ["read _datasets/digits/1.json"]

    def test_large_files_come_with_their_blocks(self, datasets, store, tmp_path):
        size = (8 << 20) + 1
        contents = {"a": b"x" * (8 << 20), "b": b"y" * size, "c": b"z", "d": bytes(2 * size)}
        folder = make_folder(tmp_path / "large", contents)
        pushed = datasets.push(folder, "large")  # the store compares the blocks' MD5s
        assert pushed.dataset.digest == digest_of(contents)
        datasets.pull(pushed.dataset.pinned(), tmp_path / "to")
        assert read_folder(tmp_path / "to") == contents

    def test_progress_ends_with_everything_done(self, datasets, folder):
        reading: list[Transfer] = []
        sending: list[Transfer] = []
        reports = Reports(reading=reading.append, sending=sending.append)
        datasets.push(folder, "digits", reports)
        assert [transfer.files_done for transfer in sending] == [1, 2, 3]
        assert sending[-1] == Transfer(files_done=3, files=3, bytes_done=8, bytes=8)
        assert reading == sending[-1:]

    def test_progress_of_reading_does_not_know_its_end(self, datasets, tmp_path):
        folder = make_folder(tmp_path / "many", {f"{number:03}": b"1" for number in range(130)})
        reading: list[Transfer] = []
        datasets.push(folder, "digits", Reports(reading=reading.append))
        assert reading == [
            Transfer(files_done=64, bytes_done=64),
            Transfer(files_done=128, bytes_done=128),
            Transfer(files_done=130, bytes_done=130, files=130, bytes=130),
        ]

    def test_the_rate_that_was_asked_for_is_handed_on(self, datasets, store, folder, tmp_path):
        dataset = datasets.push(folder, "d", max_bytes_per_s=1000).dataset.pinned()
        datasets.pull(dataset, tmp_path / "to", max_bytes_per_s=2000)
        assert store.max_bytes_per_s == 2000

    @pytest.mark.parametrize("name", ["", "a/b", "_datasets", "-x", "a@1", "x" * 64, "a b"])
    def test_a_bad_name_is_refused_before_anything_is_read(self, datasets, name, tmp_path):
        with pytest.raises(LaunchError, match="invalid dataset name"):
            datasets.push(tmp_path / "nothing", name)


class TestResolve:
    @pytest.fixture
    def three(self, datasets, tmp_path) -> Datasets:
        for number in range(1, 12):
            folder = make_folder(tmp_path / f"v{number}", {"a": str(number).encode()})
            datasets.push(folder, "digits")
        datasets.push(make_folder(tmp_path / "other", {"a": b"x"}), "digits-big")
        return datasets

    def test_a_name_means_its_newest_version(self, three):
        assert three.resolve("digits").ref == "digits@11"
        assert three.resolve("digits-big").ref == "digits-big@1"

    def test_a_version_means_itself(self, three):
        assert three.resolve("digits@2").ref == "digits@2"

    def test_versions_are_listed_by_name_newest_first(self, three):
        expected = [f"digits@{number}" for number in range(11, 0, -1)]
        assert [record.ref for record in three.versions()] == [*expected, "digits-big@1"]
        assert [record.ref for record in three.versions("digits-big")] == ["digits-big@1"]

    @pytest.mark.parametrize(
        ("ref", "message", "hint"),
        [
            ("digits@12", "no dataset `digits@12`", "there is digits@7, .*digits@11"),
            ("digit", "no dataset `digit` in", "there is digits, digits-big; or launch data push"),
            ("digit@1", "no dataset `digit@1` in", "launch data push DIR digit$"),
        ],
    )
    def test_what_is_not_there_is_answered_with_what_is(self, three, ref, message, hint):
        with pytest.raises(NotFound, match=message) as error:
            three.resolve(ref)
        assert re.search(hint, error.value.hint)

    def test_an_empty_store_says_how_to_push(self, datasets):
        with pytest.raises(NotFound) as error:
            datasets.resolve("digits")
        assert error.value.hint == "launch data push DIR digits"

    @pytest.mark.parametrize(
        "ref", ["digits@", "digits@0", "digits@x", "digits@-1", "digits@²", "digits@" + "9" * 5000]
    )
    def test_a_version_that_is_no_number_is_a_usage_error(self, ref):
        with pytest.raises(LaunchError, match="names no version"):
            parse_ref(ref)

    def test_a_record_of_a_newer_launch_is_named(self, datasets, store):
        store.blobs["_datasets/digits/1.json"] = b'{"schema": 2}'
        with pytest.raises(EnvironmentFailure, match=r"`_datasets/digits/1.json` cannot be read"):
            datasets.resolve("digits@1")


class TestPull:
    def test_the_files_come_back_as_they_were(self, datasets, folder, tmp_path):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        pulled = datasets.pull(dataset, tmp_path / "to")
        assert pulled == Pulled(files_received=3, bytes_received=8)
        assert read_folder(tmp_path / "to") == read_folder(folder)

    def test_only_what_differs_is_received_and_what_else_is_there_stays(
        self, datasets, store, folder, tmp_path
    ):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        make_folder(tmp_path / "to", {"a": b"ONE", "sub/c": b"three", "mine": b"kept"})
        pulled = datasets.pull(dataset, tmp_path / "to")
        assert pulled == Pulled(files_received=2, bytes_received=3)
        assert read_folder(tmp_path / "to") == {**read_folder(folder), "mine": b"kept"}
        store.received.clear()
        again = datasets.pull(dataset, tmp_path / "to")
        assert again == Pulled(files_received=0, bytes_received=0)
        assert store.received == []

    @pytest.mark.parametrize("damaged", [b"", b"thre!", b"three!"])
    def test_a_damaged_blob_never_gets_its_name(self, datasets, store, folder, tmp_path, damaged):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        store.blobs[f"digits/{dataset.digest}/sub/c"] = damaged
        with pytest.raises(EnvironmentFailure, match="/sub/c` came from the store with another"):
            datasets.pull(dataset, tmp_path / "to")
        assert "sub/c" not in read_folder(tmp_path / "to")
        assert not [name for name in read_folder(tmp_path / "to") if name.endswith(".part")]

    def test_a_list_of_files_that_was_changed_is_refused(self, datasets, store, folder, tmp_path):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        name = f"_datasets/digits/{dataset.digest}.files.jsonl"
        whole = store.blobs[name]
        for content, message in (
            (whole.replace(b"sub/c", b"sub/d"), "does not have the digest"),
            (whole.replace(b'"bytes":5', b'"bytes":-'), "cannot be read"),
            (b"\n".join(reversed(whole.splitlines())), "is not sorted"),
            (whole + whole, "is not sorted"),
            (b"", "does not have the digest"),
        ):
            store.blobs[name] = content
            with pytest.raises(EnvironmentFailure, match=message):
                datasets.pull(dataset, tmp_path / "to")
        assert not (tmp_path / "to").exists()

    @pytest.mark.parametrize("damaged", [None, b""], ids=["missing", "emptied"])
    def test_what_a_lost_list_of_files_says_to_type_brings_the_content_back(
        self, datasets, store, folder, tmp_path, damaged
    ):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        name = f"_datasets/digits/{dataset.digest}.files.jsonl"
        store.blobs.pop(name)
        if damaged is not None:
            store.blobs[name] = damaged
        with pytest.raises(EnvironmentFailure) as caught:
            datasets.pull(dataset, tmp_path / "to")
        assert caught.value.hint == "launch data rm digits@1, then push it again"
        datasets.remove(datasets.plan_removal("digits@1"))
        again = datasets.push(folder, "digits")
        assert (again.dataset.ref, again.already) == ("digits@2", False)
        datasets.pull(again.dataset.pinned(), tmp_path / "to")
        assert read_folder(tmp_path / "to") == read_folder(folder)

    def test_a_hostile_list_with_its_own_digest_writes_nothing_outside(
        self, datasets, store, tmp_path
    ):
        content = b"evil"
        line = {
            "path": "../evil",
            "bytes": 4,
            "sha256": hashlib.sha256(content).hexdigest(),
            "md5": hashlib.md5(content).hexdigest(),
        }
        digest = hashlib.sha256(f"{line['sha256']} 4 ../evil\n".encode()).hexdigest()
        store.blobs[f"_datasets/d/{digest}.files.jsonl"] = msgspec.json.encode(line) + b"\n"
        store.blobs[f"d/{digest}/../evil"] = content
        dataset = DatasetVersion(name="d", version=1, digest=digest, files=1, bytes=4)
        with pytest.raises(LaunchError, match="cannot be used in a dataset"):
            datasets.pull(dataset, tmp_path / "to")
        assert read_folder(tmp_path) == {}


class TestMaterialise:
    @pytest.fixture
    def environment(self, tmp_path, store, monkeypatch):
        monkeypatch.setattr(data, "open_data_store", lambda _, sas_file: store)
        return make_environment(tmp_path / "workspace")

    def test_content_lies_under_its_digest_and_is_read_only(
        self, environment, datasets, folder, tmp_path
    ):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        found = materialise(dataset, environment, tmp_path / "workspace")
        assert found == tmp_path / "workspace" / "inputs" / dataset.digest
        assert read_folder(found) == read_folder(folder)
        modes = {path.stat().st_mode & 0o777 for path in found.rglob("*") if path.is_file()}
        assert modes == {0o444}

    def test_a_second_time_the_store_is_not_asked(
        self, environment, datasets, folder, tmp_path, monkeypatch
    ):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        first = materialise(dataset, environment, tmp_path / "workspace")
        monkeypatch.setattr(data, "open_data_store", None)
        assert materialise(dataset, environment, tmp_path / "workspace") == first

    def test_many_at_once_download_once(self, environment, datasets, store, folder, tmp_path):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        with ThreadPoolExecutor(8) as pool:
            found = set(
                pool.map(
                    lambda _: materialise(dataset, environment, tmp_path / "workspace"), range(8)
                )
            )
        assert len(found) == 1
        assert len(store.received) == 3

    def test_after_a_failure_the_next_goes_on_with_what_is_there(
        self, environment, datasets, store, folder, tmp_path
    ):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        lost = store.blobs.pop(f"digits/{dataset.digest}/sub/c")
        with pytest.raises(EnvironmentFailure):
            materialise(dataset, environment, tmp_path / "workspace")
        assert not (tmp_path / "workspace" / "inputs" / dataset.digest).exists()
        store.blobs[f"digits/{dataset.digest}/sub/c"] = lost
        found = materialise(dataset, environment, tmp_path / "workspace")
        assert read_folder(found) == read_folder(folder)

    def test_a_folder_has_its_name_only_when_the_disk_has_its_files(
        self, environment, datasets, store, folder, tmp_path, monkeypatch
    ):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        final = tmp_path / "workspace" / "inputs" / dataset.digest

        def fail(partial):
            assert (read_folder(partial), final.exists()) == (read_folder(folder), False)
            raise OSError(5, "Input/output error", str(partial))

        with monkeypatch.context() as patched:
            patched.setattr("jobs.host.files._sync_file_system_of", fail)
            with pytest.raises(EnvironmentFailure, match="Input/output error"):
                materialise(dataset, environment, tmp_path / "workspace")
        assert not final.exists()
        assert materialise(dataset, environment, tmp_path / "workspace") == final
        assert len(store.received) == 3

    def test_a_digest_that_is_a_path_is_refused(self, environment, tmp_path):
        dataset = DatasetVersion(name="d", version=1, digest="../../etc", files=1, bytes=1)
        with pytest.raises(LaunchError, match="invalid digest"):
            materialise(dataset, environment, tmp_path / "workspace")

    def test_resolve_and_list_give_pinned_versions(self, environment, datasets, folder):
        dataset = datasets.push(folder, "digits").dataset.pinned()
        assert resolve_dataset(environment, "digits") == dataset
        assert [each.pinned() for each in Datasets.of(environment).versions()] == [dataset]
