"""Azcopy reads what `launch data push` wrote, and finds each file's MD5 right."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas

from jobs.blobs.store import BLOCK_BYTES
from tests import seeds
from tests.bench.azcopy import Azcopy, installed_azcopy
from tests.faults.transfer_campaign import FlakyStore, flaky_store
from tests.folders import make_folder, read_folder

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def azcopy() -> Azcopy:
    try:
        return installed_azcopy(PROJECT)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.fail(f"the environment of the tests: no azcopy: {error}", pytrace=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FlakyStore]:
    with flaky_store(tmp_path / "store") as made:
        yield made


@pytest.mark.faults
def test_azcopy_reads_a_push_and_finds_its_md5s_right(
    store: FlakyStore, azcopy: Azcopy, tmp_path: Path
) -> None:
    contents = {
        "empty": b"",
        "large": seeds.content(3 * BLOCK_BYTES + 1),
        "sub/ü 日本": b"1",
        "sub/100%25?#+&=~;,'()[]": b"2",
        **{f"many/{number:03}": seeds.content(number) for number in range(1, 100)},
    }
    store.succeed("push", str(make_folder(tmp_path / "from", contents)), "peer")
    record = next(each for each in store.open().list("peer/"))
    folder = "/".join(record.name.split("/")[:2])
    storage = store.environment.storage
    token = generate_container_sas(
        storage.account,
        storage.containers.data,
        account_key=(store.storage / "account.key").read_text().strip(),
        permission=ContainerSasPermissions(read=True, list=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    url = f"{storage.blob_endpoint}/{storage.containers.data}/{folder}?{token}"
    command = azcopy.download(url, tmp_path / "to", "--check-md5=FailIfDifferentOrMissing")
    done = subprocess.run(
        command.argv, env={**os.environ, **command.env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    (root,) = (tmp_path / "to").iterdir()
    assert read_folder(root) == contents
