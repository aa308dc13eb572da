"""What is shown of a build: steps, one line each in a log, one moving line on a terminal."""

import io
import os
import signal
import subprocess
import sys

import pytest

from jobs.contracts.errors import EnvironmentFailure
from jobs.host.progress import BuildProgress, describe_step, run_watched
from tests.busy import HANG_S, wait_until


class Terminal(io.StringIO):
    def isatty(self):
        return True


class CountingTerminal(Terminal):
    """Makes a file once it was shown a text twice."""

    def __init__(self, text, file):
        super().__init__()
        self.text, self.file = text, file

    def write(self, text):
        size = super().write(text)
        if self.getvalue().count(self.text) >= 2:
            self.file.touch()
        return size


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("[1/2] STEP 6/12: COPY a b", "stage 1/2, step 6/12: COPY a b"),
        ("STEP 2/3: RUN make", "step 2/3: RUN make"),
        ("#9 [builder 3/8] RUN make   all", "stage builder, step 3/8: RUN make all"),
        (
            "STEP 1/1: RUN --mount=type=secret,id=index     make",
            "step 1/1: RUN make",
        ),
        ("#9 4.361 Compiling [builder 3/8]", None),
        ("--> 8f7631a2a27", None),
        (f"Copying blob sha256:{'ab' * 32} ", f"Copying blob sha256:{'ab' * 6}"),
        ("0123456789ab: Pushed", "0123456789ab: Pushed"),
        ("0123456789ab: Preparing", None),
        ("", None),
        (f"STEP 1/1: RUN {'x' * 200}", f"step 1/1: RUN {'x' * 83}..."),
    ],
)
def test_a_step_is_told_from_other_lines(line, step):
    assert describe_step(line) == step


def script(*lines):
    return [sys.executable, "-u", "-c", "\n".join(lines)]


def test_a_log_gets_one_line_a_step(tmp_path):
    stream = io.StringIO()
    steps = ("STEP 1/2: FROM a", "noise", "STEP 2/2: RUN b", "STEP 2/2: RUN b")
    command = script(*[f"print({line!r})" for line in steps])
    log = tmp_path / "log"
    run_watched(
        command, what="building", log=log, progress=BuildProgress("starting", stream=stream)
    )
    shown = [line.split("  ")[-1] for line in stream.getvalue().splitlines()]
    assert shown == ["step 1/2: FROM a", "step 2/2: RUN b"]
    assert log.read_text().splitlines()[-4:] == list(steps)


def test_a_terminal_has_one_line_that_moves_and_goes(tmp_path, monkeypatch):
    monkeypatch.setattr("jobs.host.progress.REDRAW_S", 0.05)
    go = tmp_path / "go"
    stream = CountingTerminal("step 1/1: FROM a", go)
    waits = f"while not os.path.exists({str(go)!r}) and not time.sleep(0.01): pass"
    command = script("import os, time; print('STEP 1/1: FROM a')", waits)
    run_watched(
        command,
        what="building",
        log=tmp_path / "log",
        progress=BuildProgress("starting", stream=stream),
    )
    text = stream.getvalue()
    assert text.count("step 1/1: FROM a") >= 2  # the time goes on while the step does
    assert text.rstrip("\x1b[?25h").endswith("\x1b[2K")  # the line is gone


def test_a_last_line_without_its_end_is_kept(tmp_path):
    command = script("import sys; sys.stderr.write('no end'); sys.exit(4)")
    with pytest.raises(EnvironmentFailure) as caught:
        run_watched(
            command,
            what="building x",
            log=tmp_path / "log",
            progress=BuildProgress("starting", stream=io.StringIO()),
            hint="look there",
        )
    assert caught.value.message.startswith("building x failed (exit code 4)")
    assert caught.value.message.endswith("| no end")
    assert caught.value.hint == "look there"


def test_a_program_that_cannot_start_is_named(tmp_path):
    with pytest.raises(EnvironmentFailure, match="cannot start /no/such/engine"):
        run_watched(
            ["/no/such/engine"],
            what="building",
            log=tmp_path / "log",
            progress=BuildProgress("starting"),
        )


def test_an_interrupted_build_ends_its_engine(tmp_path):
    """Also when only this process was told to stop, as by a `kill -INT`."""
    engine = (
        "import os, time; print('STEP 1/1: RUN sleep');"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    code = (
        "import sys; from pathlib import Path;"
        "from jobs.host.progress import BuildProgress, run_watched;"
        f"run_watched([sys.executable, '-c', {engine!r}], what='x',"
        f" log=Path({str(tmp_path / 'log')!r}), progress=BuildProgress('x'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stderr=subprocess.DEVNULL
    )
    pid = tmp_path / "pid"
    wait_until(
        lambda: pid.exists() and pid.read_text(), what=lambda: "no engine", over=process.poll
    )
    process.send_signal(signal.SIGINT)
    process.wait(timeout=HANG_S)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
