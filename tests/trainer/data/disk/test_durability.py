"""What is on the disk for good is known while more is written, and is all that a crash leaves."""

from __future__ import annotations

import json
import zipfile

from tests.busy import wait_until
from tests.folders import read_prepared
from tests.trainer.data.prepare.test_unpack import unpack_whole
from trainer.data.disk.durability import SYNC_BYTES, BackgroundSync, boot_id


def test_files_count_once_enough_is_written_and_on_the_disk(tmp_path):
    sync = BackgroundSync(tmp_path)
    sync.wrote(SYNC_BYTES - 1, 1)
    assert sync._thread is None
    sync.wrote(1, 2)
    wait_until(lambda: sync.num_durable)
    assert sync.num_durable == 2


def test_after_a_crash_the_files_known_to_be_on_the_disk_stay_and_the_others_are_written(tmp_path):
    contents = {f"{number}.jpg": bytes([number]) * 1000 for number in range(1, 5)}
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name, content in contents.items():
            packed.writestr(name, content)
    partial = tmp_path / ".out.partial"
    (partial / "data").mkdir(parents=True)
    (partial / "state").mkdir()
    for name in contents:
        (partial / "data" / name).write_bytes(b"?" * 1000)
    status = archive.stat()
    known = {"name": "a.zip", "archive_bytes": status.st_size, "num_files": 2}
    known["archive_mtime_ns"] = status.st_mtime_ns
    state = {"schema": 1, "dataset": "any", "boot": "before", "archives": [known]}
    (partial / "state" / "archives.json").write_text(json.dumps(state))
    unpack_whole(archive, tmp_path / "out")
    kept = {"1.jpg": b"?" * 1000, "2.jpg": b"?" * 1000}
    assert read_prepared(tmp_path / "out") == contents | kept
    assert boot_id() != "before"
