"""`launch` as a person uses it: its own process, the real local engine, real ranks."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jobs.rank.places import HISTORY
from tests import needs
from tests.busy import HANG_S, Bound
from tests.fakes import typed_launch
from tests.fakes.gangs import make_environment

LAUNCH = Path(sys.executable).with_name("launch")
PROJECT = Path(__file__).parents[2]

TRAIN = """\
import os, sys, time
rank = os.environ["RANK"]
print("rank", rank, "of", os.environ["WORLD_SIZE"], *sys.argv[1:], flush=True)
if "--wait-for" in sys.argv:
    while not os.path.exists(sys.argv[-1]):
        time.sleep(0.02)
if "--fail" in sys.argv and rank == "1":
    raise ValueError("no luck")
os.makedirs("outputs", exist_ok=True)
open(f"outputs/{rank}.txt", "w").write(os.environ.get("TOKEN", "none"))
print("done", flush=True)
"""
JOB = """\
name: mine
image: pytorch
launcher: none
script: train.py
processes_per_node: 2
"""


class Shell:
    """A folder with a job in it, and an environment of one node with two processes."""

    def __init__(self, folder):
        self.folder = folder
        self.workspace = folder / "workspace"
        made = make_environment(self.workspace, nodes=1, processes=2)
        free = msgspec.structs.replace(made.clusters["cpu"], price_per_node_hour=0.0)
        environment = msgspec.structs.replace(made, clusters={"cpu": free})
        (folder / "env.json").write_bytes(msgspec.json.encode(environment))
        (folder / "train.py").write_text(TRAIN)
        (folder / "job.yaml").write_text(JOB)
        self.opened = []

    def words(self, *words):
        return [str(LAUNCH), *words, "--env", "env.json"]

    def launch(self, *words, **variables):
        """Type a command and wait for its end."""
        environ = {**os.environ, **variables}
        return typed_launch.launch(self.folder, *words, "--env", "env.json", environ=environ)

    def open(self, *words, **options):
        """Type a command and let it go on."""
        process = subprocess.Popen(
            self.words(*words),
            cwd=self.folder,
            start_new_session=True,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )
        self.opened.append(process)
        return process

    def state(self, run="last"):
        return json.loads(self.launch("show", run, "--json").stdout)["state"]

    def wait_for_line(self, process, text):
        """Read stdout up to a line that ends so."""
        for line in process.stdout:
            if line.rstrip().endswith(text):
                return
        pytest.fail(f"ended without {text!r}: {process.stderr.read()}")

    def wait_for_runs(self, number):
        bound = Bound(60)
        while len(runs := json.loads(self.launch("ls", "--json").stdout)) < number:
            bound.check(runs)
        return runs

    def end(self):
        for process in self.opened:
            if process.poll() is None:
                process.kill()
            process.communicate()
        listed = json.loads(self.launch("ls", "--json", "--all").stdout or "[]")
        for run in listed:
            self.launch("cancel", run["id"])


@pytest.fixture
def shell(tmp_path):
    needs.runtime("pytorch")
    made = Shell(tmp_path)
    yield made
    made.end()


def test_a_job_runs_and_its_outputs_come_back(shell):
    done = shell.launch("run", "job.yaml", "--set", "args.epochs=2")
    run, *lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert sorted(lines) == [
        "[0] done",
        "[0] rank 0 of 2 --epochs 2",
        "[1] done",
        "[1] rank 1 of 2 --epochs 2",
    ]
    assert re.search(rf"^{run} completed after .+$", done.stderr, re.MULTILINE)
    folder = shell.folder / shell.launch("fetch", run, "--into", "back").stdout.strip()
    assert (folder / "outputs" / "0.txt").read_text() == "none"
    assert (folder / "outputs" / "1.txt").read_text() == "none"


def test_a_script_with_a_progress_file_tells_how_long_it_takes_until_its_end(shell):
    page = (PROJECT / "docs" / "run-directory.md").read_text()
    lines = re.search(r"```python\n(path = .*?)```", page, re.DOTALL)[1].splitlines()
    told = "\n".join(f"    {line}" for line in lines)
    program = f"""
import json, os, time
for epoch in range(10):
{told}
    while epoch == 0 and not os.path.exists(os.path.dirname(path) + "/{HISTORY}"):
        time.sleep(0.02)
while not os.path.exists({str(shell.folder / "on")!r}):
    time.sleep(0.02)
