"""The ends of versions: removed for good, mirrored, registered where they lie, compared."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import msgspec
import pytest

from jobs.contracts.errors import EnvironmentFailure, LaunchError, NotFound
from jobs.datasets import making
from jobs.datasets.compare import Change, Share, changes, shares_of
from jobs.datasets.datasets import Datasets
from jobs.datasets.pull import Pulled, Surplus
from tests.fakes.blob_store import MemoryStore
from tests.folders import make_folder, read_folder

pytestmark = pytest.mark.usefixtures("own_cache")


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def datasets(store) -> Datasets:
    return Datasets(store)


@pytest.fixture
def folder(tmp_path) -> Path:
    return make_folder(tmp_path / "folder", {"a": b"one", "sub/b": b"", "sub/c": b"three"})


def push_versions(datasets: Datasets, tmp_path: Path, *contents: dict[str, bytes]) -> None:
    for number, each in enumerate(contents):
        datasets.push(make_folder(tmp_path / f"v{number}", each), "d")


class TestRemove:
    def test_it_tells_how_many_files_are_gone(self, datasets, tmp_path):
        push_versions(datasets, tmp_path, {"a": b"1", "b": b"2", "c": b"3"})
        told = []
        datasets.remove(datasets.plan_removal("d@1"), told.append)
        assert [(each.files_done, each.files) for each in told] == [(0, 3), (1, 3), (2, 3), (3, 3)]

    def test_a_version_goes_with_its_content_and_its_number_stays_taken(
        self, datasets, store, tmp_path
    ):
        push_versions(datasets, tmp_path, {"a": b"1"}, {"a": b"2"})
        datasets.remove(datasets.plan_removal("d@2"))
        assert [record.ref for record in datasets.versions()] == ["d@1"]
        digest = datasets.resolve("d").digest
        assert set(store.blobs) == {
            "_datasets/d/1.json",
            "_datasets/d/2.removed.json",
            f"_datasets/d/{digest}.files.jsonl",
            f"d/{digest}/a",
        }
        with pytest.raises(NotFound, match=r"`d@2` was removed on 20\d\d-\d\d-\d\d") as error:
            datasets.resolve("d@2")
        assert error.value.hint == "there is d@1"
        (tmp_path / "v1" / "a").write_bytes(b"3")
        assert datasets.push(tmp_path / "v1", "d").dataset.ref == "d@3"

    def test_the_last_version_leaves_its_number_too(self, datasets, tmp_path):
        push_versions(datasets, tmp_path, {"a": b"1"})
        datasets.remove(datasets.plan_removal("d@1"))
        assert datasets.versions() == []
        with pytest.raises(NotFound, match="no dataset `d` in the store"):
            datasets.resolve("d")
        again = datasets.push(tmp_path / "v0", "d")
        assert (again.dataset.ref, again.files_sent) == ("d@2", 1)
        datasets.pull(again.dataset.pinned(), tmp_path / "to")
        assert read_folder(tmp_path / "to") == {"a": b"1"}

    def test_a_version_has_to_be_named_and_to_be_there(self, datasets, tmp_path):
        push_versions(datasets, tmp_path, {"a": b"1"})
        with pytest.raises(LaunchError, match="names no version"):
            datasets.plan_removal("d")
        with pytest.raises(NotFound, match="no dataset `d@2`"):
            datasets.plan_removal("d@2")
        removal = datasets.plan_removal("d@1")
        datasets.remove(removal)
        with pytest.raises(NotFound, match="was removed on"):
            datasets.plan_removal("d@1")
        datasets.remove(removal)  # no harm
        assert datasets.versions() == []

    @pytest.mark.parametrize("ending", ["d@1", "d@2"])
    def test_beside_a_record_that_a_newer_launch_wrote_nothing_is_begun(
        self, datasets, store, tmp_path, ending
    ):
        """It may share the content, and a removal that stops half way would lock out each push."""
        push_versions(datasets, tmp_path, {"a": b"1"}, {"a": b"2"}, {"a": b"3"})
        newer = store.blobs["_datasets/d/3.json"].replace(b'"schema":1', b'"schema":2')
        store.blobs["_datasets/d/3.json"] = newer
        before = dict(store.blobs)
        with pytest.raises(EnvironmentFailure) as caught:
            datasets.remove(datasets.plan_removal(ending))
        assert caught.value.message == (
            f"`{ending}` was not removed, as another version may share its files: "
            "`_datasets/d/3.json` cannot be read: Invalid enum value 2 - at `$.schema`"
        )
        assert caught.value.hint == "a newer `launch` may have written it"
        assert store.blobs == before

    @pytest.mark.parametrize("step", range(9))  # the last kills nothing
    def test_killed_anywhere_it_is_gone_on_with(self, datasets, store, tmp_path, step):
        push_versions(datasets, tmp_path, {"a": b"1", "b": b"2", "c": b"3"}, {"x": b"other"})
        removal = datasets.plan_removal("d@1")
        store.kill_before_write(step, Killed)
        try:
            datasets.remove(removal)
            was_killed = False
        except Killed:
            was_killed = True
        store.kill_before_write(None, Killed)
        assert was_killed == (step < 8)
        if was_killed:
            datasets.remove(datasets.plan_removal("d@1"))
        names = [name for name in store.blobs if removal.dataset.digest in name]
        assert names == []
        assert [record.ref for record in datasets.versions()] == ["d@2"]
        assert datasets.push(tmp_path / "v0", "d").dataset.ref == "d@3"

    def test_a_push_of_equal_content_waits_for_a_removal_that_is_under_way(
        self, datasets, store, tmp_path, monkeypatch
    ):
        push_versions(datasets, tmp_path, {"a": b"1", "b": b"2"})
        removal = datasets.plan_removal("d@1")
        store.kill_before_write(4, Killed)
        with pytest.raises(Killed):
            datasets.remove(removal)
        store.kill_before_write(None, Killed)
        with pytest.raises(EnvironmentFailure, match="is being removed"):
            datasets.push(tmp_path / "v0", "d")
        datasets.remove(datasets.plan_removal("d@1"))
        assert datasets.push(tmp_path / "v0", "d").dataset.ref == "d@2"

    def test_a_push_that_a_removal_overtakes_sends_the_content_again(
        self, datasets, store, tmp_path
    ):
        """Somebody lists the content as there; then it goes; then they make their version."""
        push_versions(datasets, tmp_path, {"a": b"1", "b": b"2"})
        removal = datasets.plan_removal("d@1")
        folder = make_folder(tmp_path / "same", {"a": b"1", "b": b"2"})
        # As a machine that began to push before there was a version, and got that far.
        store.delete(["_datasets/d/1.json"])
        store.blobs.pop(f"_datasets/d/{removal.dataset.digest}.files.jsonl")

        def overtake(name: str) -> None:
            if name.endswith("d/1.json"):
                store.before_create = lambda _: None
                datasets.remove(removal)

        store.before_create = overtake
        pushed = datasets.push(folder, "d")
        assert pushed.dataset.version in (1, 2)
        datasets.pull(pushed.dataset.pinned(), tmp_path / "to")
        assert read_folder(tmp_path / "to") == {"a": b"1", "b": b"2"}

    @pytest.mark.parametrize("num_pushes", [6, 30])
    def test_pushes_and_removals_at_once_leave_whole_versions_only(
        self, store, tmp_path, monkeypatch, num_pushes
    ):
        monkeypatch.setattr(making, "REMOVAL_S", 5.0)
        folder = make_folder(tmp_path / "f", {"a": b"1", "b": b"2", "c": b"3"})
        over = threading.Event()

        def remove_all() -> None:
            mine = Datasets(store)
            while not over.is_set():
                for record in mine.versions("d"):
                    try:
                        mine.remove(mine.plan_removal(record.ref))
                    except NotFound:
                        continue

        remover = threading.Thread(target=remove_all)
        remover.start()
        pushed = 0
        try:
            while pushed < num_pushes:
                try:
                    Datasets(store).push(folder, "d")
                except EnvironmentFailure:
                    continue
                pushed += 1
        finally:
            over.set()
            remover.join()
        mine = Datasets(store)
        final = mine.push(folder, "d").dataset
        mine.pull(final.pinned(), tmp_path / "to")
        assert read_folder(tmp_path / "to") == read_folder(folder)
        assert [record.ref for record in mine.versions("d")] == [final.ref]


class TestMirror:
    def test_what_the_version_does_not_have_goes_after_it_was_shown(
        self, datasets, folder, tmp_path
    ):
        dataset = datasets.push(folder, "d").dataset.pinned()
        outside = make_folder(tmp_path / "outside", {"kept": b"kept"})
        target = make_folder(
            tmp_path / "to", {"a": b"ONE", "old/1": b"", "old/deep/2": b"", "sub/x": b"", "z": b""}
        )
        (target / "link").symlink_to(outside)
        shown: list[Surplus] = []
        pulled = datasets.pull(dataset, target, delete=lambda s: shown.append(s) or True)
        names = ("link", "old/1", "old/deep/2", "sub/x", "z")
        assert shown == [Surplus(count=5, first=names)]
        assert pulled == Pulled(files_received=3, bytes_received=8, files_deleted=5)
        assert read_folder(target) == read_folder(folder)
        assert sorted(path.name for path in target.iterdir()) == ["a", "sub"]
        assert read_folder(outside) == {"kept": b"kept"}

    def test_a_no_deletes_and_receives_nothing(self, datasets, folder, tmp_path):
        dataset = datasets.push(folder, "d").dataset.pinned()
        target = make_folder(tmp_path / "to", {"old": b""})
        with pytest.raises(LaunchError, match="nothing was deleted"):
            datasets.pull(dataset, target, delete=lambda _: False)
        assert read_folder(target) == {"old": b""}

    def test_a_dry_run_changes_nothing(self, datasets, folder, tmp_path):
        dataset = datasets.push(folder, "d").dataset.pinned()
        target = make_folder(tmp_path / "to", {"old": b"", "a": b"one"})
        pulled = datasets.pull(dataset, target, is_dry=True, delete=lambda _: True)
        assert pulled == Pulled(files_received=2, bytes_received=5, files_deleted=1)
        assert read_folder(target) == {"old": b"", "a": b"one"}
        assert datasets.pull(dataset, tmp_path / "no", is_dry=True).files_received == 3
        assert not (tmp_path / "no").exists()

    def test_a_folder_in_the_way_of_a_file_and_the_other_way_round(self, datasets, tmp_path):
        folder = make_folder(tmp_path / "f", {"a": b"1", "b/c": b"2"})
        dataset = datasets.push(folder, "d").dataset.pinned()
        target = make_folder(tmp_path / "to", {"a/x": b"", "b": b""})
        with pytest.raises(EnvironmentFailure):
            datasets.pull(dataset, target)
        datasets.pull(dataset, target, delete=lambda _: True)
        assert read_folder(target) == {"a": b"1", "b/c": b"2"}

    def test_names_that_no_dataset_has_are_shown_and_go(self, datasets, folder, tmp_path):
        dataset = datasets.push(folder, "d").dataset.pinned()
        target = make_folder(tmp_path / "to", {"new\nline": b"", "\udcff": b"", "sub/t\tb": b""})
        shown: list[Surplus] = []
        datasets.pull(dataset, target, delete=lambda s: shown.append(s) or True)
        assert shown[0].first == ("new\nline", "sub/t\tb", "\udcff")
        assert read_folder(target) == read_folder(folder)


class TestCase:
    def test_a_disk_that_folds_case_gets_no_half_of_a_version(
        self, datasets, tmp_path, monkeypatch
    ):
        folder = make_folder(tmp_path / "f", {"A": b"1", "a": b"2"})
        dataset = datasets.push(folder, "d").dataset.pinned()
        datasets.pull(dataset, tmp_path / "to")
        assert read_folder(tmp_path / "to") == {"A": b"1", "a": b"2"}
        monkeypatch.setattr("jobs.datasets.pull.folds_case", lambda _: True)
        with pytest.raises(LaunchError, match="`A` and `a` are the same name on the disk"):
            datasets.pull(dataset, tmp_path / "mac")
        assert read_folder(tmp_path / "mac") == {}


class TestRegister:
    @pytest.fixture
    def raw(self, store) -> MemoryStore:
        store.blobs |= {"raw/p/a": b"one", "raw/p/sub/c": b"three", "raw/p/sub/": b"", "rawx": b""}
        return store

    def test_data_that_is_there_becomes_a_version_where_it_lies(self, datasets, raw, tmp_path):
        before = dict(raw.blobs)
        record = datasets.register("photos", "/raw/p/").dataset
        sha = {content: hashlib.sha256(content).hexdigest() for content in (b"one", b"three")}
        lines = f"{sha[b'one']} 3 a\n{sha[b'three']} 5 sub/c\n"
        digest = hashlib.sha256(lines.encode()).hexdigest()
        assert (record.ref, record.digest, record.prefix) == ("photos@1", digest, "raw/p/")
        assert (record.files, record.bytes) == (2, 8)
        assert {name: raw.blobs[name] for name in before} == before
        assert msgspec.json.decode(raw.blobs["_datasets/photos/1.json"])["prefix"] == "raw/p/"
        datasets.pull(record.pinned(), tmp_path / "to")
        assert read_folder(tmp_path / "to") == {"a": b"one", "sub/c": b"three"}

    def test_content_that_changed_since_is_noticed(self, datasets, raw, tmp_path):
        record = datasets.register("photos", "raw/p").dataset
        raw.blobs["raw/p/a"] = b"ONE"
        with pytest.raises(EnvironmentFailure, match="with another content"):
            datasets.pull(record.pinned(), tmp_path / "to")

    def test_content_of_another_length_than_was_listed_is_refused(self, datasets, raw, monkeypatch):
        given = raw.content
        shorter = {"raw/p/sub/c": [b"thr"]}
        monkeypatch.setattr(raw, "content", lambda name: shorter.get(name) or given(name))
        with pytest.raises(EnvironmentFailure) as caught:
            datasets.register("photos", "raw/p")
        assert caught.value.message == (
            "`raw/p/sub/c` changed while it was read: it was listed with 5 bytes, and has 3"
        )
        assert datasets.versions() == []

    def test_equal_content_is_one_version_however_it_came(self, datasets, raw, tmp_path):
        datasets.register("photos", "raw/p")
        folder = make_folder(tmp_path / "f", {"a": b"one", "sub/c": b"three"})
        pushed = datasets.push(folder, "photos")
        assert (pushed.dataset.ref, pushed.already) == ("photos@1", True)
        assert datasets.register("photos", "raw/p").already

    def test_a_folder_of_the_datasets_own_name_is_registered_again(self, datasets, store, folder):
        store.blobs |= {"photos/a": b"1"}
        assert datasets.register("photos", "photos").dataset.ref == "photos@1"
        assert datasets.register("photos", "photos").already
        store.blobs |= {"photos/b": b"2"}
        assert datasets.register("photos", "photos").dataset.ref == "photos@2"
        assert datasets.register("others", "photos").dataset.ref == "others@1"
        datasets.remove(datasets.plan_removal("photos@1"))
        datasets.push(folder, "photos")
        with pytest.raises(LaunchError, match="holds the files of `photos` and is deleted with it"):
            datasets.register("photos", "photos")

    def test_what_a_removal_has_left_to_delete_is_registered_by_nobody(
        self, datasets, store, folder
    ):
        datasets.push(folder, "d")
        removal = datasets.plan_removal("d@1")
        store.kill_before_write(4, Killed)
        with pytest.raises(Killed):
            datasets.remove(removal)
        store.kill_before_write(None, Killed)
        with pytest.raises(LaunchError, match="holds the files of `d`"):
            datasets.register("photos", "d")

    def test_an_empty_blob_that_stands_for_a_folder_is_no_file(self, datasets, raw, tmp_path):
        """As tools of Hadoop make them: without a slash at the end, with `hdi_isfolder`."""
        raw.blobs |= {
            "raw/p/sub": b"",
            "raw/p/sub/d": b"",
            "raw/p/sub/d/e": b"4",
            "raw/p/sub-": b"",
        }
        record = datasets.register("photos", "raw/p").dataset
        assert (record.files, record.bytes) == (4, 9)
        datasets.pull(record.pinned(), tmp_path / "to")
        assert read_folder(tmp_path / "to") == {
            "a": b"one",
            "sub-": b"",
            "sub/c": b"three",
            "sub/d/e": b"4",
        }

    def test_a_file_that_is_a_folder_as_well_is_refused_by_name(self, datasets, raw):
        raw.blobs |= {"raw/p/sub": b"12"}
        with pytest.raises(LaunchError) as caught:
            datasets.register("photos", "raw/p")
        assert caught.value.message == (
            "`raw/p/sub` is a file of 2 bytes, and other files lie below it: no disk can hold both"
        )
        assert caught.value.hint == "rename one of them in the store"
        assert datasets.versions() == []

    def test_its_files_stay_when_it_is_removed(self, datasets, raw):
        datasets.register("photos", "raw/p")
        removal = datasets.plan_removal("photos@1")
        assert removal.content_stays == "as it was registered in place: raw/p/"
        datasets.remove(removal)
        assert raw.blobs["raw/p/a"] == b"one"
        assert datasets.versions() == []

    @pytest.mark.parametrize(
        "prefix", ["", "/", "_datasets", "_datasets/photos", "_models/net", "nothing"]
    )
    def test_a_prefix_without_data_is_refused(self, datasets, raw, prefix):
        with pytest.raises(LaunchError, match=r"cannot become a dataset|has no file under"):
            datasets.register("photos", prefix)
        assert datasets.versions() == []

    def test_what_was_pushed_belongs_to_its_own_dataset(self, datasets, folder):
        digest = datasets.push(folder, "d").dataset.digest
        for prefix in (f"d/{digest}", f"d/{digest}/sub", "d"):
            with pytest.raises(LaunchError, match="holds the files of `d`"):
                datasets.register("photos", prefix)

    def test_a_name_that_no_dataset_may_have_is_refused(self, datasets, raw):
        raw.blobs["raw/p/../../etc/passwd"] = b""
        with pytest.raises(LaunchError, match="cannot be used in a dataset"):
            datasets.register("photos", "raw/p")


class TestCompare:
    def test_two_versions_are_parted_by_path(self, datasets, tmp_path):
        push_versions(
            datasets,
            tmp_path,
            {"a": b"1", "b/c": b"22", "gone": b"333", "z": b""},
            {"a": b"1", "b-": b"4444", "b/c": b"55", "zz": b""},
        )
        pinned = [datasets.resolve(ref).pinned() for ref in ("d@1", "d@2")]
        with datasets.files(*pinned) as (ours, theirs):
            assert list(changes(ours, theirs)) == [
                Change(kind="added", path="b-", a=None, b=4),
                Change(kind="changed", path="b/c", a=2, b=2),
                Change(kind="removed", path="gone", a=3, b=None),
                Change(kind="removed", path="z", a=0, b=None),
                Change(kind="added", path="zz", a=None, b=0),
            ]
            assert list(changes(ours, ours)) == []

    def test_a_version_is_summed_up_by_folder_and_kind(self, datasets, tmp_path):
        contents = {"t/1.JPG": b"123", "t/x/2.jpg": b"4", "v/3.tar.gz": b"5", "readme": b"66"}
        push_versions(datasets, tmp_path, contents)
        with datasets.files(datasets.resolve("d").pinned()) as (files,):
            shares = shares_of(files)
        assert shares.folders == (
            Share(name="t/", files=2, bytes=4),
            Share(name=".", files=1, bytes=2),
            Share(name="v/", files=1, bytes=1),
        )
        assert shares.kinds == (
            Share(name=".jpg", files=2, bytes=4),
            Share(name="no ending", files=1, bytes=2),
            Share(name=".gz", files=1, bytes=1),
        )
