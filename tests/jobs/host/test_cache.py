"""Things built once: keys, the lock that outlives its holder, and commands with a log."""

import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.cache import cache_root, content_key, exclusive, run_logged
from tests.busy import wait_until


@pytest.fixture
def steps():
    """A report that remembers what it was told."""
    told = []

    @contextmanager
    def report(step):
        told.append(step)
        yield

    report.told = told
    return report


def test_the_cache_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/trainyard")
    assert cache_root({"XDG_CACHE_HOME": ""}) == tmp_path / ".cache" / "trainyard"


def test_a_key_depends_on_every_part_and_on_where_parts_end():
    assert content_key(["ab", b"c"]) == content_key([b"ab", "c"])
    assert len({content_key(parts) for parts in (["ab", "c"], ["a", "bc"], ["abc"], [])}) == 4


HOLDER = """
    import subprocess, sys, time
    from contextlib import nullcontext
    from pathlib import Path
    from jobs.host.cache import exclusive
    UNTIL = 'until [ -e "$1" ]; do sleep 0.01; done'
    with exclusive(Path(sys.argv[1]), what="it", report=nullcontext) as lock:
        child = subprocess.Popen(["sh", "-c", UNTIL, "sh", sys.argv[2]], pass_fds=[lock])
        print("held", flush=True)
        time.sleep(60)
"""


def test_a_lock_is_held_until_the_killed_holders_children_are_gone(tmp_path, steps):
    path, gate = tmp_path / "thing.lock", tmp_path / "gate"
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(path), str(gate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGKILL)

    def let_the_child_go():
        wait_until(lambda: steps.told)
        gate.touch()

    with ThreadPoolExecutor(1) as pool:
        released = pool.submit(let_the_child_go)
        with exclusive(path, what="the thing", report=steps):
            assert gate.exists()
        released.result()
    assert steps.told == ["waiting for another process that makes the thing"]


def test_a_free_lock_is_taken_without_a_word(tmp_path, steps):
    for _ in range(2):
        with exclusive(tmp_path / "deep" / "thing.lock", what="the thing", report=steps):
            pass
    assert steps.told == []


def test_a_command_logs_what_it_ran_and_said(tmp_path):
    log = tmp_path / "logs" / "x.log"
    run_logged(["sh", "-c", "echo out; echo err >&2"], what="x", log=log)
    run_logged(
        ["sh", "-c", 'echo "$MARK"; pwd'], what="x", log=log, cwd=tmp_path, env={"MARK": "m"}
    )
    assert log.read_text() == (
        f'+ sh -c echo out; echo err >&2\nout\nerr\n+ sh -c echo "$MARK"; pwd\nm\n{tmp_path}\n'
    )


def test_a_failed_command_shows_its_last_lines_and_its_log(tmp_path):
    log = tmp_path / "x.log"
    with pytest.raises(EnvironmentFailure) as caught:
        run_logged(["sh", "-c", "seq 30; exit 3"], what="counting", log=log, hint="count less")
    tail = "\n".join(f"  | {number}" for number in range(16, 31))
    assert caught.value.message == f"counting failed (exit code 3); the end of {log}:\n{tail}"
    assert caught.value.hint == "count less"


def test_a_command_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(EnvironmentFailure) as caught:
        run_logged([tmp_path / "gone"], what="trying", log=tmp_path / "x.log")
    assert caught.value.message == (
        f"trying: cannot start {tmp_path}/gone: No such file or directory"
    )