"""
    (shell.folder / "train.py").write_text(program)
    shell.open("run", "job.yaml", "--set", "processes_per_node=1", stdout=subprocess.DEVNULL)
    (run,) = shell.wait_for_runs(1)
    bound = Bound(60)
    while not (
        run["progress"] and run["progress"]["done"] == 9 and run["progress"]["left_s"] is not None
    ):
        bound.check(run)
        (run,) = json.loads(shell.launch("ls", "--json").stdout)
    assert (run["progress"]["total"], run["progress"]["unit"]) == (20, "epoch")
    assert " 45 %, epoch 9 of 20, about " in shell.launch("show").stdout
    (shell.folder / "on").touch()
    ended = shell.launch("wait").stderr
    assert "progress    45 %, epoch 9 of 20\n" in ended


def test_a_failed_job_names_its_rank_and_traceback(shell):
    done = shell.launch("run", "job.yaml", "--set", "args.fail=true")
    run = done.stdout.splitlines()[0]
    summary = done.stderr[done.stderr.index(f"{run} failed") :].splitlines()
    assert done.returncode == 100
    words = r"uncaught exception: ValueError: no luck \(train\.py:\d+\)"
    assert re.fullmatch(rf"{run} failed after .* s: rank 1 on \S+: {words}", summary[0])
    assert summary[1] == "Traceback (most recent call last):"
    assert "ValueError: no luck" in summary
    assert shell.launch("wait", run, "--passthrough").returncode == 1


def test_ctrl_c_detaches_and_the_run_goes_on(shell):
    process = shell.open("run", "job.yaml", "--set", "args.wait-for=go")
    shell.wait_for_line(process, "rank 0 of 2 --wait-for go")
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=HANG_S)
    run = shell.wait_for_runs(1)[0]
    assert process.returncode == 130
    assert f"detached; {run['id']} goes on (running)\n" in err
    assert f"launch logs -f {run['id']} --env env.json\n" in err
    assert run["state"] == "running"
    Path(run["run_dir"], "nodes", "0", "go").touch()
    again = shell.launch("logs", "-f", run["id"])
    assert again.returncode == 0
    assert sorted(again.stdout.splitlines())[:2] == ["[0] done", "[0] rank 0 of 2 --wait-for go"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_run_outlives_launch_and_its_terminal(shell, number):
    process = shell.open("run", "job.yaml", "--set", "args.wait-for=go")
    shell.wait_for_line(process, "rank 0 of 2 --wait-for go")
    os.killpg(process.pid, number)
    process.communicate(timeout=HANG_S)
    run = shell.wait_for_runs(1)[0]
    assert run["state"] == "running"
    Path(run["run_dir"], "nodes", "0", "go").touch()
    assert shell.launch("wait", "--timeout", "60s").returncode == 0


def test_a_queued_run_says_what_it_waits_for(shell):
    shell.launch("run", "job.yaml", "--detach", "--set", "args.wait-for=go")
    first = shell.wait_for_runs(1)[0]["id"]
    process = shell.open("run", "job.yaml")
    shell.wait_for_runs(2)
    told = b""
    while b" queued: " not in told:
        told += os.read(process.stderr.fileno(), 1 << 12)
    assert shell.launch("cancel", first).returncode == 0
    out, err = process.communicate(timeout=HANG_S)
    err = told.decode() + err
    second = out.splitlines()[0]
    assert process.returncode == 0
    assert re.search(rf"^{second} queued: .*{first}", err, re.MULTILINE), err


def test_a_secret_reaches_the_ranks_and_no_record(shell):
    done = shell.launch("run", "job.yaml", "--set", "secrets.TOKEN=t", TOKEN="hunter2")
    run_dir = Path(shell.wait_for_runs(1)[0]["run_dir"])
    assert done.returncode == 0, done.stderr
    assert (run_dir / "outputs" / "0.txt").read_text() == "hunter2"
    (run_dir / "outputs" / "0.txt").unlink()
    (run_dir / "outputs" / "1.txt").unlink()
    leaked = [
        path for path in run_dir.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()
    ]
    assert leaked == []


def test_rerun_takes_the_code_of_then_not_of_now(shell):
    repository = shell.folder
    (repository / ".gitignore").write_text("workspace/\n")
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    assert shell.launch("run", "job.yaml").returncode == 0
    (repository / "train.py").write_text("raise SystemExit(9)\n")
    done = shell.launch("rerun", "last", "--set", "args.epochs=5")
    assert done.returncode == 0, done.stderr
    assert "[0] rank 0 of 2 --epochs 5" in done.stdout.splitlines()


def test_a_run_folder_that_cannot_be_written_leaves_nothing(shell):
    shell.workspace.write_text("a file where the folder has to be")
    done = shell.launch("run", "job.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("error: ") == 1
    assert f"cannot write a run in `{shell.workspace}/runs`" in done.stderr
    shell.workspace.unlink()


def test_a_dead_store_is_named_and_nothing_is_left(shell):
    done = shell.launch("run", "job.yaml", "--set", "inputs.d.dataset=digits")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("error: ") == done.stderr.count("hint: ") == 1
    assert not (shell.workspace / "runs").exists()


def test_a_reader_that_left_is_no_error(shell):
    shell.launch("run", "job.yaml")
    command = " ".join(shell.words("logs"))
    program = f"{command} | head -1"
    done = subprocess.run(
        ["bash", "-c", program], cwd=shell.folder, capture_output=True, text=True, check=True
    )
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_colour_on_a_terminal_unless_it_is_unwanted(shell, no_color, is_coloured):
    primary, secondary = pty.openpty()
    process = shell.open(
        *("run", "job.yaml"),
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
        env={**os.environ, "NO_COLOR": no_color, "TERM": "xterm"},
    )
    os.close(secondary)
    seen = b""
    while True:
        try:
            part = os.read(primary, 65536)
        except OSError:  # the last one to hold the terminal closed it
            break
        if not part:
            break
        seen += part
    os.close(primary)
    assert process.wait(HANG_S) == 0
    assert (b"\x1b[36m[0]\x1b[0m rank 0 of 2" in seen) is is_coloured
    assert (b"\x1b[" in seen) is is_coloured


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_run_is_started_whichever_of_the_standard_streams_are_closed(shell, closed):
    words = shell.words("run", "job.yaml", "--detach")
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *words],
        cwd=shell.folder,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    (run,) = shell.wait_for_runs(1)
    assert shell.launch("wait", run["id"], "--timeout", "60s").returncode == 0
    assert Path(run["run_dir"], "outputs", "1.txt").read_text() == "none"
