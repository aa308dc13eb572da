"""Full and unwritable disks: one clear error, nothing half done, and never a hang."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure, ExitCode
from jobs.contracts.spec import RunState
from jobs.runs.outcome import headline
from tests.fakes.gangs import Gangs
from tests.mounts import fill

DISK_BYTES = 4 << 20


@pytest.mark.parametrize("leave", [0, 4096, 8192, 16384, 32768])
def test_submit_to_a_full_disk_fails_clearly_and_leaves_nothing(
    small_disk: Path, leave: int
) -> None:
    gangs = Gangs(small_disk / "workspace")
    gangs.submit(["true"])
    gangs.wait(gangs.handles[0])
    gangs.wait_until_gone(gangs.handles[0])
    code = small_disk.parent / "code"
    code.mkdir()
    (code / "large.bin").write_bytes(b"x" * (1 << 16))
    ballast = fill(small_disk, leave=leave)
    before = [status.id for status in gangs.engine.store.list(None)]
    with pytest.raises(EnvironmentFailure, match="No space left on device") as caught:
        gangs.submit(["true"], code=str(code))
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert caught.value.hint == "free some space, or correct the folder's permissions"
    assert [status.id for status in gangs.engine.store.list(None)] == before
    assert gangs.engine.store.names() == before
    queue = small_disk / "workspace" / "clusters" / "cpu-test" / "queue"
    assert list(queue.iterdir()) == []
    ballast.unlink()
    again = gangs.submit(["true"], code=str(code))
    assert gangs.wait(again).state is RunState.COMPLETED
    gangs.end()


def test_disk_that_fills_during_a_run_ends_in_a_clear_failure(small_disk: Path) -> None:
    gangs = Gangs(small_disk / "workspace")
    program = """
import os, pathlib
target = pathlib.Path(os.environ["TRAINYARD_OUTPUT_MODEL"], os.environ["RANK"])
with target.open("wb") as file:
    while True:
        file.write(b"x" * 65536)
"""
    handle = gangs.python(program, outputs=("model",))
    status = gangs.wait(handle, 30)
    gangs.wait_until_gone(handle)
    assert (status.state, status.exit_code) == (RunState.FAILED, 1), status
    assert "OSError: [Errno 28] No space left on device" in (status.reason or "")
    gangs.end()


def test_log_that_cannot_be_written_does_not_end_the_training(small_disk: Path) -> None:
    gangs = Gangs(small_disk / "workspace")
    ready = small_disk.parent / "ready"
    program = f"""
import os, pathlib, time
ready = pathlib.Path({str(ready)!r})
ready.with_name("started" + os.environ["RANK"]).touch()
while not ready.exists():
    time.sleep(0.02)
for number in range(1000):
    print("x" * 1000)
"""
    handle = gangs.python(program)
    gangs.wait_for_file(handle, "ranks/00001.json")
    for rank in (0, 1):
        gangs.wait_for_file(handle, str(ready.with_name(f"started{rank}")))
    ballast = fill(small_disk, leave=200_000)
    ready.touch()
    status = gangs.wait(handle, 30)
    ballast.unlink()
    assert (status.state, status.exit_code) == (RunState.COMPLETED, 0)
    told = re.fullmatch(
        r"rank 0: log: No space left on device, (\d+) bytes lost; "
        r"rank 1: log: No space left on device, (\d+) bytes lost",
        status.reason or "",
    )
    assert told is not None, status.reason
    assert headline(status, None).endswith(f": {told[0]}")
    # Each rank wrote a thousand lines of 1,028 bytes, its time included.
    kept = sum(each.stat().st_size for each in Path(handle.run_dir, "logs").iterdir())
    gaps = 2  # where a log goes on behind a line that was cut off
    assert 0 <= kept + int(told[1]) + int(told[2]) - 2 * 1000 * 1029 <= gaps
    gangs.wait_until_gone(handle)
    gangs.end()


def test_file_in_the_way_of_the_runs_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "workspace").write_text("in the way")
    gangs = Gangs(tmp_path / "workspace")
    with pytest.raises(EnvironmentFailure) as caught:
        gangs.submit(["true"])
    place = tmp_path / "workspace" / "runs"
    assert caught.value.message == f"cannot write a run in `{place}`: Not a directory"


def test_read_only_workspace_is_named_and_stays_as_it_was(small_disk: Path) -> None:
    gangs = Gangs(small_disk)
    gangs.wait(gangs.submit(["true"]))
    gangs.wait_until_gone(gangs.handles[0])
    before = sorted(small_disk.rglob("*"))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(EnvironmentFailure, match="Read-only file system"):
        gangs.submit(["true"])
    assert sorted(small_disk.rglob("*")) == before
