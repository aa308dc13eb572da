"""One rank, started as it is on every engine: what its command did is what its record says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.busy import HANG_S

START = """
import sys
from jobs.rank import main as rank

def broken(*_):
    raise StopIteration

for name in sys.argv[2:]:
    setattr(rank.Log, name, broken)
sys.exit(rank.main())
"""


def run_rank(folder: Path, command: list[str], *broken: str) -> tuple[int, dict[str, Any]]:
    """Run a rank whose log breaks at these methods; gives its exit code and its record."""
    for name in ("code", "logs", "nodes", "outputs", "ranks"):
        (folder / name).mkdir()
    job = folder / "rank.json"
    job.write_text(json.dumps({"run_dir": str(folder), "command": command}))
    argv = [sys.executable, "-c", START, str(job), *broken]
    done = subprocess.run(argv, timeout=HANG_S, check=False)
    return done.returncode, json.loads((folder / "ranks" / "00000.json").read_bytes())


def test_fault_of_the_recorder_leaves_the_verdict_as_it_is(tmp_path: Path) -> None:
    # More than a pipe holds: where nobody reads it, the command stands still.
    loud = ["sh", "-c", "yes | head -c 3000000; exit 7"]
    broken = ("feed", "show_progress", "flush", "traceback", "last_lines")
    code, record = run_rank(tmp_path, loud, *broken)
    names = ("stage", "exit_code", "signal", "last_lines", "log_error")
    told = {name: record[name] for name in names}
    assert (code, told) == (
        7,
        {
            "stage": "command",
            "exit_code": 7,
            "signal": None,
            "last_lines": "",
            "log_error": "log: StopIteration",
        },
    )


def test_command_with_a_nul_is_one_that_cannot_start_and_says_so(tmp_path: Path) -> None:
    code, record = run_rank(tmp_path, ["true", "a\0b"])
    assert (code, record["last_lines"]) == (127, "cannot start `true`: embedded null byte")


def test_command_that_closes_its_output_and_goes_on_is_recorded_as_that(tmp_path: Path) -> None:
    """It goes on until the record says so."""
    record = tmp_path / "ranks" / "00000.json"
    until_told = f"""until grep -q '"output_closed_s": [0-9]' {record}; do :; done"""
    code, told = run_rank(tmp_path, ["sh", "-c", f"echo a; exec >&- 2>&-; {until_told}; exit 7"])
    assert code == told["exit_code"] == 7
    assert told["started_s"] < told["output_closed_s"] < told["exited_s"] <= told["ended_s"]


def test_node_whose_code_cannot_be_copied_says_what_and_where_once(tmp_path: Path) -> None:
    """A file that may not grow so large stands in for a full disk: both fail in the midst of a write."""
    for name in ("code", "logs", "nodes", "outputs", "ranks"):
        (tmp_path / name).mkdir()
    (tmp_path / "code" / "large.bin").write_bytes(b"x" * 200_000)
    job = tmp_path / "rank.json"
    job.write_text(json.dumps({"run_dir": str(tmp_path), "command": ["true"]}))
    ends: list[tuple[int, bytes, str, str]] = []
    # By itself and not between fork and exec, where a gRPC of other tests may say that it is there.
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000,) * 2)\n{START}"
    for rank in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", limited, str(job)],
            env={**os.environ, "RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
            stderr=subprocess.PIPE,
            timeout=HANG_S,
            check=False,
        )
        record = json.loads((tmp_path / "ranks" / f"0000{rank}.json").read_bytes())
        ends.append((done.returncode, done.stderr, record["stage"], record["last_lines"]))
    why = (
        f"error: cannot prepare the node's folder `{tmp_path}/nodes/0`: File too large "
        "(hint: free some space, or correct the folder's permissions)"
    )
    assert ends == [(1, b"", "setup", why), (1, b"", "setup", "")]
    # What there is of it would be in the way of the record and the log.
    assert sorted(each.name for each in (tmp_path / "nodes").iterdir()) == ["0.done", "0.lock"]


def test_process_whose_parent_is_gone_already_ends() -> None:
    """A command, forked just before its rank was killed, asks for its parent's end too late."""
    asks = "import os; from jobs.rank.main import die_with_parent; die_with_parent({})"
    codes = [
        subprocess.run([sys.executable, "-c", asks.format(parent)], check=False).returncode
        for parent in ("os.getppid()", "os.getpid()", "")
    ]
    assert codes == [0, -signal.SIGKILL, 0]
